"""`shardstream doctor`: what stands in the way of streaming, on this machine or in a data set."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from streaming.cli.machine import Check, free_bytes, machine, usable_cores
from streaming.cli.place import Access, Place, open_place
from streaming.cli.transfer import ahead, default_workers, receive
from streaming.format.info import FileInfo

__all__ = ["Doctor", "Link", "doctor"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Link:
    """How fast a data set's store is from here."""

    shards: int
    """How many shards were read."""
    bytes: int
    latency_s: float
    """Median time until a first byte has come."""
    slowest_s: float
    """The longest such time."""
    one_bytes_per_s: float
    """Of one shard after another."""
    many_bytes_per_s: float
    """Of many at once."""
    connections: int
    """How many they were."""


@dataclass(frozen=True, slots=True)
class Doctor:
    """What was found."""

    url: str | None
    machine: list[Check]
    dataset: list[Check] = field(default_factory=list)
    link: Link | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing was found that keeps streaming from working."""
        return not any(check.status == "error" for check in [*self.machine, *self.dataset])


def doctor(
    url: str | None = None,
    access: Access | None = None,
    *,
    cache: str | None = None,
    shards: int = 8,
    seed: int = 0,
    workers: int | None = None,
) -> Doctor:
    """Look at this machine, and at a data set and the way to it.

    Args:
        url: The data set; None for the machine alone.
        access: How its store is reached.
        cache: The folder that shards will be kept in; None for the temporary folder.
        shards: How many shards are read, drawn at random, to measure the store.
        seed: Which ones.
        workers: How many are read at once.

    Returns:
        What was found. A data set that can't be read is a finding, not an error.
    """
    here = machine(cache)
    if url is None:
        return Doctor(None, here)
    start = time.perf_counter()
    try:
        place = open_place(url, access)
    except (OSError, ValueError, ImportError, _store_error()) as exc:
        return Doctor(url, here, [Check("index", str(exc), "error", _hint(exc))])
    took = time.perf_counter() - start
    try:
        link = _link(place, shards, seed, workers or default_workers())
    except (OSError, ValueError, _store_error()) as exc:
        error = Check("shards", str(exc), "error", f"shardstream verify {url} says what is missing")
        return Doctor(url, here, [*_dataset(place, took, cache), error])
    return Doctor(url, here, [*_dataset(place, took, cache), *_judge(place, link)], link)


def _store_error() -> type[Exception]:
    from streaming.storage import StoreError

    return StoreError


def _hint(exc: BaseException) -> str:
    if isinstance(exc, PermissionError):
        return "docs/storage.md says where credentials are looked for"
    return "shardstream ls shows what is there"


def _dataset(place: Place, took: float, cache: str | None) -> Iterator[Check]:
    index = place.index
    yield Check("index", f"{len(place.data):,} bytes in {took * 1000:.0f} ms, {len(index)} shards")
    if not index.num_samples:
        yield Check("samples", "none", "error", "there is nothing to stream")
        return
    yield _shard_size(place)
    yield _hashes(place)
    unsafe = sorted({e for s in index.schemas for e in s.get("column_encodings", ()) if e == "pkl"})
    if unsafe:
        advice = "reading it runs code of whoever wrote it: write json or an ndarray instead"
        yield Check("encodings", ", ".join(unsafe), "warning", advice)
    if place.root is None:
        yield _room(place, cache)


def _shard_size(place: Place) -> Check:
    sizes = place.index.raw_bytes
    typical = float(np.median(sizes))
    value = f"{typical / _MIB:.2f} MiB (median)"
    if typical > 512 * _MIB:
        advice = "a first sample waits for a whole shard: shardstream reshard --size-limit 64mb"
        return Check("shard size", value, "warning", advice)
    if typical < _MIB and len(sizes) > 1000:
        advice = "many small files are slow to fetch: shardstream reshard --size-limit 64mb"
        return Check("shard size", value, "warning", advice)
    return Check("shard size", value)


def _hashes(place: Place) -> Check:
    names = sorted({name for schema in place.index.schemas for name in schema["hashes"]})
    if names:
        return Check("hashes", ", ".join(names))
    advice = "damaged bytes could go unnoticed: shardstream reshard --hash xxh64, or write with it"
    return Check("hashes", "none", "warning", advice)


def _room(place: Place, cache: str | None) -> Check:
    import tempfile

    path = cache or tempfile.gettempdir()
    free, size = free_bytes(path), int(place.index.raw_bytes.sum())
    value = f"{size / (1 << 30):.2f} GiB, {free / (1 << 30):.2f} GiB free at {path}"
    if size > 0.9 * free:
        advice = f"it does not fit: cache_limit='{int(0.8 * free / _MIB)}mb'"
        return Check("room for it", value, "warning", advice)
    return Check("room for it", value)


def _link(place: Place, count: int, seed: int, workers: int) -> Link | None:
    """Read some shards one by one, and some at once."""
    total = len(place.index)
    count = min(count, total)
    if not count:
        return None
    chosen = np.random.default_rng(seed).permutation(total)[:count].tolist()
    files = [_stored(place, shard) for shard in chosen]
    # What was read once may come faster again, so that no file is read twice if there are enough.
    half = files[: max(1, len(files) // 2)]
    rest = files[len(half) :] or half
    waits = [_first_byte(place, info) for info in half]
    begun = time.perf_counter()
    size = sum(receive(place.store, info.basename, (), place.access).bytes for info in half)
    one = size / max(time.perf_counter() - begun, 1e-9)
    start = time.perf_counter()
    connections = min(workers, len(rest))

    def read(info: FileInfo) -> int:
        return receive(place.store, info.basename, (), place.access).bytes

    many_bytes = sum(ahead(read, rest, connections))
    many = many_bytes / max(time.perf_counter() - start, 1e-9)
    median, slowest = float(np.median(waits)), max(waits)
    return Link(count, size + many_bytes, median, slowest, one, many, connections)


def _stored(place: Place, shard: int) -> FileInfo:
    raw, zipped = place.index.files(shard)[-1]
    if zipped is not None and (place.root is None or place.store.exists(zipped.basename)):
        return zipped
    return raw


def _first_byte(place: Place, info: FileInfo) -> float:
    start = time.perf_counter()
    what = f"reading {place.store.url_of(info.basename)}"
    if info.bytes:
        place.access.retry.call(lambda: place.store.get_range(info.basename, 0, 1), what)
    return time.perf_counter() - start


def _judge(place: Place, link: Link | None) -> Iterator[Check]:
    if link is None:
        return
    value = f"{link.latency_s * 1000:.1f} ms median, {link.slowest_s * 1000:.1f} ms at most"
    far = link.latency_s > 0.5
    advice = "the store is far away: read from one in this region, or raise predownload"
    yield Check("latency", value, "warning" if far else "ok", advice if far else "")
    one, many = link.one_bytes_per_s / _MIB, link.many_bytes_per_s / _MIB
    value = f"{one:.1f} MiB/s by one, {many:.1f} MiB/s by {link.connections} connections"
    slow = many < 20 and place.root is None
    advice = (
        "a slow way: compress the shards (shardstream reshard --compression zstd), and keep the "
        "cache between runs (local=)"
    )
    yield Check("bandwidth", value, "warning" if slow else "ok", advice if slow else "")
    zipped = any(schema["compression"] for schema in place.index.schemas)
    if zipped and usable_cores() < 4 and many > 200:
        advice = "decompression will be what limits reading: uncompressed shards may be faster"
        yield Check("compression", "few cores for a fast store", "ok", advice)
