"""Where a dataset's process stands among those that train together, as its sample order sees it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing import context
from typing import Any

from streaming.callers import dealt_out_elsewhere
from streaming.world import World

Groups = tuple[tuple[int, ...], ...]
"""Ranks that are given the same samples, group by group; the groups by their first ranks."""


class Placement:
    """Finds a process's place: given, or read where and when it is asked for.

    It is kept by the dataset and goes with it into other processes. A worker that was spawned has
    no process group, and so is told its rank's place by the process that starts it.

    Args:
        rank: Number of this rank, or None to find out.
        world_size: Number of ranks, or None to find out.
        local_world_size: Ranks of each node. None for ``LOCAL_WORLD_SIZE`` if it is set and divides
            the ranks, otherwise 1.
        groups: Which ranks share samples, or None.

    Raises:
        ValueError: If the numbers can't be those of a rank.

    Example:
        >>> Placement(rank=3, world_size=8, local_world_size=2).of_rank()
        World(num_nodes=4, ranks_per_node=2, workers_per_rank=1, worker=3)
    """

    def __init__(
        self,
        rank: int | None = None,
        world_size: int | None = None,
        local_world_size: int | None = None,
        groups: Groups | None = None,
    ) -> None:
        _check(rank, world_size, local_world_size)
        self.groups = groups
        self._given: tuple[int, int, int | None] | None = None
        if world_size is not None:
            self._given = rank or 0, world_size, local_world_size
        self._captured: tuple[int, World, bool] | None = None

    def of_rank(self) -> World:
        """This process's place among all ranks, each of them counted by itself.

        Raises:
            ValueError: If the environment's variables contradict one another.
        """
        if self._given is not None:
            return World.of_rank(*self._given)
        if dealt_out_elsewhere():
            return World.of_rank(0, 1, 1)
        captured = self._of_starter()
        return World.detect() if captured is None else captured[1].detect_workers()

    def shared(self, world: World, replication: int | None) -> World:
        """A place as sample order sees it: the ranks that share their samples count as one.

        Args:
            world: What :meth:`of_rank` found.
            replication: How many consecutive ranks share samples, unless groups were given.

        Raises:
            ValueError: If the ranks can't be grouped so, or this one is in no group.
        """
        if self._is_dealt_out():
            return world
        if self.groups is not None:
            return world.group(self.groups)
        return world if replication is None else world.replicate(replication)

    def _is_dealt_out(self) -> bool:
        """Whether something else deals out the samples, so that everybody reads all of them."""
        if self._given is not None:
            return False
        captured = self._of_starter()
        return dealt_out_elsewhere() or (captured is not None and captured[2])

    def _of_starter(self) -> tuple[int, World, bool] | None:
        """What the process left that spawned this loader worker; None if it is no such worker.

        A dataset may have been spawned before with its rank's process, whose place is another's.
        """
        captured = self._captured
        return captured if captured is not None and captured[0] == _starter() else None

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if context.get_spawning_popen() is not None:
            state["_captured"] = os.getpid(), self.of_rank(), self._is_dealt_out()
        return state


def _starter() -> int | None:
    """Process id of the one whose loader worker this is; None if it is no worker."""
    from torch.utils.data import get_worker_info

    if get_worker_info() is None:
        return None
    parent = multiprocessing.parent_process()
    return os.getppid() if parent is None else parent.pid


def _check(rank: int | None, world_size: int | None, local_world_size: int | None) -> None:
    if world_size is None:
        if rank is not None or local_world_size is not None:
            raise ValueError("`rank` and `local_world_size` need a `world_size`.")
        return
    if rank is None and world_size != 1:
        raise ValueError(f"`world_size` is {world_size}: give this process's `rank`, too.")
    if world_size < 1 or not 0 <= (rank or 0) < world_size:
        raise ValueError(
            f"`rank` is {rank} and `world_size` is {world_size}: ranks number from 0 to one less "
            "than the world's size."
        )
    if local_world_size is not None and (local_world_size < 1 or world_size % local_world_size):
        raise ValueError(
            f"`local_world_size` is {local_world_size} and `world_size` is {world_size}: every "
            "node must have equally many ranks."
        )


def groups_of_mesh(
    replication: int | None, mesh: Any, replicate_dims: str | Sequence[str] | None
) -> Groups | None:
    """Which ranks share samples, by a device mesh.

    Nothing is communicated. A mesh of fewer ranks than the world's, such as that of one pipeline
    stage, stands for itself.

    Args:
        replication: The other way to say it, which does not go with a mesh.
        mesh: A ``torch.distributed.device_mesh.DeviceMesh`` whose dimensions have names, or None.
        replicate_dims: The dimensions along which ranks share samples.

    Returns:
        The groups, ordered by their first ranks, whatever the layout of the mesh; None if there is
        no mesh.

    Raises:
        ValueError: If the mesh lacks one of the names, or the arguments contradict one another.

    Example:
        >>> from types import SimpleNamespace
        >>> import numpy as np
        >>> mesh = SimpleNamespace(mesh=np.arange(8).reshape(2, 4), mesh_dim_names=("tp", "dp"))
        >>> groups_of_mesh(None, mesh, ["tp"])
        ((0, 4), (1, 5), (2, 6), (3, 7))
    """
    if mesh is None:
        if replicate_dims is not None:
            raise ValueError("`replicate_dims` are dimensions of a `device_mesh`: give one.")
        return None
    if replication is not None:
        raise ValueError("Give `replication`, or a `device_mesh` and `replicate_dims`, not both.")
    if replicate_dims is None:
        raise ValueError(
            "Give `replicate_dims`, the names of the device mesh's dimensions along which ranks "
            "share samples; () if they share none."
        )
    import numpy as np

    dims = [replicate_dims] if isinstance(replicate_dims, str) else list(replicate_dims)
    names = list(mesh.mesh_dim_names or ())
    lacking = [name for name in dims if name not in names]
    if lacking:
        raise ValueError(
            f"`replicate_dims` names {', '.join(map(repr, lacking))}, but the device mesh has "
            f"{', '.join(map(repr, names)) or 'no names'}: pass `mesh_dim_names` where it is made."
        )
    ranks = np.array(mesh.mesh.tolist(), np.int64)
    shared = [names.index(name) for name in dict.fromkeys(dims)]
    own = [axis for axis in range(ranks.ndim) if axis not in shared]
    size = int(np.prod([ranks.shape[axis] for axis in shared], dtype=np.int64))
    groups = ranks.transpose(own + shared).reshape(-1, size)
    return tuple(sorted(tuple(sorted(group)) for group in groups.tolist()))
