"""`shardstream bench`: how fast a data set is read here, against bare reading of its bytes."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from streaming.cli.place import Access, Place, open_place
from streaming.cli.shards import is_here
from streaming.cli.transfer import ahead, default_workers, receive
from streaming.storage import is_local

__all__ = ["Bench", "Rate", "bench"]


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast something was read."""

    what: str
    samples: int
    bytes: int
    """Of the samples, before compression."""
    seconds: float
    first_s: float | None = None
    """Until the first sample or batch came, the start of workers included."""
    complete: bool = True
    """Whether all of the data set was read, and not as much as there was time for."""

    @property
    def samples_per_s(self) -> float:
        """Samples in a second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes in a second."""
        return self.bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Bench:
    """How fast a data set is read here."""

    url: str
    batch_size: int
    workers: int
    shuffle: bool
    rates: list[Rate] = field(default_factory=list)

    @property
    def share(self) -> float | None:
        """What the loader's speed is of bare reading's."""
        bare, loader = self.rates[0], self.rates[-1]
        return loader.bytes_per_s / bare.bytes_per_s if bare.bytes_per_s else None


def bench(
    url: str,
    access: Access | None = None,
    *,
    batch_size: int = 32,
    workers: int = 2,
    seconds: float = 10.0,
    shuffle: bool = True,
    unsafe: bool = False,
) -> Bench:
    """Read a data set three ways: its bare bytes, `StreamingDataset`, `StreamingDataLoader`.

    Each way reads all of it, or as much as there is time for. What is elsewhere is fetched anew
    each time, into a temporary folder. Batches are lists of samples: nothing is collated.

    Args:
        url: The data set.
        access: How its store is reached.
        batch_size: Samples in a batch.
        workers: The loader's worker processes.
        seconds: Time for each way.
        shuffle: Whether samples come shuffled.
        unsafe: Whether encodings are read that can run code.

    Returns:
        The rates, in that order.

    Raises:
        FormatError: If a shard is damaged, or has such an encoding.
        StoreError: If something can't be fetched.
        ValueError: If there are no samples, or an argument makes no sense.
    """
    if seconds <= 0:
        raise ValueError(f"seconds is {seconds}: give more than 0")
    place = open_place(url, access)
    if not place.index.num_samples:
        raise ValueError(f"{place.url} has no samples")
    place.index.validate_safe(unsafe)
    arguments = {
        "batch_size": batch_size,
        "shuffle": shuffle,
        "allow_unsafe_types": unsafe,
        "download_timeout": place.access.timeout_s,
    }
    import streaming.dataloader  # Importing torch is not to be measured.  # noqa: F401

    rates = [
        _bare(place, seconds),
        _dataset(place, seconds, arguments),
        _loader(place, seconds, arguments, workers),
    ]
    return Bench(place.url, batch_size, workers, shuffle, rates)


def _bare(place: Place, seconds: float) -> Rate:
    """Read the files from end to end, as fast as they come, and do nothing with them."""
    index, start = place.index, time.perf_counter()

    def read(shard: int) -> tuple[int, int]:
        if time.perf_counter() - start > seconds:
            return 0, 0
        for raw, zipped in index.files(shard):
            stored = zipped if zipped is not None and _has(place, zipped.basename) else raw
            receive(place.store, stored.basename, (), place.access)
        return int(index.samples[shard]), int(index.raw_bytes[shard])

    done = list(ahead(read, range(len(index)), default_workers()))
    samples, size = (sum(one[i] for one in done) for i in (0, 1))
    elapsed = time.perf_counter() - start
    what = "the files' bytes"
    return Rate(what, samples, size, elapsed, complete=samples == index.num_samples)


def _has(place: Place, key: str) -> bool:
    return place.root is None or os.path.exists(os.path.join(place.root, key))


def _dataset(place: Place, seconds: float, arguments: dict[str, Any]) -> Rate:
    with tempfile.TemporaryDirectory(prefix="shardstream-", ignore_cleanup_errors=True) as folder:
        start = time.perf_counter()
        dataset = _open(place, folder, arguments)
        return _measure("StreamingDataset", place, dataset, _one, start, seconds)


def _loader(place: Place, seconds: float, arguments: dict[str, Any], workers: int) -> Rate:
    from streaming import StreamingDataLoader

    with tempfile.TemporaryDirectory(prefix="shardstream-", ignore_cleanup_errors=True) as folder:
        start = time.perf_counter()
        loader = StreamingDataLoader(
            _open(place, folder, arguments),
            batch_size=arguments["batch_size"],
            num_workers=workers,
            collate_fn=list,
        )
        what = f"StreamingDataLoader, {workers} workers"
        return _measure(what, place, loader, len, start, seconds)


def _one(sample: Any) -> int:
    return 1


def _open(place: Place, folder: str, arguments: dict[str, Any]) -> Any:
    from streaming import Stream, StreamingDataset

    if all(is_here(place, shard) for shard in range(len(place.index))):
        stream = Stream(local=place.root)
    else:
        options = {} if is_local(place.url) else dict(place.access.options)
        stream = Stream(remote=place.url, local=folder, storage_options=options)
    return StreamingDataset(streams=[stream], **arguments)


def _measure(
    what: str, place: Place, items: Iterable[Any], count: Any, start: float, seconds: float
) -> Rate:
    """Iterate until all has come or the time is up."""
    index, samples, first, complete = place.index, 0, None, True
    for item in items:
        samples += count(item)
        now = time.perf_counter() - start
        first = now if first is None else first
        if now > seconds:
            complete = samples >= index.num_samples
            break
    elapsed = time.perf_counter() - start
    size = round(samples * int(index.raw_bytes.sum()) / index.num_samples)
    return Rate(what, samples, size, elapsed, first, complete)
