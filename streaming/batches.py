"""Batches made column by column, equal to default-collated ones, without making the samples.

Samples are gathered a stretch of several batches at a time, shard by shard, so that the cost of a
shard is shared by the samples that a stretch takes from it; then each batch is cut out of it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from streaming.format.reader import Reader

STRETCH_BYTES = 8 << 20
"""How much data is gathered at once, when nothing has to be waited for."""
MAX_BATCHES = 64
"""How many batches are gathered at once."""

SLOW_S = 0.05
"""A batch that takes longer has waited for something, or its consumer is the slower one."""

Column = NDArray[Any] | list[Any]


class Samples(Protocol):
    """What the batches are made of."""

    def __getitem__(self, at: int) -> Any:
        """A sample by its number."""

    def open_shards(self, ids: NDArray[np.int64]) -> Iterator[tuple[NDArray[Any], Reader, Any]]:
        """Of each shard: where in ``ids`` its samples are, its reader, their places in it."""


class BatchMaker:
    """Makes batches of a dataset's samples, equal to default-collated ones.

    Args:
        samples: The dataset.
        sample_bytes: Bytes that a sample takes on average.
    """

    def __init__(self, samples: Samples, sample_bytes: float) -> None:
        self._samples = samples
        self._stretch = max(1, int(STRETCH_BYTES / max(1.0, sample_bytes)))
        self._collates: dict[tuple[Any, ...], Callable[[Mapping[str, Column]], Any] | None] = {}

    def batches(self, batches: Sequence[NDArray[np.int64]]) -> Iterator[Any]:
        """Collate each of some batches of sample ids.

        Errors come with the batch that they belong to, and are those that collating its samples
        raises.
        """
        stretch = self._gather(np.concatenate(batches)) if len(batches) else None
        start = 0
        for ids in batches:
            stop = start + len(ids)
            yield self._by_sample(ids) if stretch is None else self._cut(stretch, start, stop, ids)
            start = stop

    def stretches(
        self, blocks: Iterator[NDArray[np.int64]], batch_size: int, drop_last: bool
    ) -> Iterator[list[NDArray[np.int64]]]:
        """Cut blocks of sample ids into batches, as many together as are worth gathering at once.

        One batch at first, and more and more while nothing has to be waited for: the first batch
        should not wait for the shards of others.
        """
        most = max(1, min(MAX_BATCHES, self._stretch // batch_size))
        together = 1
        waiting: list[NDArray[np.int64]] = []
        for batch in _cut_into_batches(blocks, batch_size, drop_last):
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
        return default_collate([self._samples[i] for i in ids.tolist()])

    def _gather(self, ids: NDArray[np.int64]) -> dict[str, Column] | None:
        """The columns of some samples, in their order; None if they don't go together."""
        columns: dict[str, Column] = {}
        try:
            for positions, reader, places in self._samples.open_shards(ids):
                part = reader.batch(places)
                if not columns:
                    columns = {name: _empty(column, len(ids)) for name, column in part.items()}
                if not _fill(columns, part, positions):
                    return None
        except Exception:
            # Which batch it belongs to, and whether it is that batch's first, samples tell.
            return None
        return columns

    def _cut(
        self, stretch: Mapping[str, Column], start: int, stop: int, ids: NDArray[np.int64]
    ) -> Any:
        columns = {name: column[start:stop] for name, column in stretch.items()}
        key = tuple(
            (name, column.dtype.str, column.shape[1:]) if isinstance(column, np.ndarray) else name
            for name, column in columns.items()
        )
        if key not in self._collates:
            self._collates[key] = self._compile(columns, ids)
        collate = self._collates[key]
        return self._by_sample(ids) if collate is None else collate(columns)

    def _compile(
        self, columns: Mapping[str, Column], ids: NDArray[np.int64]
    ) -> Callable[[Mapping[str, Column]], Any] | None:
        """How to collate such columns, found out on the first; None if it takes the samples."""
        arrays = [name for name, column in columns.items() if isinstance(column, np.ndarray)]
        try:
            sample = self._samples[int(ids[0])]
            if list(sample) != list(columns):
                return None
            for name in arrays:
                if not _same(default_collate([sample[name]]), torch.from_numpy(columns[name][:1])):
                    return None
        except Exception:
            return None

        def collate(columns: Mapping[str, Column]) -> Any:
            return {
                name: torch.from_numpy(column.copy())
                if isinstance(column, np.ndarray)
                else default_collate(column)
                for name, column in columns.items()
            }

        return collate


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


def _empty(column: Column, count: int) -> Column:
    if isinstance(column, np.ndarray):
        return np.empty((count, *column.shape[1:]), column.dtype)
    return [None] * count


def _fill(columns: dict[str, Column], part: Mapping[str, Column], at: NDArray[Any]) -> bool:
    """Put a shard's samples into their places; False if its columns are others."""
    if columns.keys() != part.keys():
        return False
    for name, values in part.items():
        column = columns[name]
        if isinstance(values, np.ndarray) and isinstance(column, np.ndarray):
            if values.dtype != column.dtype or values.shape[1:] != column.shape[1:]:
                return False
            column[at] = values
        elif isinstance(values, list) and isinstance(column, list):
            for position, value in zip(at.tolist(), values, strict=True):
                column[position] = value
        else:
            return False
    return True


def _same(expected: Any, made: torch.Tensor) -> bool:
    return (
        isinstance(expected, torch.Tensor)
        and expected.dtype == made.dtype
        and expected.shape == made.shape
    )
