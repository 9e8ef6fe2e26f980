"""The index's name, under its old import path."""

from streaming.format.index import get_index_basename

__all__ = ["get_index_basename"]
