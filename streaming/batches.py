"""Batches made column by column, equal to default-collated ones, without making the samples.

Samples are gathered a stretch of several batches at a time, shard by shard, so that the cost of a
shard is shared by the samples that a stretch takes from it; then each batch is cut out of it, into
memory of its own. Where batches share their memory, large samples are copied straight into it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from time import perf_counter_ns
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from streaming.collate import collate_like_torch
from streaming.format.reader import Reader
from streaming.turns import sizes

STRETCH_BYTES = 4 << 20
"""How much data is gathered at once, when nothing has to be waited for."""
MAX_BATCHES = 64
"""How many batches are gathered at once."""

LARGE_BYTES = 1 << 10
"""Samples with so much in columns of fixed size are copied straight to their batches, where those
are laid out together. One shard's samples for one batch alone are too few to be worth a call."""
ALIGNMENT = 64
"""Where arrays that are laid out together begin: at multiples of so many bytes."""

TIMED = 8
"""One of so many batches is timed in being made, and stands for all of them."""

SLOW_S = 0.05
"""A batch that takes longer has waited for something, or its consumer is the slower one."""

Column = NDArray[Any] | list[Any]
Columns = dict[str, Column]
Layouts = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]] | None]
Collate = Callable[[Mapping[str, Column]], Any]


class Samples(Protocol):
    """What the batches are made of."""

    def __getitem__(self, at: int) -> Any:
        """A sample by its number."""

    def locate(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The shard of each sample, and its place in it."""

    def expect(self, shards: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        """Hear which samples are going to be read."""

    def shard_reader(self, shard: int) -> Reader:
        """A shard, open for reading."""

    def peek(self, at: int) -> Any:
        """A sample by its number, which does not count as read."""


class BatchMaker:
    """Makes batches of a dataset's samples, equal to default-collated ones.

    Args:
        samples: The dataset.
        sample_bytes: Bytes that a sample takes on average.
        memory: Gives the memory for the arrays of some batches, given its size in bytes. None for
            batches that own theirs, each its own. Where it is given, equally many batches are made
            at once by everyone, see :func:`streaming.turns.sizes`.
    """

    def __init__(
        self,
        samples: Samples,
        sample_bytes: float,
        memory: Callable[[int], NDArray[np.uint8]] | None = None,
    ) -> None:
        self._samples = samples
        self._sample_bytes = sample_bytes
        self._memory = memory
        self._collates: dict[tuple[Any, ...], Collate | None] = {}
        self.making = 0
        """Nanoseconds spent in reading what batches are made of, and in waiting for it."""
        self.collating = 0
        """Nanoseconds spent in collating, which is not reading."""

    def batches(self, batches: Sequence[NDArray[np.int64]]) -> Iterator[Any]:
        """Collate each of some batches of sample ids.

        Errors come with the batch that they belong to, and are those that collating its samples
        raises.
        """
        if not batches:
            return
        begun = perf_counter_ns()
        made = self._make(batches)
        self.making += perf_counter_ns() - begun
        for at, ids in enumerate(batches):
            if made is None:
                batch = self._by_sample(ids)
            elif at % TIMED:
                batch = self._cut_out(made, at, ids)
            else:
                batch = self._cut_out(made, at, ids, stands_for=min(TIMED, len(batches) - at))
            yield batch

    def _cut_out(
        self, made: "_Laid | _Stretch", at: int, ids: NDArray[np.int64], stands_for: int = 0
    ) -> Any:
        """One of the batches that were gathered; its times are those of so many."""
        begun = perf_counter_ns() if stands_for else 0
        columns = made.columns(at)
        collate = self._collate(columns, ids)
        if collate is None:
            return self._by_sample(ids)
        if not stands_for:
            return collate(columns)
        cut = perf_counter_ns()
        batch = collate(columns)
        self.making += stands_for * (cut - begun)
        self.collating += stands_for * (perf_counter_ns() - cut)
        return batch

    def stretches(
        self, blocks: Iterator[NDArray[np.int64]], batch_size: int, drop_last: bool
    ) -> Iterator[list[NDArray[np.int64]]]:
        """Cut blocks of sample ids into batches, as many together as are worth gathering at once.

        One batch at first, and more and more while nothing has to be waited for: the first batch
        should not wait for the shards of others.
        """
        batches = _cut_into_batches(blocks, batch_size, drop_last)
        if self._memory is not None:
            yield from _steadily(batches, batch_size * self._sample_bytes)
            return
        stretch = max(1, int(STRETCH_BYTES / max(1.0, self._sample_bytes)))
        most = max(1, min(MAX_BATCHES, stretch // batch_size))
        together = 1
        waiting: list[NDArray[np.int64]] = []
        for batch in batches:
            waiting.append(batch)
            if len(waiting) == together:
                started = time.monotonic()
                yield waiting
                waited = time.monotonic() - started > SLOW_S * together
                together = 1 if waited else min(most, 2 * together)
                waiting = []
        if waiting:
            yield waiting

    def _by_sample(self, ids: NDArray[np.int64]) -> Any:
        begun = perf_counter_ns()
        samples = [self._samples[i] for i in ids.tolist()]
        read = perf_counter_ns()
        batch = collate_like_torch(samples)
        self.making += read - begun
        self.collating += perf_counter_ns() - read
        return batch

    def _make(self, batches: Sequence[NDArray[np.int64]]) -> "_Laid | _Stretch | None":
        """Gather batches; None if that can't be done with all of them at once."""
        ids = np.concatenate(batches)
        bounds = np.cumsum([0, *map(len, batches)])
        try:
            shards, places = self._samples.locate(ids)
            self._samples.expect(shards, places)
            order = np.argsort(shards, kind="stable")
            layouts = self._samples.shard_reader(int(shards[order[0]])).column_layouts()
            if self._memory is not None and _is_large(layouts):
                laid = _Laid(layouts, bounds, self._memory)
                return laid if laid.gather(self._samples, shards, places, order) else None
            stretch = _Stretch(layouts, bounds, order, self._memory)
            return stretch if stretch.gather(self._samples, shards, places) else None
        except Exception:
            # Which batch it belongs to, and whether it is that batch's first, samples tell.
            return None

    def _collate(self, columns: Mapping[str, Column], ids: NDArray[np.int64]) -> Collate | None:
        key = tuple(
            (name, column.dtype, column.shape[1:]) if isinstance(column, np.ndarray) else name
            for name, column in columns.items()
        )
        if key not in self._collates:
            self._collates[key] = self._compile(columns, ids)
        return self._collates[key]

    def _compile(self, columns: Mapping[str, Column], ids: NDArray[np.int64]) -> Collate | None:
        """How to collate such columns, found out on the first; None if it takes the samples."""
        try:
            sample = self._samples.peek(int(ids[0]))
            if list(sample) != list(columns):
                return None
            for name, column in columns.items():
                if isinstance(column, np.ndarray) and not _same(
                    collate_like_torch([sample[name]]), torch.from_numpy(column[:1])
                ):
                    return None
        except Exception:
            return None
        return _collate_columns


def _collate_columns(columns: Mapping[str, Column]) -> dict[str, Any]:
    return {name: _collate_column(column) for name, column in columns.items()}


def _collate_column(column: Column) -> Any:
    if isinstance(column, np.ndarray):
        return torch.from_numpy(column)
    if isinstance(column[0], (str, bytes)):
        return column  # as the default collate does, which looks at the first value, too
    return collate_like_torch(column)


class _Laid:
    """Batches whose samples are copied straight to where they belong.

    Args:
        layouts: The columns.
        bounds: Where each batch begins among all samples, and where the last one ends.
        memory: Gives the memory for all batches together.
    """

    def __init__(
        self,
        layouts: Layouts,
        bounds: NDArray[np.int64],
        memory: Callable[[int], NDArray[np.uint8]],
    ) -> None:
        self._bounds = bounds.tolist()
        self._columns = _lay_out(layouts, [self._bounds[-1]], memory)[0]

    def gather(
        self,
        samples: Samples,
        shards: NDArray[np.int64],
        places: NDArray[np.int64],
        order: NDArray[np.int64],
    ) -> bool:
        """Copy the samples; False if they don't have these columns."""
        for at in _runs(shards, order):
            reader = samples.shard_reader(int(shards[at[0]]))
            if not reader.batch_into(places[at], self._columns, at):
                return False
        return True

    def columns(self, at: int) -> Columns:
        """A batch's columns."""
        start, stop = self._bounds[at], self._bounds[at + 1]
        return {name: column[start:stop] for name, column in self._columns.items()}


class _Stretch:
    """Batches that are cut out of a stretch, in which samples lie shard by shard.

    Args:
        layouts: The columns.
        bounds: Where each batch begins among all samples, and where the last one ends.
        order: The samples, shard by shard.
        memory: Gives the memory for all batches together; None for one array each.
    """

    def __init__(
        self,
        layouts: Layouts,
        bounds: NDArray[np.int64],
        order: NDArray[np.int64],
        memory: Callable[[int], NDArray[np.uint8]] | None,
    ) -> None:
        self._layouts = layouts
        self._bounds = bounds.tolist()
        self._order = order
        self._where = np.empty_like(order)
        self._where[order] = np.arange(len(order))
        self._columns = _lay_out(layouts, [len(order)], None)[0]
        self._out: list[Columns] | None = None
        if memory is not None:
            self._out = _lay_out(layouts, np.diff(bounds).tolist(), memory)

    def gather(
        self, samples: Samples, shards: NDArray[np.int64], places: NDArray[np.int64]
    ) -> bool:
        """Read the samples; False if they don't have these columns."""
        start = 0
        for at in _runs(shards, self._order):
            reader = samples.shard_reader(int(shards[at[0]]))
            stop = start + len(at)
            if not reader.batch_into(places[at], self._columns, slice(start, stop)):
                return False
            start = stop
        return True

    def columns(self, at: int) -> Columns:
        """A batch's columns."""
        where = self._where[self._bounds[at] : self._bounds[at + 1]]
        listed: list[int] = where.tolist()
        out = None if self._out is None else self._out[at]
        columns: Columns = {}
        for name, column in self._columns.items():
            if isinstance(column, list):
                columns[name] = _pick(column, listed)
            elif out is None:
                columns[name] = column.take(where, axis=0)
            else:
                # `clip` writes without a buffer in between; nothing is out of range.
                array: Any = out[name]
                columns[name] = column.take(where, axis=0, out=array, mode="clip")
        return columns


def _pick(values: list[Any], places: list[int]) -> list[Any]:
    if len(places) == 1:
        return [values[places[0]]]
    return list(itemgetter(*places)(values))


def _runs(shards: NDArray[np.int64], order: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The samples of each shard."""
    return np.split(order, np.flatnonzero(np.diff(shards[order])) + 1)


def _row_bytes(layout: tuple[np.dtype[Any], tuple[int, ...]]) -> int:
    dtype, shape = layout
    return dtype.itemsize * int(np.prod(shape, dtype=np.int64))


def _lay_out(
    layouts: Layouts, counts: Sequence[int], memory: Callable[[int], NDArray[np.uint8]] | None
) -> list[Columns]:
    """Columns for so many samples each, their arrays in memory of their own or in what is given."""
    if memory is None:
        return [
            {
                name: [None] * count if layout is None else np.empty((count, *layout[1]), layout[0])
                for name, layout in layouts.items()
            }
            for count in counts
        ]
    steps = [
        {name: _aligned(count * _row_bytes(layout)) for name, layout in layouts.items() if layout}
        for count in counts
    ]
    space = memory(sum(sum(step.values()) for step in steps))
    parts, at = [], 0
    for count, step in zip(counts, steps, strict=True):
        part: Columns = {}
        for name, layout in layouts.items():
            if layout is None:
                part[name] = [None] * count
            else:
                part[name] = np.ndarray((count, *layout[1]), layout[0], space, at)
                at += step[name]
        parts.append(part)
    return parts


def _is_large(layouts: Layouts) -> bool:
    return sum(_row_bytes(layout) for layout in layouts.values() if layout) >= LARGE_BYTES


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _steadily(
    batches: Iterator[NDArray[np.int64]], batch_bytes: float
) -> Iterator[list[NDArray[np.int64]]]:
    for size in sizes(batch_bytes):
        together = list(islice(batches, size))
        if together:
            yield together
        if len(together) < size:
            return


def _cut_into_batches(
    blocks: Iterator[NDArray[np.int64]], size: int, drop_last: bool
) -> Iterator[NDArray[np.int64]]:
    left = np.empty(0, np.int64)
    for block in blocks:
        ids = np.concatenate([left, block]) if len(left) else block
        whole = len(ids) - len(ids) % size
        for start in range(0, whole, size):
            yield ids[start : start + size]
        left = ids[whole:]
    if len(left) and not drop_last:
        yield left


def _same(expected: Any, made: torch.Tensor) -> bool:
    return (
        isinstance(expected, torch.Tensor)
        and expected.dtype == made.dtype
        and expected.shape == made.shape
    )
