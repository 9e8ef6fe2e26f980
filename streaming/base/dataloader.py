"""`StreamingDataLoader`, under its old import path."""

from streaming.dataloader import StreamingDataLoader

__all__ = ["StreamingDataLoader"]
