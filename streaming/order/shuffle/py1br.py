"""The shuffle `py1br`: samples within blocks of about `block_size`, at staggered places."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints, join_ranges, shuffle_in_place
from streaming.order.shuffle.spans import lay_out


def draw_py1br(
    sizes: Ints,
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Shuffle each block of each canonical node; the shards of a block are needed together."""
    rng = np.random.default_rng(seed + epoch)
    spans = lay_out(sizes, num_canonical_nodes, seed, rng)
    samples = join_ranges(spans.begins, spans.sizes, dtype)
    # Blocks that begin elsewhere on each node spread the downloads over time.
    staggers = rng.integers(0, int(0.75 * block_size), num_canonical_nodes).tolist()
    bounds = spans.node_bounds
    for first, last, stagger in zip(bounds[:-1], bounds[1:], staggers, strict=True):
        for begin, end in _draw_blocks(rng, first, last, stagger, block_size):
            shuffle_in_place(rng, samples[begin:end])
    return samples


def _draw_blocks(
    rng: np.random.Generator, first: int, last: int, stagger: int, block_size: int
) -> list[tuple[int, int]]:
    """Draw the blocks of a node whose samples are at the places from `first` to `last`."""
    shortest, past_longest = int(0.75 * block_size), int(1.25 * block_size)
    blocks = []
    unblocked = first
    while unblocked < last:
        size = int(rng.integers(shortest, past_longest))
        begin = max(unblocked - stagger, first)
        end = min(unblocked + size - stagger, last)
        blocks.append((begin, end))
        # By the length that is left after clipping, so that the blocks at the ends overlap.
        unblocked += end - begin
    return blocks
