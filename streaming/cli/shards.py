"""Reading samples of a data set wherever it is."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.cli.place import Place
from streaming.cli.transfer import faults, fetch, receive
from streaming.format.compression import decompress_stream
from streaming.format.errors import CorruptShardError, FormatError
from streaming.format.info import FileInfo
from streaming.format.mapping import OpenFile
from streaming.format.opening import read_offsets
from streaming.format.reader import Reader
from streaming.storage import NotFound

__all__ = ["bring", "check_here", "is_here", "opened", "read_samples"]

_SPARSE = 4
"""A shard is fetched whole if more than one in so many of its samples is wanted."""


def is_here(place: Place, shard: int) -> bool:
    """Whether a shard's raw files are in a folder of this machine, with their full sizes."""
    root = place.root
    if root is None:
        return False
    return all(_has(os.path.join(root, raw.basename), raw) for raw, _ in place.index.files(shard))


def _has(path: str, info: FileInfo) -> bool:
    try:
        return os.stat(path).st_size == info.bytes
    except OSError:
        return False


def check_here(place: Place, shard: int) -> None:
    """Make sure that a shard that is here has the hashes that the index says.

    Args:
        place: The data set.
        shard: The shard's number.

    Raises:
        CorruptShardError: If one differs.
    """
    for raw, _ in place.index.files(shard):
        received = receive(place.store, raw.basename, raw.hashes, place.access)
        for _, message in faults(raw, received):
            raise CorruptShardError(f"{place.store.url_of(raw.basename)}: {message}")


def bring(place: Place, shard: int, folder: str) -> None:
    """Put a shard's raw files into a folder, fetched and decompressed, checked.

    Args:
        place: The data set.
        shard: The shard's number.
        folder: Where its files go, under their own names.

    Raises:
        FormatError: If a file is damaged.
        StoreError: If one can't be read.
    """
    algo = place.index.config(shard)["compression"]
    for raw, zipped in place.index.files(shard):
        packed = None if zipped is None else _fetch_zip(place, zipped, folder)
        if zipped is None or packed is None:
            fetch(place.store, raw, folder, place.access)
            continue
        path = os.path.join(folder, *raw.basename.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            with open(packed, "rb") as source, open(path, "wb") as file:
                size = decompress_stream(algo, source, file, raw.bytes)
        except FormatError as exc:
            raise CorruptShardError(f"{place.store.url_of(zipped.basename)}: {exc}") from exc
        os.unlink(packed)
        if size != raw.bytes:
            raise CorruptShardError(
                f"{place.store.url_of(zipped.basename)} becomes {size} bytes where the index says "
                f"{raw.bytes}"
            )


def _fetch_zip(place: Place, zipped: FileInfo, folder: str) -> str | None:
    """Bring a compressed file into a folder; None where there is none, as in a cache."""
    try:
        return fetch(place.store, zipped, folder, place.access)
    except NotFound:
        return None


@contextmanager
def opened(place: Place, shard: int, unsafe: bool = False) -> Iterator[Reader]:
    """A shard's reader, open; a shard that is elsewhere is brought here for as long.

    Args:
        place: The data set.
        shard: The shard's number.
        unsafe: Whether encodings are read that can run code.

    Raises:
        FormatError: If the shard is damaged, or has such an encoding.
        StoreError: If it can't be fetched.
    """
    if is_here(place, shard):
        assert place.root is not None
        reader = place.index.reader(shard, place.root, None, unsafe)
        reader.open()
        yield reader
        reader.close()
        return
    with tempfile.TemporaryDirectory(prefix="shardstream-", ignore_cleanup_errors=True) as folder:
        bring(place, shard, folder)
        reader = place.index.reader(shard, folder, None, unsafe)
        reader.open()
        yield reader
        reader.close()


def read_samples(
    place: Place, ids: Sequence[int] | range | NDArray[np.int64], unsafe: bool = False
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Samples by their numbers; of a remote shard that is not compressed, only their bytes come.

    Args:
        place: The data set.
        ids: The samples' numbers, from 0 to `num_samples - 1`. Neighbours of one shard are read
            together.
        unsafe: Whether encodings are read that can run code.

    Returns:
        Each number with its sample.

    Raises:
        FormatError: If a shard is damaged, or has such an encoding.
        IndexError: If there is no such sample.
        StoreError: If one can't be fetched.
    """
    place.index.validate_safe(unsafe)
    for shard, places in _runs(place, ids):
        start = int(place.index.offsets[shard])
        if not is_here(place, shard) and _SPARSE * len(places) < place.index.samples[shard]:
            sparse = _read_ranges(place, shard, places, unsafe)
            if sparse is not None:
                yield from ((start + at, sample) for at, sample in sparse)
                continue
        with opened(place, shard, unsafe) as reader:
            for at in places:
                yield start + at, reader.sample(at)


def _runs(
    place: Place, ids: Sequence[int] | range | NDArray[np.int64]
) -> Iterator[tuple[int, list[int]]]:
    """Numbers as shards and places in them, neighbours of one shard together."""
    offsets = place.index.offsets
    shard, run = -1, list[int]()
    for number in map(int, ids):
        if not 0 <= number < place.index.num_samples:
            raise IndexError(
                f"{place.url} has {place.index.num_samples} samples; there is no sample {number}"
            )
        if not run or not offsets[shard] <= number < offsets[shard + 1]:
            if run:
                yield shard, run
            shard, run = int(np.searchsorted(offsets, number, side="right")) - 1, []
        run.append(number - int(offsets[shard]))
    if run:
        yield shard, run


def _read_ranges(
    place: Place, shard: int, places: list[int], unsafe: bool
) -> Iterator[tuple[int, dict[str, Any]]] | None:
    """Samples of a remote shard by ranges of bytes; None if that can't be done or won't pay."""
    pairs = place.index.files(shard)
    if not place.store.can_range or any(zipped is not None for _, zipped in pairs):
        return None
    return _ranged(place, shard, places, unsafe)


def _ranged(
    place: Place, shard: int, places: list[int], unsafe: bool
) -> Iterator[tuple[int, dict[str, Any]]]:
    pairs, samples = place.index.files(shard), int(place.index.samples[shard])
    table, data = pairs[0][0], pairs[-1][0]
    head = _range(place, table.basename, 0, 4 * (samples + 2))
    file = OpenFile(head, place.store.url_of(table.basename), None)
    offsets = read_offsets(file, samples, 0, data.bytes, 0, False)
    reader = place.index.reader(shard, place.url, None, unsafe)
    for at in places:
        begin, end = int(offsets[at]), int(offsets[at + 1])
        packed = _range(place, data.basename, begin, end) if end > begin else b""
        try:
            yield at, reader.decode_sample(packed)
        except CorruptShardError as exc:
            url = place.store.url_of(data.basename)
            raise CorruptShardError(f"{url}: sample {at}: {exc}") from exc


def _range(place: Place, key: str, start: int, stop: int) -> bytes:
    what = f"reading {place.store.url_of(key)}"
    return place.access.retry.call(lambda: place.store.get_range(key, start, stop), what)
