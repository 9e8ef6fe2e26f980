"""ImageNet, photographs of a thousand classes."""

from streaming.vision.base import StreamingVisionDataset

__all__ = ["StreamingImageNet"]


class StreamingImageNet(StreamingVisionDataset):
    """ImageNet, photographs of a thousand classes.

    See `StreamingVisionDataset` for its columns, samples and arguments.
    """
