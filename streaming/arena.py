"""Memory through which a loader's worker processes hand batches to the process that uses them.

It is one anonymous file that all of them map: nothing in ``/dev/shm``, no names, gone with the last
process. Each worker has a stretch of its own, in which it lays out buffers when it needs them. A
buffer is the worker's to fill again only when every array over it is gone, in the worker and in the
process that uses the batches, which says so in one byte of the same memory.

Pages that nobody has written to take no memory, so that the file may be far larger than what is
ever used of it.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from multiprocessing import context, reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORKER_BYTES = 8 << 30
"""Addresses that a worker's buffers may take."""
BUFFERS = 512
"""How many buffers a worker may have."""
HELD_BYTES = 256 << 20
"""What the arrays over a loader's buffers may hold on to; those that come later are copied."""
LEAST_BYTES = 64 << 10
"""The size of the smallest buffers."""
_PAGE = 1 << 16  # a multiple of every page size in use


class Arena:
    """The buffers of a loader's workers.

    Args:
        workers: How many workers there are.

    Raises:
        OSError: If the system grants no such memory.

    Example:
        >>> if Arena.is_possible():
        ...     arena = Arena(workers=2)
        ...     buffers = Buffers(arena, worker=1)
        ...     space = buffers.take(4)
        ...     space.array[:4] = 7
        ...     region = space.send()
        ...     received = arena.open(region, 4)
        ...     print(received.tolist(), arena.in_use())
        ...     del space, received
        ...     print(arena.in_use())
        [7, 7, 7, 7] 1
        0
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._states = _rounded(workers * BUFFERS, _PAGE)
        fd = os.memfd_create("streaming-batches", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, self._states + workers * WORKER_BYTES)
        except BaseException:
            os.close(fd)
            raise
        self._attach(fd)

    @staticmethod
    def is_possible() -> bool:
        """Whether this system has nameless memory: Linux does."""
        return sys.platform == "linux" and hasattr(os, "memfd_create")

    def _attach(self, fd: int) -> None:
        self._fd = fd
        self._memory = mmap.mmap(fd, self._states + self.workers * WORKER_BYTES)
        whole = np.frombuffer(self._memory, np.uint8)
        self._address = int(whole.__array_interface__["data"][0])
        # What this process holds of each buffer, in bytes.
        self._held = np.zeros(self.workers * BUFFERS, np.int64)

    def first_byte(self, worker: int) -> int:
        """Where a worker's stretch begins."""
        return self._states + worker * WORKER_BYTES

    def view(self, start: int, size: int, release: int | None = None) -> NDArray[np.uint8]:
        """Bytes of the memory as an array that keeps it mapped.

        Args:
            start: The first byte.
            size: How many.
            release: The buffer to give back when no array over them is left.
        """
        lease: Any = _Lease(self, self._address + start, size, release)
        array: NDArray[np.uint8] = np.asarray(lease)
        return array

    def is_busy(self, number: int) -> bool:
        """Whether a buffer was sent and is not given back yet."""
        return self._memory[number] != 0

    def send(self, number: int) -> None:
        """Mark a buffer as the receiver's."""
        self._memory[number] = 1

    def release(self, number: int) -> None:
        """Give a buffer back to its worker."""
        self._held[number] = 0
        self._memory[number] = 0

    def open(self, region: Region, size: int) -> NDArray[np.uint8]:
        """What a worker has sent in a buffer; a copy of it where too much is held already.

        Args:
            region: Which buffer.
            size: How many bytes of it.
        """
        number, start, capacity = region
        if self._held.sum() + capacity > HELD_BYTES:
            copy: NDArray[np.uint8] = self.view(start, size).copy()
            self.release(number)
            return copy
        self._held[number] = capacity
        return self.view(start, size, release=number)

    def in_use(self) -> int:
        """How many buffers were sent and are not given back yet."""
        return sum(self._memory[: self.workers * BUFFERS])

    def __getstate__(self) -> dict[str, Any]:
        if context.get_spawning_popen() is None:
            raise TypeError("The buffers of a loader's workers go with its workers alone.")
        return {
            "workers": self.workers,
            "_states": self._states,
            "fd": reduction.DupFd(self._fd),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        fd = state.pop("fd").detach()
        self.__dict__.update(state)
        self._attach(fd)

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            self._fd = -1
            os.close(fd)


Region = tuple[int, int, int]
"""A buffer as messages name it: its number among all, its first byte, its size."""


class _Lease:
    """What keeps a buffer from being filled again: the base of all arrays over it."""

    __slots__ = ("__array_interface__", "__weakref__", "_arena", "_number", "_pid")

    def __init__(self, arena: Arena, address: int, size: int, number: int | None) -> None:
        self._arena = arena
        self._number = number
        self._pid = os.getpid()
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }

    def __del__(self) -> None:
        # What a forked process has inherited is not its to give back.
        if self._number is not None and self._pid == os.getpid():
            self._arena.release(self._number)


class Space:
    """A buffer that its worker may fill.

    Args:
        arena: The memory.
        region: The buffer.
    """

    def __init__(self, arena: Arena, region: Region) -> None:
        self._arena = arena
        self.region = region
        self.array = arena.view(region[1], region[2])
        """Its bytes. While an array over them lives, the worker does not fill it again."""
        self.address = int(self.array.__array_interface__["data"][0])

    def send(self) -> Region:
        """Make it the receiver's; return what to tell him."""
        self._arena.send(self.region[0])
        return self.region


class Buffers:
    """A worker's side of an arena: finds a buffer that is free, or lays out another.

    Args:
        arena: The memory.
        worker: The worker's number.
    """

    def __init__(self, arena: Arena, worker: int) -> None:
        self._arena = arena
        self._number = worker * BUFFERS
        self._next = arena.first_byte(worker)
        self._end = self._next + WORKER_BYTES
        self._regions: list[Region] = []
        self._used: list[weakref.ref[Any] | None] = []

    def take(self, size: int) -> Space | None:
        """A buffer of at least ``size`` bytes; None if there can't be another one."""
        capacity = max(LEAST_BYTES, 1 << max(0, size - 1).bit_length())
        at = self._find(capacity)
        if at is None:
            at = self._lay_out(capacity)
        if at is None:
            return None
        space = Space(self._arena, self._regions[at])
        self._used[at] = weakref.ref(space.array.base)
        return space

    def _find(self, capacity: int) -> int | None:
        for at, (number, _, size) in enumerate(self._regions):
            if size == capacity and not self._arena.is_busy(number):
                used = self._used[at]
                if used is None or used() is None:
                    return at
        return None

    def _lay_out(self, capacity: int) -> int | None:
        if len(self._regions) == BUFFERS or self._next + capacity > self._end:
            return None
        self._regions.append((self._number + len(self._regions), self._next, capacity))
        self._used.append(None)
        self._next += capacity
        return len(self._regions) - 1


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step
