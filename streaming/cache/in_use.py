"""Which directories iterations are reading, for whoever would replace a data set in one.

An iteration holds a shared lock for each of its directories, all on one file of this user's, so
that it takes one descriptor for any number of them. It is a courtesy: that versions are not mixed
does not depend on it, but on :meth:`Origin.check_here`.
"""

import contextlib
import hashlib
import os
import struct
import sys
from collections.abc import Iterable, Iterator

from streaming.cache import claims

_LINUX = sys.platform.startswith("linux")
if _LINUX:
    import fcntl

_FIRST = 1 << 49
"""Where these locks begin: past those for what is kept, whose numbers have 48 bits."""


class _Locks:
    """A descriptor with locks on it, which a forked child closes as it does with claims."""

    def __init__(self, file: str) -> None:
        with claims._open_lock:
            self._fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
            claims._open_claims.add(self)  # type: ignore[arg-type]

    def lock(self, folder: str, kind: int) -> bool:
        return _lock(self._fd, _byte(folder), kind)

    def close(self) -> None:
        with claims._open_lock:
            claims._open_claims.discard(self)
            fd, self._fd = self._fd, -1
        if fd >= 0:
            # Unlock first: a process forked meanwhile may hold the same description open.
            with contextlib.suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _request(fcntl.F_UNLCK, 0, 0))
            os.close(fd)


@contextlib.contextmanager
def in_use(file: str | None, folders: Iterable[str]) -> Iterator[None]:
    """Let others know that these directories are being read, for as long as the block lasts.

    Args:
        file: The file that the locks are on; None for none.
        folders: The directories.
    """
    locks = None
    if file is not None and _LINUX:
        with contextlib.suppress(OSError):
            locks = _Locks(file)
            for folder in folders:
                locks.lock(folder, fcntl.F_RDLCK)
    try:
        yield
    finally:
        if locks is not None:
            locks.close()


@contextlib.contextmanager
def not_in_use(file: str | None, folder: str) -> Iterator[bool]:
    """Tell whether no iteration reads a directory, and let none begin until the block's end.

    One that would begin meanwhile goes on without a lock.
    """
    if file is None or not _LINUX:
        yield True
        return
    try:
        locks = _Locks(file)
    except OSError:
        yield True
        return
    try:
        yield locks.lock(folder, fcntl.F_WRLCK)
    except OSError:
        yield True
    finally:
        locks.close()


def _byte(folder: str) -> int:
    digest = hashlib.blake2b(os.path.realpath(folder).encode(), digest_size=6).digest()
    return _FIRST + int.from_bytes(digest, "big")


def _lock(fd: int, byte: int, kind: int) -> bool:
    """Lock a byte; False if another description's lock is in the way."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _request(kind, byte, 1))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _request(kind: int, start: int, length: int) -> bytes:
    # struct flock of 64-bit Linux: type, whence, start, length, and a pid that has to be 0.
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)
