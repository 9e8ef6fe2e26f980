"""A physical node's share of an epoch: the sample numbers that its ranks can be given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints
from streaming.order.params import OrderParams


@dataclass(frozen=True, slots=True)
class Share:
    """The numbers that one of several nodes is dealt, whatever has been used before.

    The nodes take turns in the *common sequence* of `Partition`, which takes turns among the
    canonical nodes. With `C` canonical nodes and `P` physical ones, a physical node therefore has
    every `P`-th canonical node's run of samples (`P` divides `C`), or every `P / C`-th sample of
    one run, apart from a few at the run's end that may be repeated (`C` divides `P`).

    >>> share = Share(num_samples=12, canonical_nodes=4, nodes=2, node=1)
    >>> share.take(np.arange(12)).tolist()
    [3, 4, 5, 9, 10, 11]
    >>> share.places(np.array([9, 3, 0])).tolist()
    [3, 0, -1]
    """

    num_samples: int
    """Samples of the epoch."""
    canonical_nodes: int
    nodes: int
    """Physical nodes."""
    node: int
    """Which of them it is, from 0."""

    @property
    def owners(self) -> range:
        """The canonical nodes that the share is taken from, all of it or in part."""
        if self.nodes > self.canonical_nodes:
            owner = self.node % self.canonical_nodes
            return range(owner, owner + 1)
        return range(self.node, self.canonical_nodes, self.nodes)

    @property
    def is_whole_runs(self) -> bool:
        """Whether it is all that its canonical nodes have."""
        return self.nodes <= self.canonical_nodes

    @property
    def _stride(self) -> int:
        return self.nodes // self.canonical_nodes

    @property
    def _tail(self) -> int:
        """From which sample of a run on all are in the share: what is repeated there."""
        stripe = -(-self.num_samples // self.canonical_nodes)
        return max(0, stripe // self._stride - 2) * self._stride

    def _starts(self) -> Ints:
        nodes = np.arange(self.canonical_nodes + 1)
        starts: Ints = nodes * self.num_samples // self.canonical_nodes
        return starts

    def take(self, values: NDArray[Any]) -> NDArray[Any]:
        """Of one value for each number of the epoch, those of the share, in the same order."""
        starts = self._starts()
        runs = [values[starts[owner] : starts[owner + 1]] for owner in self.owners]
        if not self.is_whole_runs:
            first, tail = self.node // self.canonical_nodes, self._tail
            runs = [runs[0][:tail][first :: self._stride], runs[0][tail:]]
        return np.concatenate(runs)

    def places(self, numbers: Ints) -> Ints:
        """Where `take` puts the values of some numbers; -1 where the share does not have one."""
        starts = self._starts()
        owners = np.searchsorted(starts, numbers, side="right") - 1
        steps = numbers - starts[np.maximum(owners, 0)]
        if self.is_whole_runs:
            lengths = np.diff(starts)[self.node :: self.nodes]
            before = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
            turns = np.clip(owners // self.nodes, 0, len(lengths))
            inside = (owners % self.nodes == self.node) & (owners < self.canonical_nodes)
            return np.where(inside & (numbers >= 0), before[turns] + steps, -1)
        strided = self._tail // self._stride
        early = steps < self._tail
        inside = owners == self.owners[0]
        inside &= ~early | (steps % self._stride == self.node // self.canonical_nodes)
        places = np.where(early, steps // self._stride, strided + steps - self._tail)
        return np.where(inside & (numbers >= 0), places, -1)


def share_of(params: OrderParams, stream_id: int | None, num_nodes: int, node: int) -> Share | None:
    """The share of an epoch's numbers that a node can be given; None if it may be given any.

    Args:
        params: the data set's parameters.
        stream_id: the stream that is dealt out by itself; None: all streams together.
        num_nodes: physical nodes of the world.
        node: number of the node.
    """
    streams = params.streams if stream_id is None else (params.streams[stream_id],)
    num_samples = sum(stream.choose for stream in streams)
    canonical = params.num_canonical_nodes
    dealt_over_nodes = params.batching_method in ("random", "per_stream") and params.pad == "repeat"
    divide = canonical % num_nodes == 0 or num_nodes % canonical == 0
    if num_nodes == 1 or not dealt_over_nodes or not divide:
        return None
    if num_samples <= max(canonical, num_nodes):  # repeated one by one
        return None
    return Share(num_samples, canonical, num_nodes, node)
