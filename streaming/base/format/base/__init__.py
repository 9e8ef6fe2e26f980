"""What all formats share, under its old import paths."""

from streaming.format.info import FileInfo
from streaming.format.reader import Reader

__all__ = ["FileInfo", "Reader"]
