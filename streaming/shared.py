"""Anonymous memory that a process shares with its workers, and that vanishes with the last of them.

It has no name anywhere in the system, so nothing can collide with it and nothing is left when
every process is killed. Forked processes inherit it; processes that are being spawned are handed
its descriptor; any other copy (a pickle sent to another machine, a deep copy) starts with memory
of its own that holds the values at the time of copying.
"""

import mmap
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, reduction
from typing import Any

if sys.platform != "win32":
    import fcntl


class SharedInts:
    """A fixed number of int64 in anonymous shared memory, with one lock over all of them.

    The lock is a record lock of the kernel: it is released when its holder dies, however it dies.

    Args:
        size: How many integers. All start as 0.
        kind: What the system's lists of open files call it.

    Example:
        >>> ints = SharedInts(4)
        >>> with ints.lock():
        ...     ints[2] = 7
        >>> ints[2]
        7
    """

    def __init__(self, size: int, kind: str = "streaming") -> None:
        self.size, self.kind = size, kind
        self._attach(_anonymous_file(size * 8, kind))

    def _attach(self, fd: int) -> None:
        self._fd = fd
        memory = mmap.mmap(fd, self.size * 8) if fd >= 0 else mmap.mmap(-1, self.size * 8)
        # The view keeps the mapping alive; reading one integer through it costs tens of
        # nanoseconds.
        self._view = memoryview(memory).cast("q")
        self._pid = os.getpid()
        self._thread_lock = threading.Lock()

    def __getitem__(self, at: int) -> int:
        return self._view[at]

    def __setitem__(self, at: int, value: int) -> None:
        self._view[at] = value

    def view(self, at: int) -> memoryview:
        """One of the integers, as a view of length 1 that shows what it is at any time."""
        return self._view[at : at + 1]

    def write(self, at: int, values: bytes) -> None:
        """Set consecutive integers from ``at`` on to the bytes of a whole number of them."""
        self._view[at : at + len(values) // 8] = memoryview(values).cast("q")

    def slice(self, start: int, stop: int) -> list[int]:
        """The integers at ``[start, stop)``, copied."""
        return self._view[start:stop].tolist()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock over all integers, against threads and processes that share them."""
        if self._pid != os.getpid():
            # A fork may have copied the thread lock while another thread held it.
            self._pid, self._thread_lock = os.getpid(), threading.Lock()
        with self._thread_lock:
            if self._fd < 0:
                yield
                return
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def __getstate__(self) -> dict[str, Any]:
        if self._fd >= 0 and context.get_spawning_popen() is not None:
            return {"size": self.size, "kind": self.kind, "fd": reduction.DupFd(self._fd)}
        return {"size": self.size, "kind": self.kind, "values": self._view.tolist()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.size, self.kind = state["size"], state["kind"]
        if "fd" in state:
            self._attach(state["fd"].detach())
            return
        self._attach(_anonymous_file(self.size * 8, self.kind))
        for at, value in enumerate(state["values"]):
            self._view[at] = value

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            self._fd = -1
            os.close(fd)


def _anonymous_file(size: int, kind: str) -> int:
    """A descriptor of ``size`` nameless zero bytes, or -1 where there is no such thing."""
    if sys.platform == "win32":
        return -1
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(kind)
    else:
        fd, path = tempfile.mkstemp(prefix=".streaming-")
        os.unlink(path)
    os.ftruncate(fd, size)
    return fd


def is_alive(pid: int) -> bool:
    """Whether a process is there that may share memory with this one."""
    if pid <= 0:
        return False
    if sys.platform == "win32":
        return True  # signal 0 would end it there, and no memory is shared there either
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
