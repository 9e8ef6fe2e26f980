"""The shuffle `py2s`: samples within shards once for the run, and parts of shards each epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints, cumulate, shuffle_in_place
from streaming.order.shuffle.spans import cut_at_nodes, write_shuffled


def draw_py2s(
    sizes: Ints,
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Shuffle shards and their samples, cut them at canonical nodes, and shuffle the parts."""
    run = np.random.default_rng(seed)
    shards = np.arange(len(sizes))
    run.shuffle(shards)
    begins, shard_sizes = cumulate(sizes)[:-1][shards], sizes[shards]
    fixed = np.empty(int(sizes.sum()), dtype)
    write_shuffled(run, begins.tolist(), shard_sizes.tolist(), fixed)

    # The parts are ranges of what was shuffled, no longer of consecutive samples.
    places = cumulate(shard_sizes)[:-1]
    parts = cut_at_nodes(places, shard_sizes, len(fixed), num_canonical_nodes)
    rng = np.random.default_rng(seed + epoch)
    samples = np.empty_like(fixed)
    end = 0
    for node in range(num_canonical_nodes):
        order = np.arange(parts.nodes[node], parts.nodes[node + 1])
        rng.shuffle(order)
        part_sizes = parts.sizes[order].tolist()
        for place, size in zip(parts.begins[order].tolist(), part_sizes, strict=True):
            begin, end = end, end + size
            samples[begin:end] = fixed[place : place + size]
            shuffle_in_place(rng, samples[begin:end])
    return samples
