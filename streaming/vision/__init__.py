"""Ready data sets of images: classification, segmentation, detection."""

from typing import TYPE_CHECKING

from streaming._lazy import lazy_names

if TYPE_CHECKING:
    from streaming.vision.ade20k import StreamingADE20K
    from streaming.vision.base import StreamingVisionDataset
    from streaming.vision.cifar10 import StreamingCIFAR10
    from streaming.vision.coco import StreamingCOCO
    from streaming.vision.imagenet import StreamingImageNet

__all__ = [
    "StreamingADE20K",
    "StreamingCIFAR10",
    "StreamingCOCO",
    "StreamingImageNet",
    "StreamingVisionDataset",
]

if not TYPE_CHECKING:  # or a type checker would take any name for granted
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "streaming.vision.ade20k": ["StreamingADE20K"],
            "streaming.vision.base": ["StreamingVisionDataset"],
            "streaming.vision.cifar10": ["StreamingCIFAR10"],
            "streaming.vision.coco": ["StreamingCOCO"],
            "streaming.vision.imagenet": ["StreamingImageNet"],
        },
        submodules=["ade20k", "base", "cifar10", "coco", "imagenet"],
    )
