"""Samples chosen within many shards: what NumPy's `choice` draws for one, done for many at once."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints, cumulate
from streaming.order.mixing import Words

_CHUNK = 1 << 19
"""Samples of the shards that are worked on together, so that they stay in the CPU's cache."""
_FEW = 8
"""Shards that are not worth working on together."""
_WHOLE_ABOVE = 10_000
"""NumPy shuffles shards of more samples as a whole, if it is to choose more than a 50th of them."""

_WORD = np.uint64(1 << 32)
_LOW = np.uint64((1 << 32) - 1)


def choose_sorted(rng: np.random.Generator, sizes: Ints, counts: Ints) -> Ints:
    """`np.sort(rng.choice(size, count, replace=False))` for one shard after the other.

    The numbers are drawn from `rng` one after the other as `choice` draws them, and come out the
    same, but without a call for each shard. `choice` follows R. W. Floyd's algorithm (Bentley and
    Floyd, *Programming pearls: a sample of brilliance*, 1987): of `n` to choose `c`, draw a number
    up to `j` for each `j` from `n - c` to `n - 1`, and take it, or `j` where it is taken already.
    It then draws once more for each but the first to shuffle them, which sorting undoes.

    Args:
        rng: what to draw from.
        sizes: samples that each shard has.
        counts: samples to choose of each, from 1 up and less than its size.

    Returns:
        The places of the chosen samples in their shards, rising in each, the shards end to end.

    >>> sizes, counts = np.array([10, 5]), np.array([3, 2])
    >>> choose_sorted(np.random.default_rng(0), sizes, counts).tolist()
    [5, 6, 9, 0, 4]
    """
    found = np.empty(int(counts.sum()), np.int64)
    bounds = cumulate(counts)
    for first, last, together in _stretches(sizes, counts):
        if together:
            chosen = _choose_together(rng, sizes[first:last], counts[first:last])
            found[bounds[first] : bounds[last]] = chosen
            continue
        for shard in range(first, last):
            own = found[bounds[shard] : bounds[shard + 1]]
            own[:] = rng.choice(int(sizes[shard]), len(own), replace=False)
            own.sort()
    return found


def _stretches(sizes: Ints, counts: Ints) -> list[tuple[int, int, bool]]:
    """Runs of shards that can, or can't, be worked on together."""
    can = (sizes <= _WHOLE_ABOVE) | (counts <= sizes // 50)
    can &= sizes < _CHUNK
    # A run ends where the kind changes, and where it would have more than a chunk of samples.
    chunks = np.cumsum(sizes) // _CHUNK
    ends = np.flatnonzero((np.diff(can) != 0) | (np.diff(chunks) != 0)) + 1
    cuts = [0, *ends.tolist(), len(sizes)]
    known = _is_known()
    return [
        (first, last, known and bool(can[first]) and last - first >= _FEW)
        for first, last in pairwise(cuts)
        if last > first
    ]


@lru_cache(1)
def _is_known() -> bool:
    """Whether this release of NumPy draws as it is known to, down to the generator's state."""
    sizes, counts = np.array([9, 700, 50, 20_000]), np.array([8, 650, 1, 390])
    ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
    expected = [
        np.sort(theirs.choice(size, count, replace=False))
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
    ]
    found = _choose_together(ours, sizes, counts)
    same: bool = np.array_equal(found, np.concatenate(expected))
    return same and ours.integers(1 << 30) == theirs.integers(1 << 30)


def _choose_together(rng: np.random.Generator, sizes: Ints, counts: Ints) -> Ints:
    firsts = cumulate(counts)[:-1]
    steps = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
    limits = np.repeat(sizes - counts, counts) + steps
    begins = np.repeat(cumulate(sizes)[:-1], counts)
    drawn = _draw_for_choices(rng, counts, limits, steps).astype(np.int64)
    taken = _are_taken(drawn + begins, drawn - np.repeat(sizes - counts, counts), steps)
    chosen = np.zeros(int(sizes.sum()), np.bool_)
    chosen[np.where(taken, limits, drawn) + begins] = True
    return np.flatnonzero(chosen) - begins


def _draw_for_choices(rng: np.random.Generator, counts: Ints, limits: Ints, steps: Ints) -> Words:
    """The numbers up to `limits`; those for shuffling, drawn behind each shard's, are dropped."""
    drawn_before = np.repeat(cumulate(2 * counts - 1)[:-1], counts)
    places = drawn_before + steps
    ranges = np.empty(int((2 * counts - 1).sum()), np.uint64)
    ranges[places] = limits + 1
    shuffled = steps > 0
    # From the last one on, each is exchanged with one up to it.
    ranges[(places + np.repeat(counts, counts))[shuffled] - 1] = (
        np.repeat(counts, counts)[shuffled] - steps[shuffled] + 1
    )
    drawn: Words = draw_below_each(rng, ranges)[places]
    return drawn


def draw_below_each(rng: np.random.Generator, ranges: Words) -> Words:
    """`rng.integers(each)` for one range after the other, all under 2**32 and over 1.

    The method is D. Lemire's (*Fast random integer generation in an interval*, 2019), as in NumPy:
    the high half of 32 random bits times the range, unless the low half is so small that some
    numbers would come more often; then with the next 32 bits.

    >>> draw_below_each(np.random.default_rng(0), np.array([10, 10, 10], np.uint64)).tolist()
    [8, 6, 5]
    """
    bits = rng.integers(0, 1 << 32, len(ranges), np.uint32)
    start = 0
    products = bits.astype(np.uint64) * ranges
    while True:
        low = products[start:] & _LOW
        few = np.flatnonzero(low < ranges[start:]) + start
        rejected = few[(products[few] & _LOW) < (_WORD - ranges[few]) % ranges[few]]
        if not rejected.size:
            products >>= np.uint64(32)
            return products
        start = int(rejected[0])
        bits[start:-1] = bits[start + 1 :]
        bits[-1] = rng.integers(0, 1 << 32, dtype=np.uint32)
        products[start:] = bits[start:] * ranges[start:]


def _are_taken(numbers: Ints, above: Ints, steps: Ints) -> NDArray[np.bool_]:
    """Whether a number was taken before its turn.

    Args:
        numbers: those drawn, different ones for different shards.
        above: how far each is above the limit of its shard's first turn; less than 0: below.
        steps: the turn in its shard that each was drawn in.
    """
    turns = np.arange(len(numbers))
    first = np.empty(int(numbers.max(initial=0)) + 1, np.int64)
    first[numbers[::-1]] = turns[::-1]  # of equal ones the earliest is written last
    taken = first[numbers] < turns
    # A turn whose number was taken took its own limit, which a later turn may draw.
    later = np.flatnonzero((above >= 0) & (above < steps))
    of_limit = later - steps[later] + above[later]
    while True:
        found = taken[of_limit] & ~taken[later]
        if not found.any():
            return taken
        taken[later[found]] = True
