"""Folders of images: the files as they are, and the folders' names as labels."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

from streaming.convert.source import Batch, Part, Sample
from streaming.convert.sources.files import Files
from streaming.convert.sources.lookup import FileRef, ending_of, read_file

__all__ = ["ImageSource", "image_encoding", "image_value"]

_BATCH_BYTES = 1 << 23
_BEGINS = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n", "bytes": b""}
"""How files begin that are written as they are."""


class ImageSource(Files):
    """Image files below a folder.

    A sample has the `image`, which is the file as it is, and the file's `name` below the root. If
    the images are in folders, it has the folder's name as `class` as well, and as `label` that
    name's place among all of them, as torchvision's `ImageFolder` counts.
    """

    kind = "images"

    def columns(self) -> dict[str, str]:
        """The columns: `image`, `name`, and where there are folders, `class` and `label`."""
        columns = {"image": self._encoding, "name": "str"}
        if self._classes:
            columns |= {"class": "str", "label": "int"}
        return {name: columns[name] for name in columns if name not in self.dropped}

    def read(self, part: Part) -> Iterator[Sample]:
        """The rows of a part."""
        wanted = self.columns()
        classes, encoding, options = self._classes, self._encoding, self.options
        for number, _, _ in part.spec:
            file = self.files[number]
            row: Sample = {}
            if "image" in wanted:
                row["image"] = image_value(read_file(file, options), encoding)
            if "name" in wanted:
                row["name"] = file.key
            if classes:
                name = _class(file)
                row |= {k: v for k, v in (("class", name), ("label", classes[name])) if k in wanted}
            yield row

    def batches(self, part: Part) -> Iterator[Batch]:
        """The rows of a part, some megabytes at a time."""
        rows: list[Any] = []
        size = 0
        for row in self.read(part):
            rows.append(row)
            image = row.get("image")
            size += len(image) if isinstance(image, bytes) else 1 << 20
            if size >= _BATCH_BYTES or len(rows) >= 4096:
                yield {name: [one[name] for one in rows] for name in rows[0]}
                rows, size = [], 0
        if rows:
            yield {name: [one[name] for one in rows] for name in rows[0]}

    @cached_property
    def _encoding(self) -> str:
        given = self.given.get("image")
        return given or image_encoding({ending_of(file.key) for file in self.files})

    @cached_property
    def _classes(self) -> dict[str, int]:
        names = {_class(file) for file in self.files}
        return {} if "" in names else {name: at for at, name in enumerate(sorted(names))}


def _class(file: FileRef) -> str:
    folder, slash, _ = file.key.partition("/")
    return folder if slash else ""


def image_encoding(endings: Collection[str]) -> str:
    """The encoding for image files with these endings.

    Example:
        >>> image_encoding([".jpg", ".jpeg"]), image_encoding([".png"]), image_encoding([".webp"])
        ('jpeg', 'png', 'bytes')
    """
    if set(endings) <= {".jpg", ".jpeg"}:
        return "jpeg"
    return "png" if set(endings) == {".png"} else "bytes"


def image_value(data: bytes, encoding: str) -> Any:
    """An image file as its encoding takes it: as it is, or opened."""
    same = _BEGINS.get(encoding)
    if same is not None and data.startswith(same):
        return data
    from PIL import Image

    return Image.open(io.BytesIO(data))
