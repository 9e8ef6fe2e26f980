"""Batching `device_per_stream`: each device's batch is of one stream."""

from __future__ import annotations

import numpy as np

from streaming.order.arrays import Ints
from streaming.order.batching.per_stream import StreamOrder, order_rng
from streaming.order.draws import EpochDraws, check_draws, shuffle_block_size
from streaming.order.epoch_plan import BatchPlan
from streaming.order.layout import Layout
from streaming.order.params import OrderParams
from streaming.order.partition import Partition, make_partition


class DevicePerStreamPlan(BatchPlan):
    """Device batches of one stream each; the nodes make them, and they are taken node by node.

    A node makes its batches from its canonical nodes' samples alone, but any node's ranks may get
    them.
    """

    def __init__(
        self,
        layout: Layout,
        partitions: list[Partition],
        draws: EpochDraws,
        skipped: int,
        orders: list[StreamOrder],
    ) -> None:
        self.streams = np.stack([order.streams for order in orders])
        """The stream of each device batch, of each node."""
        self.numbers = np.stack([order.numbers for order in orders])
        """Its number among the node's batches of that stream."""
        super().__init__(layout, partitions, draws, skipped, self.streams.size * layout.batch_size)

    def _locate(self, positions: Ints) -> tuple[Ints, Ints]:
        device_batches = positions // self.layout.batch_size
        slots = positions - device_batches * self.layout.batch_size
        numbers_on_node = device_batches // self.layout.nodes
        nodes = device_batches - numbers_on_node * self.layout.nodes
        streams = self.streams[nodes, numbers_on_node]
        numbers = self.numbers[nodes, numbers_on_node].astype(np.int64)
        # The stream was dealt out to canonical nodes; this node goes through its own of them.
        dealt = self.partitions[0].layout.global_batch
        lanes = dealt // self.layout.nodes
        of_node = numbers * self.layout.batch_size + slots
        rounds = of_node // lanes
        return streams, rounds * (dealt - lanes) + of_node + nodes * lanes


def plan_device_per_stream(
    params: OrderParams, world: Layout, draws: EpochDraws, sample_in_epoch: int
) -> DevicePerStreamPlan:
    """Plan an epoch of which `sample_in_epoch` samples have been used before.

    Raises:
        ValueError: the canonical nodes are no multiple of the physical ones, a stream fills no
            device batch on a node, its part of a shuffle block is empty, or as `get_partitions` and
            `check_shuffle` do.
    """
    if params.num_canonical_nodes % world.nodes:
        raise ValueError(
            f"Batching `device_per_stream` needs whole canonical nodes on each of {world.nodes} "
            f"nodes; {params.num_canonical_nodes} can't be dealt out so."
        )
    partitions = [_partition_stream(params, world, index) for index in range(len(params.streams))]
    # All canonical nodes get equally many samples, and so do all nodes.
    lanes = params.num_canonical_nodes // world.nodes * world.ranks
    counts = np.array(
        [partition.whole_batches * lanes // world.batch_size for partition in partitions]
    )
    if not counts.all():
        stream = int(np.flatnonzero(counts == 0)[0])
        raise ValueError(
            f"Stream {stream} gives {params.streams[stream].choose} samples to an epoch, which "
            f"fill no batch of {world.batch_size} on each of {world.nodes} nodes. Make the batch "
            "smaller, weigh the stream more, or use another batching method."
        )
    rng = order_rng(params, draws.epoch)
    orders = [StreamOrder(counts, rng) for _ in range(world.nodes)]
    # Every node is padded to a multiple of all devices, and by one batch at the least.
    devices = world.nodes * world.ranks
    on_node = int(counts.sum())
    num_batches = (on_node + devices - on_node % devices) // world.ranks
    skipped, layout = world.resume(num_batches, sample_in_epoch)
    return DevicePerStreamPlan(layout, partitions, draws, skipped, orders)


def _partition_stream(params: OrderParams, world: Layout, index: int) -> Partition:
    """Deal out a stream to the canonical nodes, one sample at a time."""
    partition = make_partition(
        params.partition_algo,
        params.streams[index].choose,
        params.num_canonical_nodes,
        params.num_canonical_nodes,
        world.ranks,
        world.workers,
        1,
        0,
        params.initial_physical_nodes,
    )
    if params.shuffle and shuffle_block_size(params, index) < 1:
        raise ValueError(
            f"A shuffle block of {params.shuffle_block_size} samples has no place for stream "
            f"{index}, whose proportion is {params.streams[index].proportion:.3g}. Make "
            "`shuffle_block_size` larger."
        )
    check_draws(params, index)
    return partition
