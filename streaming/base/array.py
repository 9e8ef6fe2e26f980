"""`Array`, under its old import path."""

from streaming.format.array import Array

__all__ = ["Array"]
