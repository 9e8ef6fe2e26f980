"""What a node's workers will need, in order: from the plan of an epoch to what is fetched ahead."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.cache import Needs
from streaming.cache.ranges import is_sparse
from streaming.order.plan import EpochPlan
from streaming.planning import BLOCK, Place, place_of, sample_blocks
from streaming.world import World

Ints = NDArray[np.int64]


def needs_of(dataset: Any, epoch: EpochPlan, place: Place, skip: int) -> Needs:
    """What an iteration will need, of this worker and of all of its node.

    Args:
        dataset: A ``StreamingDataset``.
        epoch: The plan.
        place: This worker's place in it.
        skip: How many of its samples to leave out; the others are taken to be as far.
    """
    places = _places_on_node(dataset, place)
    locate = dataset.spanner.locate
    return Needs(
        node=(locate(ids)[0] for ids in _interleaved(epoch, places, skip)),
        own=(locate(ids) for ids in sample_blocks(epoch, place, skip)),
        workers=len(places),
        samples_ahead=dataset._samples_ahead,
        sample_bytes=dataset._sample_bytes(),
        batch_size=dataset.batch_size or 1,
        sparse=sparse_streams(dataset),
    )


def processes_on_node(dataset: Any) -> int:
    """How many processes of this node read the dataset."""
    world = dataset._rank_world()
    return int(world.ranks_per_node * world.workers_per_rank)


def _places_on_node(dataset: Any, place: Place) -> list[Place]:
    """The places of all workers of this machine, each once that several replicas share."""
    world: World = dataset._rank_world()
    places = {place}
    first = world.node * world.ranks_per_node
    for rank in range(first, first + world.ranks_per_node):
        for worker in range(world.workers_per_rank):
            number = rank * world.workers_per_rank + worker
            other = World(world.num_nodes, world.ranks_per_node, world.workers_per_rank, number)
            found = place_of(dataset._placement.shared(other, dataset.replication))
            if found[0] == place[0]:
                places.add(found)
    return in_turn(places)


def in_turn(places: Iterable[Place]) -> list[Place]:
    """Places in order of use: workers take turns, and within a turn each rank has its batch."""
    return sorted(places, key=lambda place: (place[2], place[1]))


def _interleaved(epoch: EpochPlan, places: list[Place], skip: int) -> Iterator[Ints]:
    """The samples of several workers in the order in which their node needs them."""
    size = max(64, BLOCK // len(places))
    return interleave([sample_blocks(epoch, place, skip, size) for place in places])


def interleave(blocks: Sequence[Iterator[Ints]]) -> Iterator[Ints]:
    """The samples of several workers by their positions: first the first one of each.

    Args:
        blocks: The samples of each worker, in blocks of equal sizes.

    Example:
        >>> list(interleave([iter([np.array([1, 2])]), iter([np.array([7])])]))
        [array([1, 7, 2])]
    """
    none = np.empty(0, np.int64)
    for parts in zip_longest(*blocks, fillvalue=none):
        table = np.full((max(map(len, parts)), len(parts)), -1, np.int64)
        for column, part in enumerate(parts):
            table[: len(part), column] = part
        yield table[table >= 0]


def sparse_streams(dataset: Any) -> tuple[int, ...]:
    """The streams of which an epoch takes so little that their shards are not fetched."""
    found = []
    for number, stream in enumerate(dataset.streams):
        samples = int(dataset.samples_per_stream[number])
        shards = int(dataset.shards_per_stream[number])
        if not stream.choose or stream.choose >= samples:
            continue
        # A shard that gives any gives a whole pick.
        in_shard = min(1.0, dataset.sampling_granularity * shards / samples)
        index = dataset._directories[number].index
        sample_bytes = float(index.raw_bytes.sum()) / samples
        if is_sparse(stream.choose / samples, in_shard, sample_bytes):
            found.append(number)
    return tuple(found)
