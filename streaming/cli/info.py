"""`shardstream info`: what a data set is, from its index alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.cli.place import Place
from streaming.format.index import Index

__all__ = ["Column", "Folder", "Info", "Schema", "Spread", "columns_of", "info"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a data set."""

    name: str
    encoding: str
    bytes: int | None = None
    """What each value takes; None where they differ."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How a number varies over shards."""

    least: int
    mean: float
    most: int


@dataclass(frozen=True, slots=True)
class Schema:
    """What some of the shards have in common."""

    format: str
    columns: list[Column]
    compression: str | None
    hashes: list[str]
    size_limit: int | None
    shards: int
    samples: int


@dataclass(slots=True)
class Folder:
    """A part of a data set: the shards below one folder."""

    name: str
    shards: int = 0
    samples: int = 0
    raw_bytes: int = 0
    folders: list[Folder] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Info:
    """What an index says of a data set."""

    url: str
    shards: int
    samples: int
    raw_bytes: int
    """Bytes of all shards before compression."""
    stored_bytes: int
    """Bytes of all shards as they are stored and travel."""
    index_bytes: int
    samples_per_shard: Spread | None
    bytes_per_shard: Spread | None
    """Before compression."""
    schemas: list[Schema]
    tree: Folder
    """The folders that the shards are in; without folders of its own if it was not merged."""


def info(place: Place) -> Info:
    """Describe a data set.

    Args:
        place: The data set.

    Returns:
        What its index says.

    Example:
        >>> import tempfile
        >>> from streaming import MDSWriter
        >>> from streaming.cli.place import open_place
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "int"}, hashes=["sha1"]) as writer:
        ...     writer.write({"x": 1})
        >>> found = info(open_place(folder))
        >>> found.shards, found.samples, found.schemas[0].columns, found.schemas[0].hashes
        (1, 1, [Column(name='x', encoding='int', bytes=8)], ['sha1'])
    """
    index = place.index
    stored = np.where(index.zip_bytes > 0, index.zip_bytes, index.raw_bytes)
    return Info(
        url=place.url,
        shards=len(index),
        samples=index.num_samples,
        raw_bytes=int(index.raw_bytes.sum()),
        stored_bytes=int(stored.sum()),
        index_bytes=len(place.data),
        samples_per_shard=_spread(index.samples),
        bytes_per_shard=_spread(index.raw_bytes),
        schemas=_schemas(place),
        tree=_tree(place),
    )


def _spread(numbers: NDArray[np.int64]) -> Spread | None:
    if not len(numbers):
        return None
    return Spread(int(numbers.min()), float(numbers.mean()), int(numbers.max()))


def columns_of(schema: Mapping[str, Any]) -> list[Column]:
    """The columns of what an index says of a shard, of any format.

    Example:
        >>> columns_of({"format": "json", "columns": {"word": "str"}})
        [Column(name='word', encoding='str', bytes=None)]
    """
    if schema["format"] == "json":
        return [Column(name, encoding) for name, encoding in schema["columns"].items()]
    names, encodings = schema["column_names"], schema["column_encodings"]
    sizes = schema.get("column_sizes") or [None] * len(names)
    return [Column(*one) for one in zip(names, encodings, sizes, strict=True)]


def _schemas(place: Place) -> list[Schema]:
    index = place.index
    shards, samples = [0] * len(index.schemas), [0] * len(index.schemas)
    for shard in range(len(index)):
        number = _schema_number(index, shard)
        shards[number] += 1
        samples[number] += int(index.samples[shard])
    return [
        Schema(
            format=schema["format"],
            columns=columns_of(schema),
            compression=schema["compression"],
            hashes=schema["hashes"],
            size_limit=schema["size_limit"],
            shards=shards[number],
            samples=samples[number],
        )
        for number, schema in enumerate(index.schemas)
    ]


def _schema_number(index: Index, shard: int) -> int:
    """Which of an index's schemas a shard has."""
    if len(index.schemas) == 1:
        return 0
    config = index.config(shard)
    return next(
        number
        for number, schema in enumerate(index.schemas)
        if all(config.get(name) == value for name, value in schema.items())
    )


def _tree(place: Place) -> Folder:
    index, root = place.index, Folder(place.url)
    known: dict[str, Folder] = {"": root}
    for shard in range(len(index)):
        path = index.files(shard)[-1][0].basename.rpartition("/")[0]
        for folder in _way(path, known):
            folder.shards += 1
            folder.samples += int(index.samples[shard])
            folder.raw_bytes += int(index.raw_bytes[shard])
    return root


def _way(path: str, known: dict[str, Folder]) -> list[Folder]:
    """The folders from the root down to one, which are made if they are new."""
    if not path:
        return [known[""]]
    above, _, name = path.rpartition("/")
    way = _way(above, known)
    if path not in known:
        known[path] = Folder(name)
        way[-1].folders.append(known[path])
    return [*way, known[path]]
