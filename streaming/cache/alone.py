"""An index's way into its directory: fetched by one process, and there in one step."""

import contextlib
import os
import secrets
import stat
import sys
from collections.abc import Iterator

from streaming.cache.waiting import waiting

if sys.platform != "win32":
    import fcntl

_FETCHED = "user.shardstream.fetched"
"""The extended attribute of an index that was fetched."""


@contextlib.contextmanager
def alone_in(path: str) -> Iterator[None]:
    """Hold a directory's own lock; where it has none, everyone goes ahead.

    An index is not there yet to be locked, and a file for a lock would be left behind.
    """
    if sys.platform == "win32":
        yield
        return
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        _lock(fd, path)
        yield
    finally:
        # Unlock first: a process forked meanwhile has the same description open.
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _lock(fd: int, path: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with waiting(f"the index of {path}, which another is fetching"):
            fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        pass  # over NFS only files that are open for writing can be locked


def publish(name: str, data: bytes) -> None:
    """Write a file in one step, unless another process has: claims are locks on that one.

    Args:
        name: The file's path.
        data: All of it.
    """
    if not _publish_nameless(name, data):
        _publish_aside(name, data)


def _publish_nameless(name: str, data: bytes) -> bool:
    """Give a file its name when it is whole, so that a kill at any moment leaves nothing.

    Returns:
        False where the system can't.
    """
    if not hasattr(os, "O_TMPFILE"):
        return False
    folder = os.path.dirname(name)
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    except OSError:
        return False
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        mark_fetched(fd)
        let_others_lock(fd, folder)
        try:
            # With a descriptor of a folder, Python follows the symbolic link to the file itself.
            os.link(f"/proc/self/fd/{fd}", name, src_dir_fd=fd)
        except FileExistsError:
            pass
        except OSError:
            return False
    return True


def let_others_lock(fd: int, folder: str) -> None:
    """Let whoever may write to the folder write to its index, too, which a lock takes.

    They could put another in its place anyway.
    """
    mode = os.stat(folder).st_mode
    if not mode & stat.S_ISVTX and hasattr(os, "fchmod"):
        with contextlib.suppress(OSError):
            os.fchmod(fd, os.fstat(fd).st_mode & 0o777 | mode & 0o022)


def mark_fetched(fd: int) -> None:
    """Mark an index that was fetched, so that its directory is known for a cache ever after."""
    if hasattr(os, "setxattr"):
        with contextlib.suppress(OSError):
            os.setxattr(fd, _FETCHED, b"1")


def is_fetched(path: str) -> bool:
    """Whether an index is known to have been fetched, and not put there by the user."""
    try:
        return hasattr(os, "getxattr") and bool(os.getxattr(path, _FETCHED))
    except OSError:
        return False


def _publish_aside(name: str, data: bytes) -> None:
    part = os.path.join(os.path.dirname(name), f".part-index-{secrets.token_hex(4)}")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            mark_fetched(fd)
            let_others_lock(fd, os.path.dirname(name))
        try:
            os.link(part, name)
        except FileExistsError:
            pass
        except OSError:
            os.replace(part, name)  # a file system without hard links
    finally:
        if os.path.exists(part):
            os.unlink(part)
