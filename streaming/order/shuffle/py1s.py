"""The shuffle `py1s`: the order of shards, and of samples within each part of a shard."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints
from streaming.order.shuffle.spans import lay_out, write_shuffled


def draw_py1s(
    sizes: Ints,
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Shuffle each span by itself: one shard at a time is enough for a canonical node."""
    rng = np.random.default_rng(seed + epoch)
    spans = lay_out(sizes, num_canonical_nodes, seed, rng)
    samples = np.empty(int(sizes.sum()), dtype)
    write_shuffled(rng, spans.begins.tolist(), spans.sizes.tolist(), samples)
    return samples
