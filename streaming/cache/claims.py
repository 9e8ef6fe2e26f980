"""Claims: who may fetch or evict a shard, agreed by locks that the kernel drops with their holder.

A claim on shard ``i`` of a directory is an exclusive lock on byte ``i`` of the directory's
``index.json``. On Linux these are open-file-description locks, each on a descriptor of its own, so
that threads exclude one another like processes do. Elsewhere ``filelock`` files in a hidden folder
of the directory stand in.
"""

import errno
import logging
import os
import struct
import sys
import threading
from pathlib import Path
from types import TracebackType

from streaming.cache.waiting import waiting

log = logging.getLogger("streaming")

SPACE = 1 << 40
"""The byte whose lock guards the reckoning of the directory's space: past any shard's number."""

_LINUX = sys.platform.startswith("linux")
if _LINUX:
    import fcntl

# Errors by which a file system says that it has no locks, or that this user may not take any.
_NO_LOCKS = {
    errno.ENOLCK,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EINVAL,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
}
_open_claims: "set[Claim]" = set()
_open_lock = threading.Lock()
_thread = threading.local()


class Claim:
    """An exclusive claim on one byte of a directory's index, until released or its process ends.

    Args:
        index: The directory's ``index.json``.
        byte: The shard's number, or :data:`SPACE`.

    Example:
        >>> import tempfile
        >>> index = Path(tempfile.mkdtemp(), "index.json")
        >>> _ = index.write_text("{}")
        >>> first, second = Claim(index, 3), Claim(index, 3)
        >>> first.try_acquire(), second.try_acquire()
        (True, False)
        >>> first.release()
        >>> second.try_acquire()
        True
        >>> second.release()
    """

    __slots__ = ("_fallback", "_fd", "byte", "index", "is_real")

    def __init__(self, index: str | Path, byte: int) -> None:
        self.index = str(index)
        self.byte = byte
        self.is_real = True
        """False once the file system was found to have no locks: then everyone may go ahead."""
        self._fd = -1
        self._fallback: object = None

    def try_acquire(self) -> bool:
        """Take the claim if nobody has it; never waits."""
        return self._note(self._acquire(block=False))

    def acquire(self, why: str | None = None) -> None:
        """Take the claim, waiting for whoever has it; a wait that lasts is logged.

        Args:
            why: What the wait is for, to stand in the log.
        """
        if self.try_acquire():
            return
        with waiting(why or f"{self}, which another has"):
            self._note(self._acquire(block=True))

    def is_held_here(self) -> bool:
        """Whether this thread holds a claim on the same byte."""
        return (self.index, self.byte) in _held_here()

    def release(self) -> None:
        """Give the claim back. Harmless if it is not held."""
        _held_here().discard((self.index, self.byte))
        if self._fallback is not None:
            self._fallback.release()  # type: ignore[attr-defined]
            self._fallback = None
        if self._fd >= 0:
            # Unlock first: a process forked meanwhile may hold the same description open.
            _lock(self._fd, self.byte, fcntl.F_UNLCK, block=False)
            self._close()

    def __str__(self) -> str:
        folder = os.path.dirname(self.index)
        return f"the space of {folder}" if self.byte == SPACE else f"shard {self.byte} of {folder}"

    def __enter__(self) -> "Claim":
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _note(self, acquired: bool) -> bool:
        if acquired:
            _held_here().add((self.index, self.byte))
        return acquired

    def _acquire(self, block: bool) -> bool:
        if not _LINUX:
            return self._acquire_fallback(block)
        while True:
            try:
                self._open()
            except OSError as error:
                return self._go_without(error)
            try:
                if not _lock(self._fd, self.byte, fcntl.F_WRLCK, block):
                    self._close()
                    return False
            except OSError as error:
                self._close()
                return self._go_without(error)
            except BaseException:
                self._close()
                raise
            if _is_still(self._fd, self.index):
                return True
            # The index was replaced while we waited: the lock that counts is on the new one.
            self._close()

    def _open(self) -> None:
        # Nobody forks in between, so that a child knows of every descriptor that it has to close.
        with _open_lock:
            self._fd = os.open(self.index, os.O_RDWR | os.O_CLOEXEC)
            _open_claims.add(self)

    def _close(self) -> None:
        with _open_lock:
            _open_claims.discard(self)
            fd, self._fd = self._fd, -1
        os.close(fd)

    def _go_without(self, error: OSError) -> bool:
        """Without locks everything still works; a shard may then be fetched twice."""
        if error.errno not in _NO_LOCKS and not isinstance(error, FileNotFoundError):
            raise error
        self.is_real = False
        return True

    def _acquire_fallback(self, block: bool) -> bool:
        import filelock

        folder = Path(self.index).parent / ".locks"
        try:
            folder.mkdir(exist_ok=True)
            lock = filelock.FileLock(str(folder / str(self.byte)), timeout=-1 if block else 0)
            lock.acquire()
        except filelock.Timeout:
            return False
        except OSError as error:
            return self._go_without(error)
        self._fallback = lock
        return True


def _held_here() -> set[tuple[str, int]]:
    held: set[tuple[str, int]] | None = getattr(_thread, "held", None)
    if held is None:
        held = _thread.held = set()
    return held


def _lock(fd: int, byte: int, kind: int, block: bool) -> bool:
    """Lock or unlock one byte; False if another description holds it and we don't wait."""
    command = fcntl.F_OFD_SETLKW if block else fcntl.F_OFD_SETLK
    # struct flock of 64-bit Linux: type, whence, start, length, and a pid that has to be 0.
    request = struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0)
    try:
        fcntl.fcntl(fd, command, request)
    except OSError as error:
        if not block and error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _is_still(fd: int, path: str) -> bool:
    """Whether an open file is the one that has the path's name now."""
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    opened = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _drop_in_child() -> None:
    """Close a forked child's copies: they would keep its parent's claims from ending with it."""
    global _open_lock
    _open_lock = threading.Lock()
    for claim in _open_claims:
        fd, claim._fd = claim._fd, -1
        if fd >= 0:
            os.close(fd)
    _open_claims.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _open_lock.acquire(),
        after_in_parent=lambda: _open_lock.release(),
        after_in_child=_drop_in_child,
    )
