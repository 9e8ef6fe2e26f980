"""ADE20K, photographs with the class of each pixel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming._ready import ReadyDataset, passes_on
from streaming.vision.images import Transform, TransformEach

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from streaming._ready import DatasetArguments

__all__ = ["StreamingADE20K"]


class StreamingADE20K(ReadyDataset):
    """ADE20K: columns `x`, a photograph, and `y`, an image of the same size of its pixels' classes.

    A sample is the pair of both.

    Args:
        joint_transform: A function of the pair, as one argument, that gives a pair; called first.
        transform: A function of the photograph.
        target_transform: A function of the classes' image.
        arguments: Those of `StreamingDataset`.
    """

    @passes_on(ReadyDataset.__init__)
    def __init__(
        self,
        *,
        joint_transform: Transform | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        **arguments: Unpack[DatasetArguments],
    ) -> None:
        super().__init__(**arguments)
        self.joint_transform = joint_transform
        self.transform = transform
        self.target_transform = target_transform

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """The sample's photograph and classes, transformed.

        Args:
            idx: The sample's number.
            retry: Attempts to open the shard again if it is evicted meanwhile.
        """
        sample = super().get_item(idx, retry)
        image, target = sample["x"], sample["y"]
        if self.joint_transform is not None:
            image, target = self.joint_transform((image, target))
        return TransformEach(self.transform, self.target_transform)(image, target)
