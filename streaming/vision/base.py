"""What image classification data sets have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming._ready import ReadyDataset, passes_on
from streaming.vision.images import Transform, TransformEach, to_tensor

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from streaming._ready import ArgumentsButBatchSize

__all__ = ["StreamingVisionDataset"]


class StreamingVisionDataset(ReadyDataset):
    """Images with labels: columns `x`, the image, and `y`, the label.

    A sample is the pair (image, label). Without any transform of the image it is given as a tensor
    (see `streaming.vision.images.to_tensor`).

    Args:
        batch_size: Samples in a batch, for each device.
        transforms: A function of image and label that gives both transformed. Excludes the others.
        transform: A function of the image.
        target_transform: A function of the label.
        arguments: Those of `StreamingDataset`.

    Raises:
        ValueError: Both `transforms` and one of the others are given.

    Example:
        >>> import tempfile
        >>> from streaming import MDSWriter
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "bytes", "y": "int"}) as out:
        ...     out.write({"x": b"pixels", "y": 7})
        >>> StreamingVisionDataset(local=folder, batch_size=1, transform=len)[0]
        (6, 7)
    """

    @passes_on(ReadyDataset.__init__)
    def __init__(
        self,
        *,
        batch_size: int | None,
        transforms: Transform | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        **arguments: Unpack[ArgumentsButBatchSize],
    ) -> None:
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError(
                "give either transforms, for image and label together, or transform and "
                "target_transform, for each of them; not both"
            )
        super().__init__(batch_size=batch_size, **arguments)
        self.transform = transform
        self.target_transform = target_transform
        self.transforms = transforms or TransformEach(transform or to_tensor, target_transform)

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """The sample's image and label, transformed.

        Args:
            idx: The sample's number.
            retry: Attempts to open the shard again if it is evicted meanwhile.
        """
        sample = super().get_item(idx, retry)
        return self.transforms(sample["x"], sample["y"])
