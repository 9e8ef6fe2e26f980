"""From a dataset's arguments and the world to the plan of an epoch."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.epochs import Position
from streaming.order.draws import EpochDraws
from streaming.order.partition import common_length
from streaming.order.plan import EpochPlan, OrderParams, plan_epoch
from streaming.plans import draws_for
from streaming.progress import Standing
from streaming.world import World

BLOCK = 4096
"""Sample ids that an iteration takes from its plan at once."""

Place = tuple[int, int, int]
"""A worker's node, its rank on that node, and its number in that rank."""


def canonical_nodes(dataset: Any, world: World) -> int:
    """How many canonical nodes a run has that begins in this world."""
    if dataset.num_canonical_nodes is not None:
        return int(dataset.num_canonical_nodes)
    return world.num_nodes * (64 if dataset.shuffle_algo in ("py1s", "py2s") else 1)


def order_params(
    dataset: Any, world: World, batch_size: int | None = None, **settled: Any
) -> OrderParams:
    """What determines the order of a dataset's samples, with the defaults that depend on the world.

    Args:
        dataset: A ``StreamingDataset``.
        world: The world, replica groups counted as one rank.
        batch_size: What to take where the dataset has no batch size.
        settled: ``num_canonical_nodes`` and ``initial_physical_nodes``, where they are not to be
            the dataset's.

    Raises:
        ValueError: If there is no batch size.
    """
    batch_size = dataset.batch_size or batch_size
    if batch_size is None:
        raise ValueError(
            "Give StreamingDataset its `batch_size`, the same as the DataLoader's: the order of "
            "samples, and resuming in it, depend on it."
        )
    nodes = settled.get("num_canonical_nodes") or canonical_nodes(dataset, world)
    settled |= {
        "batch_size": batch_size,
        "samples_per_shard": dataset.samples_per_shard,
        "num_canonical_nodes": nodes,
        "shuffle_block_size": block_size(dataset, nodes),
    }
    return OrderParams.from_dataset(SimpleNamespace(**{**vars(dataset), **settled}))


def block_size(dataset: Any, nodes: int) -> int:
    """The shuffle block size of a run with so many canonical nodes."""
    return int(dataset.given_block_size or max(4_000_000 // nodes, 1 << 18))


def plan(
    params: OrderParams,
    world: World,
    epoch: int = 0,
    sample_in_epoch: int = 0,
    draws: EpochDraws | None = None,
) -> EpochPlan:
    """The plan of an epoch, or of what is left of it, for a world.

    Args:
        params: The dataset's order.
        world: The world.
        epoch: The epoch.
        sample_in_epoch: Samples of it that are used already, over all ranks.
        draws: Its draws, if another plan of the same order has made them.
    """
    return plan_epoch(
        params,
        world.num_nodes,
        world.ranks_per_node,
        world.workers_per_rank,
        epoch,
        sample_in_epoch,
        draws=draws or draws_for(params, epoch, world.num_nodes, world.node),
    )


def count_batches(
    params: OrderParams,
    world: World,
    workers: int,
    batch_size: int | None,
    drop_last: bool,
    position: Position = (0, 0),
) -> int:
    """How many batches a loader gives a rank in an epoch.

    Args:
        params: The dataset's order.
        world: The world, and the rank's place in it.
        workers: The loader's number of workers.
        batch_size: The loader's batch size; None if it gives samples one by one.
        drop_last: Whether it drops each worker's last batch if that is not full.
        position: From where in which epoch on.
    """
    workers = max(1, workers)
    world = World(world.num_nodes, world.ranks_per_node, workers, world.rank * workers)
    epoch = plan(params, world, *position)
    size = batch_size or 1
    counts = [epoch.count(world.node, world.rank_of_node, worker) for worker in range(workers)]
    return sum(count // size if drop_last else -(-count // size) for count in counts)


def place_of(world: World) -> Place:
    """A worker's place, as plans name it."""
    return world.node, world.rank_of_node, world.worker_of_rank


def sample_blocks(
    epoch: EpochPlan, place: Place, skip: int = 0, size: int = BLOCK
) -> Iterator[NDArray[np.int64]]:
    """A worker's samples in order, without padding, a block at a time.

    Args:
        epoch: The plan.
        place: The worker's place.
        skip: How many of its samples to leave out.
        size: How many there are in a block at most.
    """
    _, _, _, batches, batch_size = epoch.shape
    # Padding may stand between samples only in the last batch, which is counted through.
    start = min(skip, max(0, batches - 1) * batch_size)
    skip -= start
    for begin in range(start, batches * batch_size, size):
        ids = epoch.ids(*place, begin, min(begin + size, batches * batch_size))
        ids = ids[ids >= 0]
        yield ids[skip:]
        skip = max(0, skip - len(ids))


def begin_at(params: OrderParams, world: World, position: Position) -> Position:
    """Where to begin: an epoch of which nothing is left makes way for the next one.

    It may well go on past its size, with repeats and, between them, samples that have not come yet.
    """
    epoch, sample = position
    if not sample:
        return position
    if params.batching_method == "random":
        parts = 1 if params.pad == "none" else params.num_canonical_nodes
        over = sample >= common_length(params.epoch_size, parts)
    else:
        over = False
    if over or plan(params, world, epoch, sample).empty:
        return epoch + 1, 0
    return position


def count_of(params: OrderParams, world: World, position: Position) -> int:
    """How many samples a worker is given from a position on."""
    return plan(params, world, *position).count(*place_of(world))


def standing_of(world: World) -> Standing:
    """A worker's part in a world, whatever its rank."""
    return world.num_ranks, world.workers_per_rank, world.worker_of_rank
