"""The shuffle `naive`: every order of all samples is equally likely."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints, shuffle_in_place


def draw_naive(
    sizes: Ints,
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Permute all samples at once. Needs the whole data set at hand."""
    samples = np.arange(sizes.sum(), dtype=dtype)
    shuffle_in_place(np.random.default_rng(seed + epoch), samples)
    return samples
