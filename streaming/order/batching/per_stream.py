"""Batching `per_stream`: each global batch is of one stream."""

from __future__ import annotations

import numpy as np

from streaming.order.arrays import Ints, cumulate, narrowest
from streaming.order.draws import EpochDraws, check_draws
from streaming.order.epoch_plan import BatchPlan
from streaming.order.layout import Layout
from streaming.order.params import OrderParams
from streaming.order.partition import Partition, make_partition


class StreamOrder:
    """In which order the batches of several streams come.

    >>> order = StreamOrder(np.array([2, 1]), np.random.default_rng(0))
    >>> order.streams.tolist(), order.numbers.tolist()
    ([1, 0, 0], [0, 0, 1])
    """

    def __init__(self, batches_per_stream: Ints, rng: np.random.Generator) -> None:
        streams = np.repeat(np.arange(len(batches_per_stream)), batches_per_stream)
        rng.shuffle(streams)
        numbers = np.empty_like(streams)
        firsts = np.repeat(cumulate(batches_per_stream)[:-1], batches_per_stream)
        numbers[np.argsort(streams, kind="stable")] = np.arange(len(streams)) - firsts
        self.streams = streams.astype(narrowest(len(batches_per_stream)))
        """The stream of each batch."""
        self.numbers = numbers.astype(narrowest(len(streams)))
        """The number of each batch among its stream's."""


def order_rng(params: OrderParams, epoch: int) -> np.random.Generator:
    """The generator that the order of the streams' batches is drawn from."""
    return np.random.default_rng(
        params.shuffle_seed + (epoch if params.draws_anew_each_epoch else 0)
    )


class PerStreamPlan(BatchPlan):
    """Global batches of one stream each, the streams' in random order."""

    def __init__(
        self,
        layout: Layout,
        partitions: list[Partition],
        draws: EpochDraws,
        skipped: int,
        order: StreamOrder,
    ) -> None:
        num_positions = len(order.streams) * layout.global_batch
        super().__init__(layout, partitions, draws, skipped, num_positions)
        self.order = order

    def _locate(self, positions: Ints) -> tuple[Ints, Ints]:
        batches = positions // self.layout.global_batch
        within = positions - batches * self.layout.global_batch
        numbers = self.order.numbers[batches].astype(np.int64)
        return self.order.streams[batches], numbers * self.layout.global_batch + within


def plan_per_stream(
    params: OrderParams, world: Layout, draws: EpochDraws, sample_in_epoch: int
) -> PerStreamPlan:
    """Plan an epoch of which `sample_in_epoch` samples have been used before.

    Raises:
        ValueError: a stream fills no batch, or as `get_partitions` and `check_shuffle` do.
    """
    partitions = _partition_streams(params, world)
    for index in range(len(params.streams)):
        check_draws(params, index)
    counts = np.array([partition.whole_batches for partition in partitions])
    order = StreamOrder(counts, order_rng(params, draws.epoch))
    skipped, layout = world.resume(len(order.streams), sample_in_epoch)
    return PerStreamPlan(layout, partitions, draws, skipped, order)


def batches_per_stream(params: OrderParams, world: Layout) -> Ints:
    """How many global batches each stream fills in a world, its repeats there included.

    Raises:
        ValueError: as `plan_per_stream` does.
    """
    return np.array([each.whole_batches for each in _partition_streams(params, world)], np.int64)


def _partition_streams(params: OrderParams, world: Layout) -> list[Partition]:
    partitions = []
    for index, stream in enumerate(params.streams):
        partition = make_partition(
            params.partition_algo,
            stream.choose,
            params.num_canonical_nodes,
            world.nodes,
            world.ranks,
            world.workers,
            world.batch_size,
            0,
            params.initial_physical_nodes,
        )
        if not partition.whole_batches:
            raise ValueError(
                f"Stream {index} gives {stream.choose} samples to an epoch, which fill no global "
                f"batch of {world.global_batch}. Make the batch smaller, weigh the stream more, "
                "or use another batching method."
            )
        partitions.append(partition)
    return partitions
