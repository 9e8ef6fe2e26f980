"""How well an order of samples mixes its shards."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["diversity", "ideal_diversity"]

Ints = NDArray[np.int64]


def diversity(order: Ints, window: int) -> float:
    """The mean number of distinct shards in windows of an order.

    Args:
        order: The shard of each sample, in the order in which samples come.
        window: Samples in a window; what is left at the end is not looked at.

    Example:
        >>> diversity(np.array([0, 0, 1, 1, 0, 1, 0, 1]), 2)
        1.5
    """
    windows = np.sort(order[: len(order) // window * window].reshape(-1, window), axis=1)
    return float((1 + (np.diff(windows, axis=1) != 0).sum(axis=1)).mean())


def ideal_diversity(sizes: Ints, window: int) -> float:
    """What :func:`diversity` is of a shuffle of everything.

    Args:
        sizes: Samples of each shard.
        window: Samples in a window.

    Example:
        >>> round(ideal_diversity(np.array([10, 10]), 2), 2)
        1.5
    """
    share = sizes / max(1, sizes.sum())
    return float((1 - (1 - share) ** window).sum())
