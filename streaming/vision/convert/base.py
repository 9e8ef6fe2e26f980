"""Image files as sources, and any data set of (image, class) as a data set of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming.convert.items import Items, shuffled
from streaming.convert.run import convert
from streaming.convert.source import Sample, Unreadable

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["check_image", "convert_image_class_dataset", "image_mode", "read_bytes"]


def read_bytes(path: str) -> bytes:
    """A file's content."""
    with open(path, "rb") as file:
        return file.read()


def check_image(data: bytes) -> str | None:
    """What is wrong with an image file; None if all of it can be decoded."""
    try:
        _open(data).load()
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    return None


def image_mode(data: bytes) -> str:
    """Pillow's name of the kind of an image's pixels, as "RGB"."""
    return _open(data).mode


def _open(data: bytes) -> Image:
    import PIL.Image

    return PIL.Image.open(BytesIO(data))


class _ClassDataset:
    """Loads a sample of a data set of (image, class)."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __call__(self, at: int) -> Iterator[Sample | Unreadable]:
        try:
            image, label = self.dataset[at]
        except Exception as exc:
            yield Unreadable(f"dataset[{at}]: {type(exc).__name__}: {exc}")
            return
        if isinstance(image, np.ndarray):
            import PIL.Image

            image = PIL.Image.fromarray(image)
        yield {"i": at, "x": image, "y": int(label)}


def convert_image_class_dataset(
    dataset: Any,
    out_root: str,
    split: str | None = None,
    compression: str | None = None,
    hashes: Sequence[str] | None = None,
    size_limit: int = 1 << 24,
    progress_bar: bool = True,
    leave: bool = False,
    encoding: str = "pil",
    *,
    workers: int | None = None,
) -> None:
    """Convert a map-style data set of (image, class), such as those of torchvision.

    Columns: `i`, the sample's number in `dataset`; `x`, the image; `y`, the class. Samples are
    written in a random order, the same each time.

    Args:
        dataset: Has a length, and gives a pair of image (of Pillow, or an array) and class.
        out_root: A folder or a URL.
        split: The name of a folder below it.
        compression: Of the shards.
        hashes: To keep of their files.
        size_limit: Most bytes of a shard before compression.
        progress_bar: Whether to show progress.
        leave: Has no effect: a bar stays.
        encoding: Of the images: "pil" keeps pixels as they are, "png" and "jpeg" compress them.
        workers: How many processes; one a core unless given.
    """
    order = shuffled(range(len(dataset)))
    source = Items(
        f"samples of {type(dataset).__name__}",
        {"i": "int", "x": encoding, "y": "int"},
        order,
        _ClassDataset(dataset),
        part_bytes=4096,
    )
    convert(
        source,
        os.path.join(out_root, split) if split else out_root,
        compression=compression,
        hashes=hashes,
        size_limit=size_limit,
        progress=progress_bar,
        workers=workers,
    )
