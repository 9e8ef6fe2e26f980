"""`StreamingDataset`, under its old import path."""

from streaming.dataset import StreamingDataset

__all__ = ["StreamingDataset"]
