"""Random permutations that are computed at a place, instead of being drawn from their beginning.

The random numbers are SplitMix64's (Steele, Lea and Flood, *Fast splittable pseudorandom number
generators*, 2014), a generator that is a function of a key and a counter. They are the same on
every machine and with every release of NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints

Words = NDArray[np.uint64]
"""64 random bits each, or keys of generators."""

_ROUNDS = 8
"""Even. Four hide every pattern from whoever looks at few places; all are looked at here."""
_ROUNDS_IF_FEW = 24
"""The same for permutations of few places, so that all of them come equally often."""
_FEW = 256

_STEP = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS = tuple(map(np.uint64, (30, 27, 31)))
_FACTORS = tuple(map(np.uint64, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))
_HALF = np.uint64(32)


def key_of(*numbers: int) -> np.uint64:
    """A generator's key that depends on all of some numbers from 0 up, however large.

    >>> bool(key_of(9176, 0) != key_of(9176, 1))
    True
    """
    key: np.uint64 = np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]
    return key


def draw(keys: Words | np.uint64, counters: Words) -> Words:
    """The numbers that generators give at counters: 64 random bits each.

    >>> draw(np.uint64(0), np.array([0, 1], np.uint64)).tolist()
    [16294208416658607535, 7960286522194355700]
    """
    words: Words = counters + np.uint64(1)
    words *= _STEP
    words += keys
    _mix(words)
    return words


def _mix(words: Words) -> None:
    """Mix the bits of words in place, so that each depends on all."""
    for shift, factor in zip(_SHIFTS[:2], _FACTORS, strict=True):
        words ^= words >> shift
        words *= factor
    words ^= words >> _SHIFTS[2]


def draw_below(limits: NDArray[Any], keys: Words, counters: Words) -> Words:
    """Numbers from 0 up, less than `limits`, which are under 2**32.

    >>> draw_below(np.full(3, 10, np.uint64), np.uint64(1), np.arange(3, dtype=np.uint64)).tolist()
    [5, 7, 9]
    """
    words = draw(keys, counters)
    words >>= _HALF
    words *= limits
    words >>= _HALF
    return words


def permute(places: Ints, sizes: Ints, keys: Words) -> Ints:
    """Where random permutations take places, each place by a permutation of its own.

    A permutation of `n` places lays them out in about sqrt(n) rows and columns, and rotates each
    column by a random number of rows, then each row by a random number of columns, and so on: a
    Feistel network (Luby and Rackoff, *How to construct pseudorandom permutations*, 1988). The few
    places of the rectangle that are none are skipped by going on until a true one is reached.

    Args:
        places: from 0 up, less than `sizes`.
        sizes: places that each one's permutation has, under 2**62.
        keys: which permutation it is.

    Returns:
        Places, as many. Those of equal size and key are different where the given ones are.

    >>> size, key = np.full(5, 5), np.full(5, key_of(7))
    >>> permute(np.arange(5), size, key).tolist()
    [4, 0, 1, 2, 3]
    """
    few = sizes < _FEW
    if not few.any():
        return _permute(places, sizes, keys, _ROUNDS)
    found = np.empty(len(places), np.int64)
    for chosen, rounds in ((few, _ROUNDS_IF_FEW), (~few, _ROUNDS)):
        found[chosen] = _permute(places[chosen], sizes[chosen], keys[chosen], rounds)
    return found


def _permute(places: Ints, sizes: Ints, keys: Words, rounds: int) -> Ints:
    # An even number of rows: rotations by an odd number of places make even permutations only.
    rows = np.ceil(np.sqrt(sizes) / 2).astype(np.uint64) * np.uint64(2)
    limits = sizes.astype(np.uint64)
    columns = (limits + rows - np.uint64(1)) // rows
    found = _rotate(places.astype(np.uint64), rows, columns, keys, rounds)
    outside = np.flatnonzero(found >= limits)
    while outside.size:
        again = _rotate(found[outside], rows[outside], columns[outside], keys[outside], rounds)
        found[outside] = again
        outside = outside[again >= limits[outside]]
    return found.astype(np.int64)


def _rotate(places: Words, rows: Words, columns: Words, keys: Words, rounds: int) -> Words:
    """`permute` within whole rectangles of rows and columns."""
    step = np.uint64(rounds)
    down, along = np.divmod(places, columns)
    for turn in range(0, rounds, 2):
        down += draw_below(rows, keys, along * step + np.uint64(turn))
        # What is below 0 is very large without a sign.
        np.minimum(down, down - rows, out=down)
        along += draw_below(columns, keys, down * step + np.uint64(turn + 1))
        np.minimum(along, along - columns, out=along)
    down *= columns
    down += along
    return down
