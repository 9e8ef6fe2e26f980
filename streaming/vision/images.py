"""Images as tensors, and torchvision's convention of transforms, without needing torchvision."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Transform", "TransformEach", "to_tensor"]

Transform = Callable[..., Any]
"""A transform is any callable; `torchvision.transforms` has many."""


def to_tensor(image: Image | NDArray[Any]) -> torch.Tensor:
    """An image as a tensor of shape (channels, height, width).

    Eight-bit pixels become floats from 0 to 1, as in torchvision's function of that name; wider
    ones keep their values (16-bit ones as int32, since few operations know uint16).

    Args:
        image: A Pillow image, or an array of shape (height, width) or (height, width, channels).

    Raises:
        TypeError: It is neither.
        ValueError: The array has another number of dimensions.

    Example:
        >>> to_tensor(np.array([[0, 51], [102, 255]], np.uint8))
        tensor([[[0.0000, 0.2000],
                 [0.4000, 1.0000]]])
    """
    pixels = _pixels(image)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3:
        raise ValueError(
            f"an image has to be of shape (height, width[, channels]), not {pixels.shape}"
        )
    planes = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    if planes.dtype == torch.uint8:
        return planes.to(torch.get_default_dtype()).div_(255)
    return planes


def _pixels(image: Any) -> NDArray[Any]:
    if isinstance(image, np.ndarray):
        return np.array(image)
    if not hasattr(image, "getbands"):
        raise TypeError(f"not an image, neither of Pillow nor an array: {type(image).__name__}")
    if image.mode == "1":
        image = image.convert("L")
    pixels: NDArray[Any] = np.array(image)
    return pixels.astype(np.int32) if pixels.dtype == np.uint16 else pixels


class TransformEach:
    """Transforms an image and its label, each by a function of its own.

    Args:
        transform: For the image; None leaves it as it is.
        target_transform: For the label; None leaves it as it is.

    Example:
        >>> TransformEach(None, str)("image", 3)
        ('image', '3')
    """

    def __init__(
        self, transform: Transform | None = None, target_transform: Transform | None = None
    ) -> None:
        self.transform = transform
        self.target_transform = target_transform

    def __call__(self, image: Any, target: Any) -> tuple[Any, Any]:
        """The transformed image and label."""
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target
