"""Spans of consecutive samples, and how they are dealt out to canonical nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints, cumulate


class Spans(NamedTuple):
    """Spans in order, and which of them are whose."""

    begins: Ints
    """First sample of each span."""
    sizes: Ints
    """Samples of each span."""
    nodes: Ints
    """Number of each canonical node's first span, and past them the number of spans."""

    def take(self, order: Ints) -> Spans:
        """The same spans in another order, which keeps every node's spans its own."""
        return Spans(self.begins[order], _in_order(self.sizes, order), self.nodes)

    def of_node(self, node: int) -> tuple[list[int], list[int]]:
        """One node's spans: where they begin, and their sizes."""
        own = slice(self.nodes[node], self.nodes[node + 1])
        return self.begins[own].tolist(), self.sizes[own].tolist()

    @property
    def node_bounds(self) -> list[int]:
        """Where each node's samples begin when all spans are laid end to end, and the end."""
        bounds: list[int] = cumulate(self.sizes)[self.nodes].tolist()
        return bounds


def cut_at_nodes(begins: Ints, sizes: Ints, num_samples: int, num_nodes: int) -> Spans:
    """Deal out spans to nodes in order, splitting those that cross from one node to the next.

    Node c's part ends at `num_samples * (c + 1) // num_nodes`. An empty span on the boundary is
    still the earlier node's.

    >>> spans = cut_at_nodes(np.array([4, 0]), np.array([5, 4]), 9, 2)
    >>> [part.tolist() for part in spans]
    [[4, 8, 0], [4, 1, 4], [0, 1, 3]]
    """
    if num_nodes == 1:
        return Spans(begins, sizes, np.array([0, len(sizes)]))
    ends = np.cumsum(sizes)
    targets = np.arange(1, num_nodes + 1) * num_samples // num_nodes
    inner = targets[(targets > 0) & (targets < num_samples)]
    inner = inner[np.diff(inner, prepend=0) > 0]
    splits = inner[ends[np.searchsorted(ends, inner)] != inner]
    if len(splits):
        # A split stands before the end of the span that it cuts.
        places = np.searchsorted(ends, splits)
        rests = begins[places] + splits - (ends[places] - sizes[places])
        begins = np.insert(begins, places + 1, rests)
        ends = np.insert(ends, places, splits)
        sizes = np.diff(ends, prepend=0)
    nodes = np.zeros(num_nodes + 1, np.int64)
    nodes[1:] = np.searchsorted(ends, targets, side="right")
    return Spans(begins, sizes, nodes)


def lay_out(sizes: Ints, num_nodes: int, seed: int | list[int], rng: np.random.Generator) -> Spans:
    """How `py1e`, `py1br`, `py1s` and `blockwise` begin: shards shuffled, then dealt out.

    The shards' order, and so which node has which, is drawn once for the run from `seed`; the
    order in which each node goes through its spans is drawn from `rng`, for all nodes in turn.
    """
    shards = np.arange(len(sizes))
    np.random.default_rng(seed).shuffle(shards)
    if _are_alike(sizes):
        shards *= sizes[0]
        begins = shards
    else:
        begins = cumulate(sizes)[:-1][shards]
        sizes = sizes[shards]
    spans = cut_at_nodes(begins, sizes, int(sizes.sum()), num_nodes)
    order = np.arange(len(spans.sizes))
    for node in range(num_nodes):
        rng.shuffle(order[spans.nodes[node] : spans.nodes[node + 1]])
    return spans.take(order)


def _are_alike(sizes: Ints) -> bool:
    """Whether all are the same: nothing has to be put in order then, which is half of the work."""
    return len(sizes) > 0 and bool(sizes[0] == sizes.max() == sizes.min())


def _in_order(sizes: Ints, order: Ints) -> Ints:
    return sizes if _are_alike(sizes) else sizes[order]


def divide_spans(
    spans: list[tuple[int, int]], num_samples: int, num_parts: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Deal out spans to equal parts, splitting those that cross from one part to the next.

    Args:
        spans: pairs of first and past-the-last sample.
        num_samples: samples of all spans.
        num_parts: parts to make.

    Returns:
        The spans after splitting, and for each part the numbers of its first span and of the one
        past its last.

    >>> divide_spans([(0, 3), (3, 10)], 10, 2)
    ([(0, 3), (3, 5), (5, 10)], [(0, 2), (2, 3)])
    """
    pairs = np.array(spans, np.int64).reshape(-1, 2)
    parts = cut_at_nodes(pairs[:, 0], pairs[:, 1] - pairs[:, 0], num_samples, num_parts)
    bounds = parts.nodes.tolist()
    return (
        list(zip(parts.begins.tolist(), (parts.begins + parts.sizes).tolist(), strict=True)),
        list(pairwise(bounds)),
    )


def write_shuffled(
    rng: np.random.Generator, begins: list[int], sizes: list[int], out: NDArray[Any]
) -> None:
    """Write the samples of each span, shuffled within it, to `out`, span after span."""
    place = 0
    for begin, size in zip(begins, sizes, strict=True):
        samples = np.arange(begin, begin + size)
        rng.shuffle(samples)
        out[place : place + size] = samples
        place += size


def skip_shuffled(rng: np.random.Generator, sizes: list[int]) -> None:
    """Draw what `write_shuffled` draws, and keep nothing."""
    samples = np.arange(max(sizes, default=0))
    for size in sizes:
        rng.shuffle(samples[:size])
