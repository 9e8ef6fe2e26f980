"""From a sample's number to its shard."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints, cumulate

_LISTED = 1 << 17
"""How many bounds a list of Python's integers may take, at 5 times the memory of an array's."""


class Spanner:
    """Finds the shard that holds a sample, by search among the shards' bounds.

    Args:
        shard_sizes: samples of each shard.
        span_size: has no effect; it is taken because mosaicml-streaming takes it.

    >>> spanner = Spanner(np.array([3, 0, 4]))
    >>> spanner[2], spanner[3]
    ((0, 2), (2, 0))
    >>> shards, places = spanner.locate(np.array([6, 0]))
    >>> shards.tolist(), places.tolist()
    ([2, 0], [3, 0])
    """

    def __init__(self, shard_sizes: NDArray[np.int64], span_size: int = 1 << 10) -> None:
        self.shard_sizes = np.asarray(shard_sizes, np.int64)
        self.span_size = span_size
        self.shard_bounds = cumulate(self.shard_sizes)
        """Number of each shard's first sample, and past them the number of samples."""
        self.num_samples = int(self.shard_bounds[-1])

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> tuple[int, int]:
        """The shard that holds a sample, and the sample's place in it.

        Raises:
            IndexError: there is no such sample; negative numbers don't count from the end.
        """
        if not 0 <= index < self.num_samples:
            raise IndexError(
                f"There is no sample {index}: they number 0 to {self.num_samples - 1}."
            )
        bounds = self._bounds
        shard = bisect_right(bounds, index) - 1
        return shard, int(index - bounds[shard])

    @cached_property
    def _bounds(self) -> Sequence[int]:
        """The bounds in the form that is searched quickest for one number."""
        bounds = self.shard_bounds
        return bounds.tolist() if len(bounds) <= _LISTED else bounds.data

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_bounds"}

    def locate(self, indices: Ints) -> tuple[Ints, Ints]:
        """`spanner[i]` for an array of numbers: an array of shards and one of places in them.

        Raises:
            IndexError: one of the samples does not exist.
        """
        outside = (indices < 0) | (indices >= self.num_samples)
        if outside.any():
            self[int(indices[outside][0])]
        shards = self.shard_bounds.searchsorted(indices, "right") - 1
        return shards, indices - self.shard_bounds[shards]
