"""Small array helpers that the order's steps share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
"""Positions, sample numbers and sample ids, as the interface speaks of them."""
Narrow = NDArray[np.unsignedinteger[Any]]
"""What is kept for an epoch: the narrowest unsigned type that holds it."""

CHUNK = 1 << 15
"""Elements worked on at a time, so that a chain of vector operations stays in the CPU's cache."""

_IN_PLACE = 1 << 24
"""Elements above which a narrow array is shuffled where it lies: the copy would take 128 MiB."""


def narrowest(limit: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The smallest unsigned type that holds the numbers from 0 to `limit`.

    >>> narrowest(255), narrowest(256)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.min_scalar_type(max(limit, 0))


def cumulate(sizes: Ints) -> Ints:
    """Where each of the sizes begins when they are laid end to end, and where the last ends.

    >>> cumulate(np.array([3, 0, 4])).tolist()
    [0, 3, 3, 7]
    """
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds


def join_ranges(begins: Ints, sizes: Ints, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The ranges that start at `begins` and have `sizes`, end to end, as one array.

    >>> join_ranges(np.array([5, 0]), np.array([2, 3]), np.dtype(np.uint8)).tolist()
    [5, 6, 0, 1, 2]
    """
    bounds = cumulate(sizes)
    joined = np.arange(bounds[-1], dtype=dtype)
    # The differences may be negative. In an unsigned type they wrap, and so does the sum, which
    # brings it back into the type's range.
    joined += np.repeat((begins - bounds[:-1]).astype(dtype), sizes)
    return joined


def shuffle_in_place(rng: np.random.Generator, values: NDArray[Any]) -> None:
    """Shuffle one-dimensional `values` by `rng`, drawing the same numbers for every integer type.

    NumPy has a faster loop for elements of pointer size, so that it pays to widen what is not too
    large to be copied.
    """
    if values.itemsize == np.dtype(np.intp).itemsize or values.size > _IN_PLACE:
        rng.shuffle(values)
        return
    wide = values.astype(np.intp)
    rng.shuffle(wide)
    values[...] = wide


def in_chunks(step: Callable[[Ints], Ints], start: int, stop: int) -> Ints:
    """`step(np.arange(start, stop))` for an elementwise `step`, a chunk at a time.

    >>> in_chunks(lambda positions: positions * 2, 3, 6).tolist()
    [6, 8, 10]
    """
    if stop - start <= CHUNK:
        return step(np.arange(start, stop, dtype=np.int64))
    result = np.empty(stop - start, np.int64)
    for begin in range(start, stop, CHUNK):
        end = min(begin + CHUNK, stop)
        result[begin - start : end - start] = step(np.arange(begin, end, dtype=np.int64))
    return result
