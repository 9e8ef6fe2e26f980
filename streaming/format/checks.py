"""Checks of what an index says of a shard. Every error begins with the field that is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from streaming.format.compression import is_compression
from streaming.format.encodings.mds import get_mds_encoded_size, is_mds_encoding
from streaming.format.errors import FormatError

__all__ = [
    "FILE_FIELDS",
    "VERSION",
    "check_basename",
    "check_config",
    "check_file",
    "check_files",
    "check_samples",
    "check_schema",
]

FileRow = tuple[str, int, dict[str, str]]
"""A file's basename, bytes and hashes."""

VERSION = 2

FILE_FIELDS = {
    "mds": ("raw_data", "zip_data"),
    **dict.fromkeys(
        ("csv", "tsv", "xsv", "json"), ("raw_meta", "zip_meta", "raw_data", "zip_data")
    ),
}
"""The fields that describe a shard's files, by format: raw and compressed, the samples' last."""

# What nearly every name looks like; nothing that matches can be unsafe.
_PLAIN = re.compile(r"\w[\w.+=@-]*(?:/\w[\w.+=@-]*)*", re.ASCII)
_DRIVE = re.compile(r"[A-Za-z]:")


def check_basename(name: Any) -> str:
    """Return a file's name below the stream's directory, if that is where it stays.

    Raises:
        FormatError: It is absolute, climbs out, or names what is no shard.
    """
    if type(name) is not str or not name:
        raise FormatError(f"basename must be a file's name, got {name!r}")
    if not _PLAIN.fullmatch(name):
        reason = _unsafe(name)
        if reason:
            raise FormatError(f"basename {name!r} {reason}")
    if name.rpartition("/")[2] == "index.json":
        raise FormatError(f"basename {name!r} is the index's own name")
    return name


def _unsafe(name: str) -> str | None:
    if any(ord(char) < 32 for char in name):
        return "has a control character"
    if "\\" in name:
        return "has a backslash"
    for part in name.split("/"):
        if part in ("", ".", "..") or _DRIVE.match(part):
            return "is not a path below the data set's directory"
    return None


def check_file(value: Any, limit: int) -> FileRow:
    """Return what the index says of a file: basename, bytes, hashes.

    Args:
        value: The index's object.
        limit: The file must be smaller than this, in bytes.

    Raises:
        FormatError: A part is missing, of the wrong type, or unsafe.
    """
    if type(value) is not dict:
        raise FormatError(f"must be an object, got {value!r}")
    try:
        name, size, hashes = value["basename"], value["bytes"], value["hashes"]
    except KeyError as err:
        raise FormatError(f"{err.args[0]} is missing") from None
    if type(size) is not int or not 0 <= size < limit:
        raise FormatError(f"bytes must be an integer from 0 to {limit - 1}, got {size!r}")
    if type(hashes) is not dict or (hashes and set(map(type, hashes.values())) != {str}):
        raise FormatError(f"hashes must map algorithms to hex digests, got {hashes!r}")
    return check_basename(name), size, hashes


def check_samples(value: Any) -> int:
    """Return a shard's number of samples, which the files store in 32 bits.

    Raises:
        FormatError: It is something else.
    """
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise FormatError(f"samples must be an integer from 0 to {(1 << 32) - 1}, got {value!r}")
    return value


def _check_zip(compression: str | None, value: Any) -> None:
    """Refuse a shard that is compressed without a compressed file, or the reverse.

    Raises:
        FormatError: It is one of these.
    """
    if (value is None) != (compression is None):
        raise FormatError(
            "is missing, though the shard is compressed"
            if value is None
            else "is there, though the shard is not compressed"
        )


def check_schema(schema: dict[str, Any]) -> None:
    """Check what shards of one kind have in common: all fields but the samples and files.

    Raises:
        FormatError: A field is missing, or is not what a reader can use.
    """
    _check("version", schema, lambda v: type(v) is int and v == VERSION, f"{VERSION}")
    _check("format", schema, _is_format, "one of " + ", ".join(FILE_FIELDS))
    _check("compression", schema, _is_algorithm, "null or a compression that is known here")
    _check("hashes", schema, _is_strings, "a list of algorithms")
    _check("size_limit", schema, _is_limit, "null or a positive number of bytes")
    kind = schema["format"]
    if kind == "json":
        _check("columns", schema, _is_columns, "an object of column names and encodings")
    else:
        _check_columns(schema)
    if kind == "mds":
        sizes = _check("column_sizes", schema, _is_sizes, "a list of sizes in bytes, or nulls")
        if len(sizes) != len(schema["column_names"]):
            raise FormatError(f"column_sizes has {len(sizes)} entries, column_names another number")
        for encoding, size in zip(schema["column_encodings"], sizes, strict=True):
            _check_size(encoding, size)
    else:
        _check("newline", schema, _is_text, "a non-empty string")
    if kind == "xsv":
        _check("separator", schema, _is_text, "a non-empty string")


def _check_size(encoding: str, size: int | None) -> None:
    # An encoding may be registered later; then the shard's reader checks it.
    own = get_mds_encoded_size(encoding) if is_mds_encoding(encoding) else None
    if own is not None and size is not None and own != size:
        raise FormatError(f"column_sizes: values of {encoding} take {own} bytes, not {size}")


def _check_columns(schema: dict[str, Any]) -> None:
    names = _check("column_names", schema, _is_strings, "a list of names")
    encodings = _check("column_encodings", schema, _is_strings, "a list of encodings")
    if len(names) != len(encodings):
        raise FormatError(
            f"column_encodings has {len(encodings)} entries, column_names {len(names)}"
        )
    if len(set(names)) != len(names):
        raise FormatError(f"column_names has a name twice: {names!r}")


def _check(field: str, schema: dict[str, Any], test: Callable[[Any], bool], needed: str) -> Any:
    if field not in schema:
        raise FormatError(f"{field} is missing")
    value = schema[field]
    if not test(value):
        raise FormatError(f"{field} must be {needed}, got {value!r}")
    return value


def _is_format(value: Any) -> bool:
    return type(value) is str and value in FILE_FIELDS


def _is_algorithm(value: Any) -> bool:
    return value is None or (type(value) is str and is_compression(value))


def _is_strings(value: Any) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


def _is_limit(value: Any) -> bool:
    return value is None or (type(value) is int and 0 < value < 1 << 63)


def _is_columns(value: Any) -> bool:
    return type(value) is dict and _is_strings(list(value.values()))


def _is_sizes(value: Any) -> bool:
    return type(value) is list and all(
        item is None or (type(item) is int and 0 <= item < 1 << 32) for item in value
    )


def _is_text(value: Any) -> bool:
    return type(value) is str and value != ""


def check_config(obj: Any, formats: tuple[str, ...]) -> dict[str, Any]:
    """Return a shard's whole JSON, if all of it is right and of one of the formats.

    Raises:
        FormatError: A field is missing or wrong.
    """
    if type(obj) is not dict:
        raise FormatError(f"must be an object, got {obj!r}")
    check_schema(obj)
    if obj["format"] not in formats:
        raise FormatError(f"format must be {' or '.join(formats)}, got {obj['format']!r}")
    if "samples" not in obj:
        raise FormatError("samples is missing")
    check_files(obj, check_samples(obj["samples"]), obj)
    return obj


def check_files(
    schema: dict[str, Any], samples: int, files: dict[str, Any]
) -> list[FileRow | None]:
    """Return a shard's files, in the order of ``FILE_FIELDS`` of its format, checked.

    Args:
        schema: The shard's JSON, its files may be missing.
        samples: How many samples it has.
        files: The fields that describe files.

    Raises:
        FormatError: A file is missing, or is described wrongly.
    """
    found: list[FileRow | None] = []
    fields = FILE_FIELDS[schema["format"]]
    compression = schema["compression"]
    for field in fields:
        if field not in files:
            raise FormatError(f"{field} is missing")
        value = files[field]
        try:
            if field[0] == "z":
                _check_zip(compression, value)
                found.append(None if value is None else check_file(value, 1 << 40))
            else:
                # Offsets into the samples' file have 32 bits.
                found.append(check_file(value, 1 << 32 if field == "raw_data" else 1 << 40))
        except FormatError as err:
            raise FormatError(f"{field}: {err}") from None
    table = found[0]
    if table is not None and table[1] < 4 * (samples + 2):
        raise FormatError(
            f"{fields[0]}: bytes is {table[1]}, too few for the offsets of {samples} samples"
        )
    return found
