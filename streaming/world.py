"""Which process this is among those that train together: node, rank and worker."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["World"]


class World:
    """The nodes, ranks and workers of a training run, and which of them this process is.

    All nodes have equally many ranks, and all ranks equally many workers. A rank that loads its
    data itself counts as its own one worker. Numbers are from 0; those without `_of_` in their
    names are global.

    Args:
        num_nodes: nodes of the run.
        ranks_per_node: ranks of each node.
        workers_per_rank: workers of each rank.
        worker: number of this worker among all.

    Attributes:
        node, num_nodes: the worker's node, of how many.
        rank, num_ranks: the worker's rank, of how many in all.
        rank_of_node, ranks_per_node: the rank on its node, of how many.
        worker, num_workers: the worker, of how many in all.
        worker_of_node, workers_per_node: the worker on its node, of how many.
        worker_of_rank, workers_per_rank: the worker of its rank, of how many.
        is_leader: whether this is the first worker of all.
        is_local_leader: whether this is the first worker of its node.
        is_multinode: whether there is more than one node.

    Raises:
        ValueError: a count is not positive, or there is no such worker.

    >>> world = World(num_nodes=2, ranks_per_node=4, workers_per_rank=2, worker=11)
    >>> world.node, world.rank, world.rank_of_node, world.worker_of_rank
    (1, 5, 1, 1)
    """

    def __init__(
        self, num_nodes: int, ranks_per_node: int, workers_per_rank: int, worker: int
    ) -> None:
        for name, count in (
            ("nodes", num_nodes),
            ("ranks per node", ranks_per_node),
            ("workers per rank", workers_per_rank),
        ):
            if count < 1:
                raise ValueError(f"A world has 1 or more {name}, not {count}.")
        workers_per_node = ranks_per_node * workers_per_rank
        num_workers = num_nodes * workers_per_node
        if not 0 <= worker < num_workers:
            raise ValueError(
                f"There is no worker {worker} in a world of {num_workers}: they number 0 to "
                f"{num_workers - 1}."
            )
        self.num_nodes, self.ranks_per_node = num_nodes, ranks_per_node
        self.workers_per_rank, self.workers_per_node = workers_per_rank, workers_per_node
        self.num_ranks, self.num_workers = num_nodes * ranks_per_node, num_workers
        self.is_multinode = num_nodes > 1

        self.worker = worker
        self.node, self.worker_of_node = divmod(worker, workers_per_node)
        self.rank, self.worker_of_rank = divmod(worker, workers_per_rank)
        self.rank_of_node = self.rank % ranks_per_node

        self.is_leader = worker == 0
        self.is_local_leader = self.worker_of_node == 0

    @classmethod
    def detect(cls) -> Self:
        """Find out which process this is.

        The rank is read from the variables that torchrun sets, `RANK`, `WORLD_SIZE`, `LOCAL_RANK`
        and `LOCAL_WORLD_SIZE`, or from torch's process group if one is initialised. The worker is
        the `DataLoader`'s whose process this is. Nothing is imported or initialised for it.

        Warns:
            UserWarning: the variables and the process group disagree; the group is believed.

        Raises:
            ValueError: a variable is no number, or they contradict one another.
        """
        ranks = _detect_ranks()
        worker, num_workers = _detect_worker()
        return cls(
            ranks.size // ranks.local_size,
            ranks.local_size,
            num_workers,
            ranks.rank * num_workers + worker,
        )

    @classmethod
    def of_rank(cls, rank: int, num_ranks: int, ranks_per_node: int | None = None) -> Self:
        """The place of a rank that is known, with the worker found out.

        Args:
            rank: number of the rank.
            num_ranks: ranks there are.
            ranks_per_node: ranks of each node. None: `LOCAL_WORLD_SIZE` if it is set and divides
                the ranks, otherwise 1.

        Raises:
            ValueError: there is no such rank, or nodes would have unequally many.
        """
        if ranks_per_node is None:
            ranks_per_node = _read("LOCAL_WORLD_SIZE", 1)
            if ranks_per_node < 1 or num_ranks % ranks_per_node:
                ranks_per_node = 1
        if num_ranks % ranks_per_node:
            raise ValueError(
                f"{num_ranks} ranks can't be {ranks_per_node} on every node: every node must have "
                "equally many."
            )
        worker, workers = _detect_worker()
        return cls(num_ranks // ranks_per_node, ranks_per_node, workers, rank * workers + worker)

    def detect_workers(self) -> Self:
        """The same rank, with the worker found out anew.

        Use it in a worker on the world that its rank has detected, as a worker that was spawned may
        know nothing of its rank.
        """
        worker, num_workers = _detect_worker()
        return type(self)(
            self.num_nodes, self.ranks_per_node, num_workers, self.rank * num_workers + worker
        )

    def replicate(self, replication: int) -> Self:
        """The world as sample order sees it when consecutive ranks share their samples.

        Each group of `replication` ranks becomes one rank. Where a node does not hold whole groups,
        or nodes would come out unequal, all of them become one node.

        Args:
            replication: ranks that get the same samples.

        Raises:
            ValueError: `replication` is not positive, or does not divide the number of ranks.

        >>> world = World(2, 4, 1, 6).replicate(2)
        >>> world.num_nodes, world.ranks_per_node, world.rank
        (1, 4, 3)
        """
        if replication < 1 or self.num_ranks % replication:
            raise ValueError(
                f"`replication` must be positive and divide the number of ranks, {self.num_ranks}; "
                f"it is {replication}."
            )
        return self._as_one_of(self.num_ranks // replication, self.rank // replication)

    def group(self, groups: Sequence[Sequence[int]]) -> Self:
        """The world as sample order sees it when the ranks of each group share their samples.

        It is `replicate` for groups of any ranks, in the order in which they are given.

        Raises:
            ValueError: this rank is in none of them.

        >>> World(1, 4, 1, 3).group([(0, 2), (1, 3)])
        World(num_nodes=1, ranks_per_node=2, workers_per_rank=1, worker=1)
        """
        for place, group in enumerate(groups):
            if self.rank in group:
                return self._as_one_of(len(groups), place)
        raise ValueError(
            f"Rank {self.rank} is not in the device mesh: give its dataset the mesh that it is in."
        )

    def _as_one_of(self, num_ranks: int, rank: int) -> Self:
        """This world with so many ranks, and this one's number among them."""
        num_nodes, left_over = divmod(num_ranks, self.ranks_per_node)
        ranks_per_node = self.ranks_per_node
        if left_over or not num_nodes:
            num_nodes, ranks_per_node = 1, num_ranks
        worker = rank * self.workers_per_rank + self.worker_of_rank
        return type(self)(num_nodes, ranks_per_node, self.workers_per_rank, worker)

    def copy(self) -> Self:
        """An equal world."""
        return type(self)(self.num_nodes, self.ranks_per_node, self.workers_per_rank, self.worker)

    def to_json(self) -> dict[str, Any]:
        """All attributes, by name, in the order in which they have always been written."""
        return {name: getattr(self, name) for name in _JSON_KEYS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, World) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.num_nodes, self.ranks_per_node, self.workers_per_rank, self.worker))

    def __repr__(self) -> str:
        return (
            f"World(num_nodes={self.num_nodes}, ranks_per_node={self.ranks_per_node}, "
            f"workers_per_rank={self.workers_per_rank}, worker={self.worker})"
        )


_JSON_KEYS = (
    *("node", "num_nodes", "is_multinode"),
    *("rank", "num_ranks", "rank_of_node", "ranks_per_node"),
    *("worker", "num_workers", "worker_of_node", "workers_per_node"),
    *("worker_of_rank", "workers_per_rank", "is_leader", "is_local_leader"),
)


class _Ranks(NamedTuple):
    """A rank, of how many, and how many of them each node has."""

    rank: int
    size: int
    local_size: int


def _detect_ranks() -> _Ranks:
    """What the process group says of this rank, or else the environment."""
    # Only a torch that the user has imported can have a process group.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return _from_environment()
    return _from_group(distributed.get_rank(), distributed.get_world_size())


def _from_environment() -> _Ranks:
    rank, size = _read("RANK", 0), _read("WORLD_SIZE", 1)
    local_rank, local_size = _read("LOCAL_RANK", 0), _read("LOCAL_WORLD_SIZE", 1)
    if size < 1 or not 0 <= rank < size:
        raise ValueError(
            f"RANK is {rank} and WORLD_SIZE is {size}: ranks number from 0 to one less than the "
            "world's size. Set both as torchrun does, or neither."
        )
    if local_size < 1 or size % local_size:
        raise ValueError(
            f"WORLD_SIZE is {size} and LOCAL_WORLD_SIZE is {local_size}: every node must have "
            "equally many ranks. Set them as torchrun does."
        )
    if "LOCAL_WORLD_SIZE" in os.environ and not 0 <= local_rank < local_size:
        raise ValueError(
            f"LOCAL_RANK is {local_rank} and LOCAL_WORLD_SIZE is {local_size}: a node's ranks "
            "number from 0 to one less than their number. Set both as torchrun does, or neither."
        )
    return _Ranks(rank, size, local_size)


def _from_group(rank: int, size: int) -> _Ranks:
    """The process group's numbers. It knows nothing of nodes: these are the environment's."""
    local_size = _read("LOCAL_WORLD_SIZE", 1)
    environment = _read("RANK", rank), _read("WORLD_SIZE", size)
    if environment != (rank, size):
        warnings.warn(
            f"RANK and WORLD_SIZE say that this is rank {environment[0]} of {environment[1]}, "
            f"torch's process group says {rank} of {size}. The group is believed.",
            stacklevel=4,
        )
    if local_size < 1 or size % local_size:
        warnings.warn(
            f"LOCAL_WORLD_SIZE is {local_size}, which does not divide the process group's {size} "
            "ranks. Each rank is taken for a node of its own.",
            stacklevel=4,
        )
        local_size = 1
    return _Ranks(rank, size, local_size)


def _read(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be a whole number, not {text!r}.") from None


def _detect_worker() -> tuple[int, int]:
    """The number of the `DataLoader` worker that this process is, and of how many; or 0 of 1."""
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
