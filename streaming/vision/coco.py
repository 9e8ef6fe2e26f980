"""COCO, photographs with boxes around objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming._ready import ReadyDataset, passes_on
from streaming.vision.images import Transform

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from streaming._ready import DatasetArguments

__all__ = ["StreamingCOCO"]


class StreamingCOCO(ReadyDataset):
    """COCO, for detection.

    Columns: `img`, the photograph; `img_id`; `htot` and `wtot`, its height and width in pixels;
    `bbox_sizes` and `bbox_labels`, the boxes and their classes. A sample is (photograph, `img_id`,
    (height, width), boxes, classes), the photograph in RGB.

    Shards in which the boxes are pickled need `allow_unsafe_types=True`.

    Args:
        transform: A function of photograph, (height, width), boxes and classes that gives all four.
        arguments: Those of `StreamingDataset`.
    """

    @passes_on(ReadyDataset.__init__)
    def __init__(
        self, *, transform: Transform | None = None, **arguments: Unpack[DatasetArguments]
    ) -> None:
        super().__init__(**arguments)
        self.transform = transform

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """The sample, transformed.

        Args:
            idx: The sample's number.
            retry: Attempts to open the shard again if it is evicted meanwhile.
        """
        sample = super().get_item(idx, retry)
        image = sample["img"].convert("RGB")
        size = (sample["htot"], sample["wtot"])
        boxes, labels = sample["bbox_sizes"], sample["bbox_labels"]
        if self.transform is not None:
            image, size, boxes, labels = self.transform(image, size, boxes, labels)
        return image, sample["img_id"], size, boxes, labels
