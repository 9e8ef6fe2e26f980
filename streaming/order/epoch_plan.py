"""The plan of an epoch: it answers which samples a worker gets, for any part of the epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from streaming.order.arrays import Ints, in_chunks
from streaming.order.draws import EpochDraws
from streaming.order.layout import Layout
from streaming.order.partition import Partition


class EpochPlan(ABC):
    """Which samples each worker gets in an epoch, and in which order.

    A plan is a chain of maps from positions to positions, down to sample ids. All but the draws is
    arithmetic on the positions asked for, so that a slice costs in proportion to its length, and
    counting costs nothing. The draws are made when `ids` or `to_array` is first called.

    >>> from streaming.order import OrderParams, StreamShape, plan_epoch
    >>> stream = StreamShape(np.array([6, 6]), choose=12, proportion=1.0)
    >>> params = OrderParams((stream,), 12, batch_size=3, num_canonical_nodes=2)
    >>> plan = plan_epoch(params, num_nodes=1, ranks_per_node=2, workers_per_rank=1, epoch=0)
    >>> plan.shape
    (1, 2, 1, 2, 3)
    >>> plan.ids(node=0, rank=1, worker=0).tolist(), plan.count(node=0, rank=1)
    ([6, 7, 8, 9, 10, 11], 6)
    """

    layout: Layout
    """The world that the epoch is dealt out to."""
    left_out: int = 0
    """Samples at the end that are left out so that all ranks get equally many batches."""

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """Nodes, ranks per node, workers per rank, batches per worker, batch size."""
        return self.layout.shape

    def ids(
        self, node: int, rank: int, worker: int, start: int = 0, stop: int | None = None
    ) -> Ints:
        """The ids of the samples that a worker gets, in order.

        Args:
            node: number of the node.
            rank: number of the rank on its node.
            worker: number of the worker of its rank.
            start: the worker's first sample wanted, padding counted. `start` and `stop` are
                understood as a slice's are.
            stop: past the last one wanted; None: all.

        Returns:
            One id for each, -1 where there is padding. Padding comes last, except that in the very
            last batch of a run that was resumed on other nodes it may stand between samples.

        Raises:
            IndexError: the world has no such worker.
        """
        self._check_worker(node, rank, worker)
        begin, end, _ = slice(start, stop).indices(self.layout.batches * self.layout.batch_size)
        return in_chunks(
            lambda steps: self._at(self.layout.positions(node, rank, worker, steps)),
            begin,
            max(begin, end),
        )

    def count(self, node: int, rank: int, worker: int | None = None) -> int:
        """How many samples a rank, or one worker of it, gets in the epoch; padding is none.

        Raises:
            IndexError: the world has no such rank or worker.
        """
        if worker is None:
            return sum(self.count(node, rank, each) for each in range(self.layout.workers))
        self._check_worker(node, rank, worker)
        return self._count(node, rank, worker)

    @property
    def empty(self) -> bool:
        """Whether nobody gets a sample, as where an epoch is resumed at its end."""
        nodes, ranks, *_ = self.shape
        return not any(self.count(node, rank) for node in range(nodes) for rank in range(ranks))

    def to_array(self) -> Ints:
        """The whole plan, int64 of `shape`, -1 where there is padding."""
        return self.layout.to_array(self._at)

    def _check_worker(self, node: int, rank: int, worker: int) -> None:
        for name, number, limit in zip(
            ("node", "rank of the node", "worker of the rank"),
            (node, rank, worker),
            self.shape[:3],
            strict=True,
        ):
            if not 0 <= number < limit:
                raise IndexError(f"There is no {name} {number}: they number 0 to {limit - 1}.")

    @abstractmethod
    def _at(self, positions: Ints) -> Ints:
        """The ids at positions, numbered as the layout does; -1 where there is padding."""

    @abstractmethod
    def _count(self, node: int, rank: int, worker: int) -> int:
        """The samples of a worker that exists."""


class BatchPlan(EpochPlan):
    """A plan of batches that streams fill one by one or together; the padding is at its end.

    Each batch's places are given a stream and a number in the order in which that stream alone is
    dealt out. What has been used before is skipped in whole global batches.
    """

    def __init__(
        self,
        layout: Layout,
        partitions: list[Partition],
        draws: EpochDraws,
        skipped: int,
        num_positions: int,
    ) -> None:
        """Make a plan.

        Args:
            layout: the world.
            partitions: how each stream alone is dealt out.
            draws: the epoch's draws.
            skipped: positions used before.
            num_positions: positions of the epoch that hold samples, those used before included.
        """
        self.layout = layout
        self.partitions = partitions
        self.draws = draws
        self.skipped = skipped
        self.num_used = max(0, num_positions - skipped)

    def even_out(self) -> None:
        """Leave out a last global batch that not all ranks have a part of."""
        self.left_out = self.num_used % self.layout.global_batch
        self.num_used -= self.left_out

    @abstractmethod
    def _locate(self, positions: Ints) -> tuple[Ints, Ints]:
        """The stream at each position, and the number among the positions of its partition."""

    def _at(self, positions: Ints) -> Ints:
        ids = np.full(len(positions), -1, np.int64)
        used = positions < self.num_used
        streams, numbers = self._locate(positions[used] + self.skipped)
        ids[used] = self._look_up(streams, numbers)
        return ids

    def _look_up(self, streams: Ints, numbers: Ints) -> Ints:
        """The ids at positions of the streams' own partitions."""
        ids = np.empty(len(numbers), np.int64)
        order = np.argsort(streams, kind="stable")
        counts = np.bincount(streams)
        ends = np.cumsum(counts)
        for stream in np.flatnonzero(counts).tolist():
            own = order[ends[stream] - counts[stream] : ends[stream]]
            samples = self.partitions[stream].samples(numbers[own])
            ids[own] = self.draws.ids(stream)(samples)
        return ids

    def _count(self, node: int, rank: int, worker: int) -> int:
        world = self.layout
        whole, rest = divmod(self.num_used, world.global_batch)
        count = world.batches_of(worker, whole) * world.batch_size
        if whole % world.workers == worker:
            begin = (node * world.ranks + rank) * world.batch_size
            count += min(max(rest - begin, 0), world.batch_size)
        return count
