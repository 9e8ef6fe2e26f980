"""The MDS writer, under its old import path."""

from streaming.format.writer_mds import MDSWriter

__all__ = ["MDSWriter"]
