"""The MDS reader, under its old import path."""

from streaming.format.read_mds import MDSReader

__all__ = ["MDSReader"]
