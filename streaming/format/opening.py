"""Opening a shard: its raw file or its compressed one, and the offsets of its samples, checked."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.format.compression import decompress
from streaming.format.decoding import Put
from streaming.format.errors import CorruptShardError, FormatError
from streaming.format.info import FileInfo
from streaming.format.mapping import OpenFile, Positioned, open_file

__all__ = ["Opened", "open_pair", "read_offsets", "read_spans"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A shard that is open: nobody changes it, so that threads share it without a lock."""

    file: OpenFile
    """The file that holds the samples."""
    offsets: NDArray[np.uint32]
    """Where each sample begins in it, and where the last one ends: samples + 1 offsets."""
    get: Callable[[int], dict[str, Any]] | None = None
    """The quickest way to a sample by its number, which has to exist, if there is one."""
    put: Put | None = None
    """The quickest way to a few samples in columns, by numbers that exist, if there is one."""


def open_pair(
    path: str,
    raw: FileInfo,
    zip_path: str | None,
    zipped: FileInfo | None,
    compression: str | None,
) -> OpenFile:
    """Open one of a shard's files, or decompress it into memory if it is there compressed alone.

    Args:
        path: Where the raw file should be.
        raw: What the index says of it.
        zip_path: Where its compressed form should be, None if it has none.
        zipped: What the index says of that.
        compression: What it is compressed with.

    Raises:
        FileNotFoundError: It is there in neither form.
        CorruptShardError: It has not the size that the index says, or cannot be decompressed.
    """
    try:
        return open_file(path, raw.bytes)
    except FileNotFoundError:
        if zip_path is None or zipped is None:
            raise
    try:
        return OpenFile(_decompressed(zip_path, raw, zipped, compression), path, None)
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT, f"Neither this file is there nor its compressed form {zip_path}", path
        ) from None


def _decompressed(path: str, raw: FileInfo, zipped: FileInfo, compression: str | None) -> bytes:
    with open(path, "rb") as file:
        packed = file.read(zipped.bytes + 1)
    if len(packed) != zipped.bytes:
        raise CorruptShardError(
            f"{path} has not the {zipped.bytes} bytes that the index says: it is "
            f"{'cut off' if len(packed) < zipped.bytes else 'another file'}."
        )
    try:
        data = decompress(compression, packed, max_bytes=raw.bytes)
    except FormatError as err:
        raise CorruptShardError(f"{path}: {err}") from err
    if len(data) != raw.bytes:
        raise CorruptShardError(
            f"{path} becomes {len(data)} bytes where the index says {raw.bytes}"
        )
    return data


def read_offsets(
    table: OpenFile, samples: int, first: int, last: int, min_bytes: int, same_size: bool
) -> NDArray[np.uint32]:
    """Return the table of offsets at the beginning of a file: samples + 1 of them.

    Args:
        table: The file.
        samples: How many samples there should be.
        first: The least that the first offset can be.
        last: What the last offset must be.
        min_bytes: The least that a sample can take.
        same_size: Whether it is what every sample takes.

    Raises:
        CorruptShardError: The table is cut off, or says anything else.
    """
    path, data = table.path, table.data
    if len(data) < 4 * (samples + 2):
        raise CorruptShardError(f"{path} of {len(data)} bytes cannot have {samples} samples")
    numbers = np.frombuffer(data[: 4 * (samples + 2)], "<u4")
    if numbers[0] != samples:
        raise CorruptShardError(f"{path} has {numbers[0]} samples where the index says {samples}")
    offsets = numbers[1:]
    if offsets[0] < first or offsets[-1] != last:
        raise CorruptShardError(
            f"{path}: samples from byte {offsets[0]} to {offsets[-1]}; they should begin at "
            f"{first} or later and end at {last}"
        )
    wrong = offsets[1:] < offsets[:-1]
    sizes = offsets[1:] - offsets[:-1]
    wrong |= sizes != min_bytes if same_size else sizes < min_bytes
    if wrong.any():
        at = int(wrong.argmax())
        raise CorruptShardError(
            f"{path}: sample {at} is said to be in the bytes from {offsets[at]} to "
            f"{offsets[at + 1]}, which is not where it can be"
        )
    return offsets.astype(np.uint32, copy=False)


def read_spans(
    file: Positioned, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[bytes, NDArray[np.int64], NDArray[np.int64]]:
    """Return the bytes of spans of a file one after another, and where each is in them."""
    spans = zip(begins.tolist(), ends.tolist(), strict=True)
    data = b"".join([file[begin:end] for begin, end in spans])
    stops = np.cumsum(ends - begins)
    return data, stops - (ends - begins), stops
