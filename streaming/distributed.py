"""Who this process is, and a few collectives, for scripts.

The library itself needs no process group. These functions use the default group of
`torch.distributed` if one is initialised; otherwise they answer from the variables that torchrun
sets, and without those for a process that is alone.
"""

from __future__ import annotations

import logging
import os
from typing import TypeVar

import torch
import torch.distributed as dist

__all__ = [
    "all_gather",
    "all_gather_object",
    "barrier",
    "broadcast",
    "get_local_rank",
    "get_local_world_size",
    "get_rank",
    "get_world_size",
    "maybe_init_dist",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")


def _has_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def _environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text or default)
    except ValueError:
        raise ValueError(
            f"environment variable {name} has to be a whole number: {text!r}"
        ) from None


def get_rank() -> int:
    """This process's number among all: of the process group, of `RANK`, or 0.

    Raises:
        ValueError: `RANK` is not a whole number.
    """
    return dist.get_rank() if _has_group() else _environment("RANK", 0)


def get_world_size() -> int:
    """How many processes there are: of the process group, of `WORLD_SIZE`, or 1.

    Raises:
        ValueError: `WORLD_SIZE` is not a whole number.
    """
    return dist.get_world_size() if _has_group() else _environment("WORLD_SIZE", 1)


def get_local_rank() -> int:
    """This process's number on its node: `LOCAL_RANK`, or 0.

    Raises:
        ValueError: `LOCAL_RANK` is not a whole number.
    """
    return _environment("LOCAL_RANK", 0)


def get_local_world_size() -> int:
    """How many processes this node has: `LOCAL_WORLD_SIZE`, or 1.

    Raises:
        ValueError: `LOCAL_WORLD_SIZE` is not a whole number.
    """
    return _environment("LOCAL_WORLD_SIZE", 1)


def _alone(what: str) -> bool:
    """Whether there is nobody to talk to; False if a process group carries the message.

    Raises:
        RuntimeError: There are other processes, but no group that reaches them. To go on as if
            the message had been exchanged would be a wrong result without a sign of it.
    """
    if _has_group():
        return False
    size = get_world_size()
    if size > 1:
        raise RuntimeError(
            f"{what} over WORLD_SIZE={size} processes needs a process group: call "
            f"maybe_init_dist() or torch.distributed.init_process_group() first"
        )
    return True


def barrier() -> None:
    """Wait until every process has come here.

    Without a process group it returns at once, with a warning if there are other processes.
    """
    if _has_group():
        dist.barrier()
    elif get_world_size() > 1:
        logger.warning(
            "barrier() waits for nobody: WORLD_SIZE is %d, but no process group is initialised",
            get_world_size(),
        )


def broadcast(tensor: torch.Tensor, src: int) -> None:
    """Overwrite `tensor`, in place, with that of process `src`.

    Raises:
        RuntimeError: There are other processes, but no process group.
    """
    if not _alone("broadcast"):
        dist.broadcast(tensor, src)


def all_gather(tensor_list: list[torch.Tensor], tensor: torch.Tensor) -> None:
    """Overwrite the tensors of a list, one for each process, with every process's `tensor`.

    Raises:
        RuntimeError: There are other processes, but no process group.
        ValueError: This process is alone and the list's length isn't 1.

    Example:
        >>> got = [torch.zeros(2)]
        >>> all_gather(got, torch.ones(2))
        >>> got
        [tensor([1., 1.])]
    """
    if not _alone("all_gather"):
        dist.all_gather(tensor_list, tensor)
        return
    if len(tensor_list) != 1:
        raise ValueError(f"all_gather over one process got a list of {len(tensor_list)} tensors")
    tensor_list[0].copy_(tensor)


def all_gather_object(obj: T) -> list[T]:
    """Every process's object, by rank; they have to be picklable.

    Raises:
        RuntimeError: There are other processes, but no process group.

    Example:
        >>> all_gather_object({"a": 1})
        [{'a': 1}]
    """
    if _alone("all_gather_object"):
        return [obj]
    gathered: list[T | None] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, obj)
    return gathered  # type: ignore[return-value]


def maybe_init_dist() -> bool:
    """Make the default process group if there are several processes and it isn't there yet.

    Where CUDA is available the group uses NCCL, elsewhere Gloo; the address is read from
    `MASTER_ADDR` and `MASTER_PORT`.

    Returns:
        Whether this call made it; who made it should destroy it.
    """
    if not dist.is_available() or dist.is_initialized() or get_world_size() == 1:
        return False
    nccl = torch.cuda.is_available() and dist.is_nccl_available()
    dist.init_process_group(
        "nccl" if nccl else "gloo", rank=get_rank(), world_size=get_world_size()
    )
    return True
