"""The whole order of an epoch as one array, by the names that it has in mosaicml-streaming."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.params import OrderParams
from streaming.order.partition import check_used
from streaming.order.plan import plan_epoch

if TYPE_CHECKING:
    from streaming.world import World


def generate_work(
    batching_method: str, dataset: Any, world: World, epoch: int, sample_in_epoch: int
) -> NDArray[np.int64]:
    """Make the whole order of an epoch, exactly as mosaicml-streaming deals it out.

    Args:
        batching_method: `random`, `stratified`, `per_stream` or `device_per_stream`.
        dataset: what `OrderParams.from_dataset` reads the parameters from.
        world: the world, in which each group of replicas counts as one rank.
        epoch: number of the epoch, from 0.
        sample_in_epoch: samples used before, over all ranks.

    Returns:
        Sample ids, -1 where there is padding, of shape (nodes, ranks per node, workers per rank,
        batches per worker, batch size). An `EpochPlan` gives the same a slice at a time.

    Raises:
        ValueError: the parameters, the world or what was used before don't fit together.

    >>> from types import SimpleNamespace
    >>> from streaming.world import World
    >>> stream = SimpleNamespace(choose=4, proportion=1.0)
    >>> dataset = SimpleNamespace(
    ...     streams=[stream], samples_per_shard=[2, 2], shards_per_stream=[2], epoch_size=4,
    ...     num_canonical_nodes=1, batch_size=2, batching_method="random", partition_algo="relaxed",
    ...     sampling_method="balanced", sampling_granularity=1, shuffle=False, shuffle_algo="py1e",
    ...     shuffle_seed=9176, shuffle_block_size=1 << 18)
    >>> generate_work("random", dataset, World(1, 1, 1, 0), epoch=0, sample_in_epoch=0).tolist()
    [[[[[0, 1], [2, 3]]]]]
    """
    params = replace(OrderParams.from_dataset(dataset), batching_method=batching_method)
    if batching_method == "random":
        samples = sum(stream.choose for stream in params.streams)
        check_used(samples, world.num_ranks, sample_in_epoch)
    plan = plan_epoch(
        params,
        world.num_nodes,
        world.ranks_per_node,
        world.workers_per_rank,
        epoch,
        sample_in_epoch,
        even_ranks=False,
    )
    return plan.to_array()


def generate_work_random_batching(
    dataset: Any, world: World, epoch: int, sample_in_epoch: int
) -> NDArray[np.int64]:
    """`generate_work` by the method `random`."""
    return generate_work("random", dataset, world, epoch, sample_in_epoch)


def generate_work_stratified_batching(
    dataset: Any, world: World, epoch: int, sample_in_epoch: int
) -> NDArray[np.int64]:
    """`generate_work` by the method `stratified`."""
    return generate_work("stratified", dataset, world, epoch, sample_in_epoch)


def generate_work_per_stream_batching(
    dataset: Any, world: World, epoch: int, sample_in_epoch: int
) -> NDArray[np.int64]:
    """`generate_work` by the method `per_stream`."""
    return generate_work("per_stream", dataset, world, epoch, sample_in_epoch)


def generate_work_device_per_stream_batching(
    dataset: Any, world: World, epoch: int, sample_in_epoch: int
) -> NDArray[np.int64]:
    """`generate_work` by the method `device_per_stream`."""
    return generate_work("device_per_stream", dataset, world, epoch, sample_in_epoch)
