"""Batching `stratified`: each global batch holds every stream in its proportion."""

from __future__ import annotations

import numpy as np

from streaming.order.arrays import Ints, cumulate
from streaming.order.draws import EpochDraws, check_draws
from streaming.order.epoch_plan import BatchPlan
from streaming.order.layout import Layout
from streaming.order.params import OrderParams
from streaming.order.partition import Partition, make_partition


class StratifiedPlan(BatchPlan):
    """Each global batch is a part of every stream, one after the other."""

    def __init__(
        self,
        layout: Layout,
        partitions: list[Partition],
        draws: EpochDraws,
        skipped: int,
        parts: Ints,
        num_batches: int,
    ) -> None:
        super().__init__(layout, partitions, draws, skipped, num_batches * layout.global_batch)
        self.parts = parts
        """Samples of each stream in a global batch."""
        self.streams = np.repeat(np.arange(len(parts)), parts)
        """The stream of each place in a global batch."""
        self.places = np.arange(len(self.streams)) - cumulate(parts)[self.streams]
        """The place in the stream's part of it."""

    def _locate(self, positions: Ints) -> tuple[Ints, Ints]:
        batches = positions // self.layout.global_batch
        within = positions - batches * self.layout.global_batch
        streams = self.streams[within]
        return streams, batches * self.parts[streams] + self.places[within]


def split_batch(proportions: list[float], global_batch: int) -> Ints:
    """How many samples of a global batch each stream gives.

    What rounding down leaves over goes to the streams that lost most by it, of equal ones to the
    later.

    Raises:
        ValueError: a stream gets no part of the batch.

    >>> split_batch([0.5, 0.25, 0.25], 6).tolist()
    [3, 1, 2]
    """
    shares = np.array(proportions) * global_batch
    parts = shares.astype(np.int64)
    missing = global_batch - int(parts.sum())
    parts[np.flip(np.argsort(shares - parts, kind="stable"))[:missing]] += 1
    none = np.flatnonzero(parts == 0)
    if none.size:
        stream = int(none[0])
        raise ValueError(
            f"A global batch of {global_batch} samples has no place for stream {stream}, whose "
            f"proportion is {proportions[stream]:.3g}. Make the batch larger, weigh the stream "
            "more, or use another batching method."
        )
    return parts


def plan_stratified(
    params: OrderParams, world: Layout, draws: EpochDraws, sample_in_epoch: int
) -> StratifiedPlan:
    """Plan an epoch of which `sample_in_epoch` samples have been used before.

    Raises:
        ValueError: a stream gets no part of a batch, or as `get_partitions` and `check_shuffle` do.
    """
    parts = split_batch([stream.proportion for stream in params.streams], world.global_batch)
    partitions = []
    for index, stream in enumerate(params.streams):
        # Over one node and batches of one: in order of use, that is the common sequence itself,
        # whatever the world.
        partitions.append(
            make_partition(
                params.partition_algo,
                stream.choose,
                params.num_canonical_nodes,
                1,
                world.ranks,
                world.workers,
                1,
                0,
                params.initial_physical_nodes,
            )
        )
        check_draws(params, index)
    num_batches = min(
        partition.whole_batches * partition.layout.global_batch // part
        for partition, part in zip(partitions, parts.tolist(), strict=True)
    )
    skipped, layout = world.resume(num_batches, sample_in_epoch)
    return StratifiedPlan(layout, partitions, draws, skipped, parts, num_batches)
