"""Batching `random` without padding: every sample of the epoch once, for evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming.order.arrays import Ints
from streaming.order.draws import EpochDraws, check_draws
from streaming.order.epoch_plan import EpochPlan
from streaming.order.layout import Layout
from streaming.order.params import OrderParams


@dataclass(frozen=True, slots=True, eq=False)
class ExactPartition:
    """An epoch's samples, dealt out over the ranks of some nodes without repeating any.

    It is the common sequence of `Partition` without what is repeated there for canonical nodes,
    physical nodes and ranks to come out, and it is dealt out in the same turns. Any number of nodes
    will do.

    >>> partition = ExactPartition(Layout(1, 2, 1, 2, 2), num_samples=5, canonical_nodes=2)
    >>> partition.samples(np.arange(8)).tolist()
    [0, 1, 2, 3, 4, -1, -1, -1]
    >>> partition.count(0), partition.count(1)
    (3, 2)
    """

    layout: Layout
    num_samples: int
    canonical_nodes: int
    drop_first: int = 0
    """Elements of the common sequence that were used before."""

    def samples(self, positions: Ints) -> Ints:
        """The samples that stand at `positions`, -1 where padding does."""
        world = self.layout
        batches, within = np.divmod(positions, world.global_batch)
        lanes, slots = np.divmod(within, world.batch_size)
        nodes, ranks = np.divmod(lanes, world.ranks)
        of_rank = batches * world.batch_size + slots
        elements = (of_rank * world.ranks + ranks) * world.nodes + nodes + self.drop_first
        samples = np.full(len(positions), -1, np.int64)
        used = elements < self.num_samples
        samples[used] = self._common_sequence(elements[used])
        return samples

    def _common_sequence(self, elements: Ints) -> Ints:
        """A sample of each canonical node in turn, as long as it has any."""
        starts = np.arange(self.canonical_nodes + 1) * self.num_samples // self.canonical_nodes
        steps, owners = np.divmod(elements, self.canonical_nodes)
        # Runs differ by one sample: only the longer ones take part in the last turn.
        runs = np.diff(starts)
        longer = np.flatnonzero(runs == runs.max(initial=0))
        last = steps >= -(-self.num_samples // self.canonical_nodes) - 1
        owners[last] = longer[owners[last]]
        return starts[owners] + steps

    def count(self, lane: int) -> int:
        """How many samples a rank gets, the ranks of all nodes numbered through."""
        world = self.layout
        node, rank = divmod(lane, world.ranks)
        left = self.num_samples - self.drop_first - (rank * world.nodes + node)
        return max(0, -(-left // (world.nodes * world.ranks)))


class ExactPlan(EpochPlan):
    """All streams shuffled together, then dealt out until nothing is left."""

    def __init__(self, layout: Layout, partition: ExactPartition, draws: EpochDraws) -> None:
        self.layout = layout
        self.partition = partition
        self.draws = draws

    def even_out(self) -> None:
        """Leave it as it is: ranks may end one batch apart."""

    def _at(self, positions: Ints) -> Ints:
        return self.draws.ids(None)(self.partition.samples(positions))

    def _count(self, node: int, rank: int, worker: int) -> int:
        world = self.layout
        whole, rest = divmod(self.partition.count(node * world.ranks + rank), world.batch_size)
        count = world.batches_of(worker, whole) * world.batch_size
        return count + (rest if whole % world.workers == worker else 0)


def plan_exact(
    params: OrderParams, world: Layout, draws: EpochDraws, sample_in_epoch: int
) -> ExactPlan:
    """Plan an epoch of which `sample_in_epoch` samples have been used before.

    Raises:
        ValueError: more has been used than there is, or as `check_shuffle` does.
    """
    num_samples = sum(stream.choose for stream in params.streams)
    ranks = world.nodes * world.ranks
    if sample_in_epoch > num_samples + ranks:
        raise ValueError(
            f"Can't resume after {sample_in_epoch} samples of an epoch that has {num_samples}. The "
            "checkpoint belongs to another data set, or to another epoch size."
        )
    check_draws(params, None)
    per_rank = -(-max(0, num_samples - sample_in_epoch) // ranks)
    layout = world.of(-(-per_rank // (world.workers * world.batch_size)))
    partition = ExactPartition(layout, num_samples, params.num_canonical_nodes, sample_in_epoch)
    return ExactPlan(layout, partition, draws)
