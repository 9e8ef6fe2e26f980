"""CIFAR-10, 32 × 32 colour images of ten classes."""

from streaming.vision.base import StreamingVisionDataset

__all__ = ["StreamingCIFAR10"]


class StreamingCIFAR10(StreamingVisionDataset):
    """CIFAR-10, 32 × 32 colour images of ten classes.

    See `StreamingVisionDataset` for its columns, samples and arguments.
    """
