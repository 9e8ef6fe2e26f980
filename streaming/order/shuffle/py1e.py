"""The shuffle `py1e`: every sample moves by a random way, as far as its shard is spread."""

from __future__ import annotations

import warnings
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints
from streaming.order.shuffle.spans import lay_out, write_shuffled

_CHUNK = 1 << 17
"""Samples whose moves are drawn before those that can't be overtaken any more are settled."""
_BUCKET = 1 << 14
"""Width of the buckets that moved samples are sorted in: a sort in the CPU's cache."""
_MANY = 1 << 20
"""Samples of a node from which on threads are worth their start."""
_PENDING = 64
"""Buckets that wait to be sorted, at most."""

Moved = tuple[NDArray[np.float64], NDArray[Any]]
"""Samples and where they moved to, in the order in which they stood before."""


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
    rng = np.random.default_rng(seed + epoch)
    spans = lay_out(sizes, num_canonical_nodes, seed, rng)
    samples = np.empty(int(sizes.sum()), dtype)
    bounds = spans.node_bounds
    oversized = False
    for node in range(num_canonical_nodes):
        begins, span_sizes = spans.of_node(node)
        of_node = samples[bounds[node] : bounds[node + 1]]
        write_shuffled(rng, begins, span_sizes, of_node)
        oversized |= _move(rng, of_node, span_sizes, block_size)
    if oversized:
        warnings.warn(
            f"Some shards have more samples than a shuffle block of about {block_size}; they are "
            "shuffled by themselves. A larger `shuffle_block_size` mixes them with others.",
            stacklevel=4,
        )
    return samples


def _move(
    rng: np.random.Generator, samples: NDArray[Any], sizes: list[int], block_size: int
) -> bool:
    """Move a node's samples about, in place; say whether a span was larger than its block.

    Sorting all samples by the places that they move to would be most of the work. But none moves
    farther than `reach`, so that they are thrown into buckets as they are drawn, and a bucket is
    sorted once nothing drawn later can fall into it.
    """
    shortest, past_longest = int(0.75 * block_size), int(1.25 * block_size)
    reach = max(0.0, (past_longest - 1 - min(sizes)) / 2)
    num_samples = len(samples)
    buckets = _Buckets(samples)
    oversized = False
    first = last = drawn = 0
    while drawn < len(sizes):
        shifts = []
        while drawn < len(sizes) and last - first < _CHUNK:
            size = sizes[drawn]
            spread = int(rng.integers(shortest, past_longest))
            oversized |= spread < size
            cut = max(0.0, (spread - size) / 2)
            low, high = max(-cut, -last), min(cut, num_samples - last - size)
            shifts.append(rng.uniform(low, high, size))
            last += size
            drawn += 1
        places = np.arange(first, last, dtype=np.float64)
        places += np.concatenate(shifts)
        buckets.add(places, samples[first:last])
        buckets.settle(last - reach if drawn < len(sizes) else np.inf)
        first = last
    buckets.finish()
    return oversized


class _Buckets:
    """Moved samples, sorted by their places a bucket at a time and written to where they came from.

    Equal places keep the samples' order, so that the result is the same on every machine. Of many
    samples the buckets are sorted in threads of their own, while more samples are drawn.
    """

    def __init__(self, out: NDArray[Any]) -> None:
        self.out = out
        self.threads = ThreadPoolExecutor(2) if len(out) >= _MANY else None
        self.pending: deque[Future[None]] = deque()
        self.written = 0
        self.next_bucket = 0
        self.pieces: dict[int, list[Moved]] = {}

    def add(self, places: NDArray[np.float64], samples: NDArray[Any]) -> None:
        """Take samples which stood behind all that were added before."""
        homes = (places * (1 / _BUCKET)).astype(np.int64)
        homes -= self.next_bucket
        counts = np.bincount(homes)
        # So narrow a type is sorted by counting.
        order = np.argsort(homes.astype(np.min_scalar_type(len(counts))), kind="stable")
        places, samples = places[order], samples[order]
        ends = np.cumsum(counts).tolist()
        for bucket in np.flatnonzero(counts).tolist():
            own = slice(ends[bucket] - int(counts[bucket]), ends[bucket])
            pieces = self.pieces.setdefault(self.next_bucket + bucket, [])
            pieces.append((places[own], samples[own]))

    def settle(self, limit: float) -> None:
        """Sort and write the buckets that end by `limit`, as nothing will fall below it."""
        while self.pieces and (self.next_bucket + 1) * _BUCKET <= limit:
            pieces = self.pieces.pop(self.next_bucket, [])
            end = self.written + sum(len(samples) for _, samples in pieces)
            # What stands here was thrown into buckets before, so that it may be overwritten.
            begin, out = self.next_bucket * _BUCKET, self.out[self.written : end]
            if self.threads is None:
                _sort(pieces, begin, out)
            else:
                self.pending.append(self.threads.submit(_sort, pieces, begin, out))
            if len(self.pending) > _PENDING:
                self.pending.popleft().result()
            self.written = end
            self.next_bucket += 1

    def finish(self) -> None:
        """Wait until all is written."""
        if self.threads is not None:
            for task in self.pending:
                task.result()
            self.threads.shutdown()


def _sort(pieces: list[Moved], bucket_begin: int, out: NDArray[Any]) -> None:
    """Write a bucket's samples by their places."""
    for places, samples in _joined(pieces):
        out[...] = samples[_argsort(places, bucket_begin)]


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
    return nearly[np.argsort(places[nearly], kind="stable")]
