"""The shuffle `blockwise`, our own: samples within staggered blocks, computed place by place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints, cumulate, in_chunks
from streaming.order.mixing import Words, draw, key_of, permute
from streaming.order.shuffle.spans import lay_out

_GOLDEN = 0.6180339887498949
"""Multiples of it, less the whole part, lie evenly between 0 and 1, however many there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Equal blocks of each canonical node's places, and a permutation of each block.

    The first block of a node ends at its `phase`, and so may the last one be cut short.
    """

    size: int
    phases: Ints
    """Where a node's second block begins, from 0 to the size less one; 0: its first is whole."""
    keys: Words
    """The key of each node, from which those of its blocks are made."""

    def source(self, nodes: Ints, places: Ints, counts: Ints) -> Ints:
        """From which place of its node the sample comes that is to stand at a place.

        Args:
            nodes: the canonical node of each place.
            places: the place among the node's.
            counts: how many places that node has.
        """
        shifted = places + (self.size - self.phases[nodes])
        blocks = shifted // self.size
        begins = blocks * self.size - (self.size - self.phases[nodes])
        ends = np.minimum(begins + self.size, counts)
        begins = np.maximum(begins, 0)
        keys = draw(self.keys[nodes], blocks.astype(np.uint64))
        sources = permute(places - begins, ends - begins, keys)
        sources += begins
        return sources


@dataclass(frozen=True, slots=True, eq=False)
class Blockwise:
    """The permutation that `blockwise` makes of the samples of an epoch, at any of its places.

    It takes memory in proportion to the number of shards. Shards are shuffled and dealt out to
    canonical nodes, and the samples of each node shuffled within blocks of half of `block_size`,
    twice: the blocks of the second pass begin in the middle of the first one's. What the first pass
    has spread evenly over a block, the second one spreads over the two that meet it, so that a
    shard's samples are spread evenly over `block_size` places, and so many are needed at a time.

    >>> shuffle = Blockwise.draw(np.array([2, 3]), 1, seed=0, epoch=0, block_size=4)
    >>> shuffle(np.arange(5)).tolist()
    [0, 2, 1, 3, 4]
    """

    begins: Ints
    """The first sample of each span of consecutive samples."""
    bounds: Ints
    """Where each span begins when all of them are laid end to end, and their end."""
    node_bounds: Ints
    """The same of each canonical node."""
    passes: tuple[Blocks, Blocks]

    @classmethod
    def draw(
        cls,
        sizes: Ints,
        num_canonical_nodes: int,
        seed: int,
        epoch: int,
        block_size: int,
        stream_id: int | None = None,
    ) -> Blockwise:
        """Draw the order of shards, and the keys of everything else.

        Args:
            sizes: samples of each shard, or of each run that counts as one.
            num_canonical_nodes: parts of the permutation, which are shuffled separately.
            seed: seed of the whole training run.
            epoch: number of the epoch, from 0.
            block_size: samples over which a shard's are spread.
            stream_id: number of the stream that is shuffled by itself, so that two which are alike
                don't come in the same order.
        """
        stream = 0 if stream_id is None else stream_id + 1
        rng = np.random.default_rng([seed, epoch, stream])
        spans = lay_out(sizes, num_canonical_nodes, [seed, stream], rng)
        bounds = cumulate(spans.sizes)
        return cls(
            spans.begins,
            bounds,
            bounds[spans.nodes],
            _draw_passes(bounds[spans.nodes], key_of(seed, epoch, stream), block_size),
        )

    def __call__(self, places: Ints) -> Ints:
        """The samples that stand at places from 0 up."""
        nodes = np.searchsorted(self.node_bounds, places, side="right") - 1
        firsts = self.node_bounds[nodes]
        counts = self.node_bounds[nodes + 1] - firsts
        sources = places - firsts
        for blocks in reversed(self.passes):
            sources = blocks.source(nodes, sources, counts)
        sources += firsts
        spans = np.searchsorted(self.bounds, sources, side="right") - 1
        return self.begins[spans] + (sources - self.bounds[spans])


def _draw_passes(node_bounds: Ints, key: np.uint64, block_size: int) -> tuple[Blocks, Blocks]:
    """Where the blocks of both passes lie: those of the nodes are staggered evenly.

    A node that has no more than half a block is one block, wherever those of others begin.
    """
    size = max(block_size // 2, 1)
    counts = np.diff(node_bounds)
    nodes = np.arange(len(counts), dtype=np.uint64)
    stagger = draw(key, np.zeros(1, np.uint64)) / 2.0**64
    phases = ((stagger + nodes * _GOLDEN) % 1 * size).astype(np.int64)
    passes = []
    for number in range(2):
        keys = draw(key, nodes + np.uint64(1 + number * len(nodes)))
        passes.append(Blocks(size, np.where(counts <= size, 0, phases), keys))
        phases = (phases + size // 2) % size
    return passes[0], passes[1]


def draw_blockwise(
    sizes: Ints,
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Write out the whole permutation, which an epoch's plan never does."""
    shuffle = Blockwise.draw(sizes, num_canonical_nodes, seed, epoch, block_size)
    return in_chunks(shuffle, 0, int(sizes.sum())).astype(dtype, copy=False)
