"""Batching `random`: each batch takes what comes next, of whatever stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints
from streaming.order.batching.exact import ExactPlan, plan_exact
from streaming.order.draws import EpochDraws, check_draws
from streaming.order.epoch_plan import EpochPlan
from streaming.order.layout import Layout
from streaming.order.params import OrderParams
from streaming.order.partition import Partition, make_partition


class RandomPlan(EpochPlan):
    """All streams shuffled together, then dealt out: position, sample number, sample id."""

    def __init__(self, layout: Layout, partition: Partition, draws: EpochDraws) -> None:
        self.layout = layout
        self.partition = partition
        self.draws = draws
        self.last_batch = _last_batch(layout, partition)
        """Which slots of the batch that ends the epoch hold samples: (lane, slot)."""

    def even_out(self) -> None:
        """Cut the last batch down to what every rank has of it.

        It comes out even by itself, unless the batches are those of an earlier world.
        """
        kept = int(self.last_batch.sum(axis=1).min())
        even = self.last_batch & (np.cumsum(self.last_batch, axis=1) <= kept)
        self.left_out = int(self.last_batch.sum() - even.sum())
        self.last_batch = even

    def _at(self, positions: Ints) -> Ints:
        samples = self.partition.samples(positions)
        if self.left_out:
            begin = self.partition.whole_batches * self.layout.global_batch
            last = np.flatnonzero(positions >= begin)
            within = (positions[last] - begin) % self.layout.global_batch
            samples[last[~self.last_batch.ravel()[within]]] = -1
        return self.draws.ids(None)(samples)

    def _count(self, node: int, rank: int, worker: int) -> int:
        whole = self.partition.whole_batches
        count = self.layout.batches_of(worker, whole) * self.layout.batch_size
        if whole % self.layout.workers == worker:
            count += int(self.last_batch[node * self.layout.ranks + rank].sum())
        return count


def _last_batch(layout: Layout, partition: Partition) -> NDArray[np.bool_]:
    """Which slots hold samples in the global batch that comes after the whole ones."""
    dealt = partition.layout
    filled = partition.per_rank % dealt.batch_size
    slots = np.arange(dealt.global_batch) % dealt.batch_size
    return (slots < filled).reshape(-1, layout.batch_size)


def plan_random(
    params: OrderParams, world: Layout, draws: EpochDraws, sample_in_epoch: int
) -> RandomPlan | ExactPlan:
    """Plan an epoch of which `sample_in_epoch` samples have been used before.

    Raises:
        ValueError: as `get_partitions` and `check_shuffle` do.
    """
    if params.pad == "none":
        return plan_exact(params, world, draws, sample_in_epoch)
    partition = make_partition(
        params.partition_algo,
        sum(stream.choose for stream in params.streams),
        params.num_canonical_nodes,
        world.nodes,
        world.ranks,
        world.workers,
        world.batch_size,
        sample_in_epoch,
        params.initial_physical_nodes,
    )
    check_draws(params, None)
    return RandomPlan(world.of(partition.layout.batches), partition, draws)
