"""The shuffle `py1e`: every sample moves by a random way, as far as its shard is spread."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints
from streaming.order.shuffle.spans import lay_out, skip_shuffled, write_shuffled

_CHUNK = 1 << 17
"""Samples whose moves are drawn before those that can't be overtaken any more are settled."""
_BUCKET = 1 << 15
"""Width of the buckets that moved samples are sorted in: a sort in the CPU's cache."""
_MANY = 1 << 20
"""Samples of a node from which on threads are worth their start."""
_PENDING = 16
"""Chunks, or buckets, that wait for a thread, at most."""

_FIRST = 1 << 22
"""Samples that are told of as soon as they are settled, while the others are still moved about."""

Moved = tuple[NDArray[np.float64], NDArray[Any]]
"""Samples and where they moved to, in the order in which they stood before."""
OnFirst = Callable[[NDArray[Any]], None]
"""Takes the first samples of a permutation."""


def draw_py1e(
    sizes: Ints,
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Spread each shard's samples over about `block_size` places of its canonical node.

    Shards come and go one after the other, so that downloads are balanced over time.

    Warns:
        UserWarning: a shard is larger than the block that was drawn for it, so that its samples
            don't mix with other shards'.
    """
    return draw_py1e_of(
        range(num_canonical_nodes), sizes, num_canonical_nodes, seed, epoch, block_size, dtype
    )


def draw_py1e_of(
    wanted: Sequence[int],
    sizes: Ints,
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int,
    dtype: np.dtype[Any],
    on_first: OnFirst | None = None,
) -> NDArray[Any]:
    """The parts of `draw_py1e`'s permutation that belong to some canonical nodes, joined.

    For the others, up to the last one wanted, random numbers are drawn, but nothing is kept.

    Args:
        wanted: the canonical nodes, in rising order.
        sizes: samples of each shard.
        num_canonical_nodes: canonical nodes in all.
        seed: seed of the whole training run.
        epoch: number of the epoch, from 0.
        block_size: samples over which a shard's are spread.
        dtype: type of the result.
        on_first: called with the first samples of the result, in another thread and long before the
            others are settled; not called where there are few.
    """
    rng = np.random.default_rng(seed + epoch)
    spans = lay_out(sizes, num_canonical_nodes, seed, rng)
    counts = np.diff(spans.node_bounds)
    samples = np.empty(int(counts[list(wanted)].sum()), dtype)
    oversized = False
    last, chosen = 0, set(wanted)
    for node in range(max(wanted, default=-1) + 1):
        begins, span_sizes = spans.of_node(node)
        if node in chosen:
            of_node = samples[last : last + int(counts[node])]
            last += len(of_node)
            write_shuffled(rng, begins, span_sizes, of_node)
            oversized |= _move(rng, of_node, span_sizes, block_size, on_first)
            on_first = None  # they were the first node's
        else:
            skip_shuffled(rng, span_sizes)
            for _, small in _draw_shifts(rng, span_sizes, block_size):
                oversized |= small
    if oversized:
        warnings.warn(
            f"Some shards have more samples than a shuffle block of about {block_size}; they are "
            "shuffled by themselves. A larger `shuffle_block_size` mixes them with others.",
            stacklevel=4,
        )
    return samples


def _draw_shifts(
    rng: np.random.Generator, sizes: list[int], block_size: int
) -> Iterator[tuple[NDArray[np.float64], bool]]:
    """How far each sample of each span of a node moves, and whether it is larger than its block."""
    shortest, past_longest = int(0.75 * block_size), int(1.25 * block_size)
    left = sum(sizes)
    first = 0
    for size in sizes:
        spread = int(rng.integers(shortest, past_longest))
        cut = max(0.0, (spread - size) / 2)
        left -= size
        yield rng.uniform(max(-cut, -first), min(cut, left), size), spread < size
        first += size


def _move(
    rng: np.random.Generator,
    samples: NDArray[Any],
    sizes: list[int],
    block_size: int,
    on_first: OnFirst | None = None,
) -> bool:
    """Move a node's samples about, in place; say whether a span was larger than its block.

    Sorting all samples by the places that they move to would be most of the work. But none moves
    farther than `reach`, so that they are thrown into buckets as they are drawn, and a bucket is
    sorted once nothing drawn later can fall into it.
    """
    reach = max(0.0, (int(1.25 * block_size) - 1 - min(sizes)) / 2)
    oversized = False
    with _Buckets(samples, on_first) as buckets:
        first = last = 0
        shifts = []
        for shift, small in _draw_shifts(rng, sizes, block_size):
            oversized |= small
            shifts.append(shift)
            last += len(shift)
            if last - first >= _CHUNK:
                buckets.add(shifts, first, last - reach)
                first, shifts = last, []
        buckets.add(shifts, first, np.inf)
    return oversized


class _Buckets:
    """Moved samples, sorted by their places a bucket at a time and written to where they came from.

    Equal places keep the samples' order, so that the result is the same on every machine. Of many
    samples, chunks are thrown into buckets in one thread and buckets sorted in others, while more
    samples are drawn.

    Args:
        out: The samples, in the order in which they stood before.
        on_first: Called with the first samples when they are where they belong.
    """

    def __init__(self, out: NDArray[Any], on_first: OnFirst | None = None) -> None:
        self.out = out
        self.on_first = on_first if len(out) > 2 * _FIRST else None
        many = len(out) >= _MANY
        self.thrower, self.sorters = _Threads(1 if many else 0), _Threads(2 if many else 0)
        self.written = 0
        self.next_bucket = 0
        self.pieces: dict[int, list[Moved]] = {}

    def __enter__(self) -> _Buckets:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until all is written."""
        self.thrower.finish()
        self.sorters.finish()

    def add(self, shifts: list[NDArray[np.float64]], first: int, limit: float) -> None:
        """Take the samples that stand from `first` on, behind all that were added before.

        Args:
            shifts: How far each of them moves, in pieces.
            first: Where the first of them stands.
            limit: Nothing added later falls below this place.
        """
        self.thrower.do(self._throw, shifts, first, limit)

    def _throw(self, shifts: list[NDArray[np.float64]], first: int, limit: float) -> None:
        if shifts:
            places = np.concatenate(shifts)
            places += np.arange(first, first + len(places))
            self._sort_in(places, self.out[first : first + len(places)])
        self._settle(limit)

    def _sort_in(self, places: NDArray[np.float64], samples: NDArray[Any]) -> None:
        homes = places * (1 / _BUCKET)
        homes -= self.next_bucket
        num_buckets = int(homes.max(initial=0)) + 1
        # So narrow a type is sorted by counting.
        order = np.argsort(homes.astype(np.min_scalar_type(num_buckets)), kind="stable")
        places, samples = places.take(order), samples.take(order)
        bounds = np.arange(self.next_bucket + 1, self.next_bucket + num_buckets) * float(_BUCKET)
        begin = 0
        # Within a bucket places are in no order, but all are on one side of each bound.
        for bucket, end in enumerate([*places.searchsorted(bounds).tolist(), len(places)]):
            if end > begin:
                pieces = self.pieces.setdefault(self.next_bucket + bucket, [])
                pieces.append((places[begin:end], samples[begin:end]))
            begin = end

    def _settle(self, limit: float) -> None:
        """Sort and write the buckets that end by `limit`."""
        while self.pieces and (self.next_bucket + 1) * _BUCKET <= limit:
            pieces = self.pieces.pop(self.next_bucket, [])
            end = self.written + sum(len(samples) for _, samples in pieces)
            # What stands here was thrown into buckets before, so that it may be overwritten.
            begin, out = self.next_bucket * _BUCKET, self.out[self.written : end]
            self.sorters.do(_sort, pieces, begin, out)
            self.written = end
            self.next_bucket += 1
        if self.on_first is not None and self.written >= _FIRST:
            self.sorters.wait()
            self.on_first(self.out[: self.written])
            self.on_first = None


class _Threads:
    """Threads that take some tasks at a time; with none of them a task is done at once."""

    def __init__(self, number: int) -> None:
        self.pool = ThreadPoolExecutor(number) if number else None
        self.pending: deque[Future[None]] = deque()

    def do(self, task: Callable[..., None], *arguments: Any) -> None:
        """Have a task done, once there are not too many that wait."""
        if self.pool is None:
            task(*arguments)
            return
        self.pending.append(self.pool.submit(task, *arguments))
        if len(self.pending) > _PENDING:
            self.pending.popleft().result()

    def wait(self) -> None:
        """Wait until all tasks so far are done."""
        while self.pending:
            self.pending.popleft().result()

    def finish(self) -> None:
        """Wait until all tasks are done, and end the threads."""
        if self.pool is not None:
            with self.pool:
                self.wait()


def _sort(pieces: list[Moved], bucket_begin: int, out: NDArray[Any]) -> None:
    """Write a bucket's samples by their places."""
    for places, samples in _joined(pieces):
        samples.take(_argsort(places, bucket_begin), out=out, mode="clip")


def _joined(pieces: list[Moved]) -> list[Moved]:
    """The pieces as one, if there are any."""
    if len(pieces) < 2:
        return pieces
    places, samples = zip(*pieces, strict=True)
    return [(np.concatenate(places), np.concatenate(samples))]


def _argsort(places: NDArray[np.float64], bucket_begin: int) -> NDArray[np.intp]:
    """The stable order of places that all lie in the bucket which begins at `bucket_begin`.

    A sort by counting, of the places in fixed point, leaves little to do for a stable sort that is
    fast where nearly everything is in order.
    """
    steps = ((places - bucket_begin) * ((1 << 16) / _BUCKET)).astype(np.uint16)
    nearly = np.argsort(steps, kind="stable")
    return nearly.take(np.argsort(places.take(nearly), kind="stable"))
