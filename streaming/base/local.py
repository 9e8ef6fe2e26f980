"""`LocalDataset`, under its old import path."""

from streaming.local import LocalDataset

__all__ = ["LocalDataset"]
