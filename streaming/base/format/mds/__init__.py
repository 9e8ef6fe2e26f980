"""The MDS format, under its old import paths."""

from streaming.format.read_mds import MDSReader
from streaming.format.writer_mds import MDSWriter

__all__ = ["MDSReader", "MDSWriter"]
