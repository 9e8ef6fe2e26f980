"""Which source reads what: by its type, by what a path's name says, or as told."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from streaming.convert.errors import ConvertError
from streaming.convert.source import Source
from streaming.units import bytes_to_int

__all__ = ["open_source"]

_OBJECTS = {
    "datasets": "streaming.convert.sources.huggingface:open_dataset",
    "numpy": "streaming.convert.sources.arrays:open_arrays",
    "pandas": "streaming.convert.sources.tables:open_table",
    "polars": "streaming.convert.sources.tables:open_table",
    "pyarrow": "streaming.convert.sources.tables:open_table",
    "pyspark": "streaming.convert.engines.spark:spark_source",
    "ray": "streaming.convert.engines.ray:ray_source",
}
"""The package that an object's class is from, to the function that makes a source of it."""


def open_source(
    source: Any,
    *,
    format: str | None = None,
    part_size: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Source:
    """Find out what something is, and how it is read.

    Args:
        source: A path or URL of a file, of a folder, or a pattern with `*`; several in a list; a
            table of pandas, polars or Arrow; a data set of Hugging Face; a dict of NumPy arrays; a
            torch data set; or a `Source`, which is returned.
        format: Of files, if their names don't say it: "parquet", "arrow", "csv", "tsv", "jsonl",
            "webdataset", "images", "litdata", "megatron".
        part_size: How many bytes one part reads, about: parts are what is begun anew after a crash,
            and what workers share out. The same input and the same size give the same parts. None
            is a sixteenth of the source, but from 16 MiB to 128 MiB.
        storage_options: Options of the store that files are read from.

    Returns:
        The source.

    Raises:
        ConvertError: If it is nothing that can be read.
        FileNotFoundError: If there are no such files.
        ImportError: If a package is missing that reads it; the message says what to install.
    """
    if isinstance(source, Source):
        return source
    size = None if part_size is None else bytes_to_int(part_size)
    if size is not None and size < 1:
        raise ValueError(f"part_size is {part_size!r}; it must be 1 byte or more")
    if isinstance(source, (str, os.PathLike)) or _is_paths(source):
        from streaming.convert.sources.files import open_files

        return open_files(source, format, size, dict(storage_options or {}))
    if format is not None:
        raise ValueError(f"format is {format!r}, which is for files, not for a {_name(source)}")
    for kind in type(source).__mro__:
        maker = _OBJECTS.get(kind.__module__.partition(".")[0])
        if maker is not None:
            return _call(maker, source, size)
    if isinstance(source, Mapping):
        return _call(_OBJECTS["numpy"], source, size)
    if hasattr(source, "__iter__") or hasattr(source, "__getitem__"):
        return _call("streaming.convert.sources.torch_data:open_torch", source, size)
    raise ConvertError(
        f"a {_name(source)} can't be converted: give files, a table, a data set, arrays, or a "
        "Source of your own"
    )


def _is_paths(source: Any) -> bool:
    return (
        isinstance(source, (list, tuple))
        and bool(source)
        and all(isinstance(one, (str, os.PathLike)) for one in source)
    )


def _name(source: Any) -> str:
    return f"{type(source).__module__}.{type(source).__qualname__}"


def _call(maker: str, source: Any, part_bytes: int | None) -> Source:
    module, _, name = maker.partition(":")
    made: Source = getattr(importlib.import_module(module), name)(source, part_bytes)
    return made
