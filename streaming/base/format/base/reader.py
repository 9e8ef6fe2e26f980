"""What all readers share, under its old import path."""

from streaming.format.info import FileInfo
from streaming.format.reader import JointReader, Reader, SplitReader

__all__ = ["FileInfo", "JointReader", "Reader", "SplitReader"]
