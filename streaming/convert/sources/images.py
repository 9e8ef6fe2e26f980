"""Folders of images: the files as they are, and the folders' names as labels."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

from streaming.convert.source import Batch, Part, Sample
from streaming.convert.sources.files import Files
from streaming.convert.sources.lookup import FileRef, ending_of, read_file

__all__ = ["ImageSource", "image_encoding", "image_value"]

_BATCH_BYTES = 1 << 23
_BATCH_FILES = 4096
_OPENED_BYTES = 1 << 20
"""What an image counts that has to be opened."""
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
        for file in self._files_of(part):
            yield {name: values[0] for name, values in self._read([file]).items()}

    def batches(self, part: Part) -> Iterator[Batch]:
        """The rows of a part, some megabytes at a time."""
        files: list[FileRef] = []
        size = 0
        for file in self._files_of(part):
            files.append(file)
            size += file.size if self._encoding in _BEGINS else _OPENED_BYTES
            if size >= _BATCH_BYTES or len(files) >= _BATCH_FILES:
                yield self._read(files)
                files, size = [], 0
        if files:
            yield self._read(files)

    def _files_of(self, part: Part) -> Iterator[FileRef]:
        return (self.files[number] for number, _, _ in part.spec)

    def _read(self, files: Sequence[FileRef]) -> dict[str, list[Any]]:
        """The columns of some files."""
        wanted, encoding, options = self.columns(), self._encoding, self.options
        columns: dict[str, list[Any]] = {}
        if "image" in wanted:
            columns["image"] = [image_value(read_file(one, options), encoding) for one in files]
        if "name" in wanted:
            columns["name"] = [one.key for one in files]
        if self._classes:
            names = list(map(_class, files))
            if "class" in wanted:
                columns["class"] = names
            if "label" in wanted:
                columns["label"] = [self._classes[name] for name in names]
        return columns

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
