"""The readers by their format's name."""

from __future__ import annotations

from typing import Any

from streaming.format.errors import FormatError
from streaming.format.read_json import JSONReader
from streaming.format.read_mds import MDSReader
from streaming.format.read_xsv import CSVReader, TSVReader, XSVReader
from streaming.format.reader import Reader

__all__ = ["READERS", "reader_from_json"]

READERS: dict[str, type[MDSReader | JSONReader | XSVReader]] = {
    "csv": CSVReader,
    "json": JSONReader,
    "mds": MDSReader,
    "tsv": TSVReader,
    "xsv": XSVReader,
}


def reader_from_json(dirname: str, split: str | None, obj: dict[str, Any]) -> Reader:
    """Make a reader of what an index says of a shard.

    Args:
        dirname: The stream's directory.
        split: Its subdirectory, or None.
        obj: The shard's object in ``index.json``.

    Raises:
        FormatError: A field is missing or wrong.
    """
    kind = obj.get("format") if isinstance(obj, dict) else None
    if kind not in READERS:
        raise FormatError(f"format must be one of {', '.join(READERS)}, got {kind!r}")
    return READERS[kind].from_json(dirname, split, obj)
