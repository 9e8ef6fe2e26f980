"""What all readers share, under its old import path."""

from streaming.format.info import FileInfo
from streaming.format.reader import Reader
from streaming.format.reader_kinds import JointReader, SplitReader

__all__ = ["FileInfo", "JointReader", "Reader", "SplitReader"]
