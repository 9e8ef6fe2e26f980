"""What can be made again but is worth keeping, in a folder of this user's: plans, binary indexes.

Each thing is a few arrays in one file, made by one process while the others wait for it, and mapped
by all of them. Nothing depends on the folder: where there is none, everybody makes their own.
"""

import json
import logging
import mmap
import os
import secrets
import stat
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from streaming.cache.claims import Claim
from streaming.format.mapping import is_network_device
from streaming.units import bytes_to_int

log = logging.getLogger("streaming")

Arrays = dict[str, NDArray[Any]]

FOLDER = "STREAMING_CACHE_DIR"
"""The environment variable that says where the folder is; empty for none."""
LIMIT = "STREAMING_CACHE_LIMIT"
"""The environment variable that says how many bytes it may hold, such as ``20gb``."""
_LIMIT_BYTES = 16 << 30

_LOCKS = "locks"
_PREFIX = struct.Struct("<8sII")  # the format's name, the header's length, its checksum
_FORMAT = b"shkeep01"
_ALIGNMENT = 64
_PAGE = 4096
_SAMPLED = 512
"""Pages of a large file that are summed up: what was cut off or never written is found by them."""


class Keep:
    """A folder of kept arrays.

    Args:
        path: The folder, made if it is not there.
        limit_bytes: What it may hold; the least recently used goes first.

    Raises:
        OSError: If it can't be made, or others than this user may write to it.

    Example:
        >>> keep = Keep(tempfile.mkdtemp(), 1 << 20)
        >>> keep.get("squares", "5", lambda: {"squares": np.arange(5) ** 2})["squares"].tolist()
        [0, 1, 4, 9, 16]
        >>> keep.get("squares", "5", lambda: 1 / 0)["squares"].flags.writeable
        False
    """

    def __init__(self, path: str, limit_bytes: int = _LIMIT_BYTES) -> None:
        self.path = path
        self.limit_bytes = limit_bytes
        os.makedirs(path, mode=0o700, exist_ok=True)
        _check_ours(path)
        with open(os.path.join(path, _LOCKS), "ab"):
            pass

    @property
    def locks_path(self) -> str:
        """The file whose bytes are locked by whoever makes something, or uses a directory."""
        return os.path.join(self.path, _LOCKS)

    def get(
        self,
        kind: str,
        key: str,
        make: Callable[[], Arrays],
    ) -> Arrays:
        """Give what is kept under a key, which is made first if it is not there.

        Args:
            kind: What it is, for its file's name and for log lines.
            key: A hex digest of all that it depends on.
            make: Makes it. Called by one process at a time.

        Returns:
            Arrays that can't be written to, by name.
        """
        path = self._path(kind, key)
        found = _open(path)
        if found is not None:
            return found
        lock = self.lock(key)
        lock.acquire(f"the {kind} that another process makes")
        try:
            found = _open(path)  # by whoever we waited for
            if found is not None:
                return found
            made = make()
            try:
                self._write(path, lock.byte, made)
            except OSError as error:
                log.info("The %s could not be kept in %s: %s", kind, self.path, error)
                return made
        finally:
            lock.release()
        return _open(path) or made

    def find(self, kind: str, key: str) -> Arrays | None:
        """Give what is kept under a key, or None if that would have to be made."""
        return _open(self._path(kind, key))

    def make_ahead(self, kind: str, key: str, make: Callable[[], Arrays]) -> None:
        """Keep something for later, unless it is there or somebody is making it."""
        path, lock = self._path(kind, key), self.lock(key)
        if os.path.exists(path) or not lock.try_acquire():
            return
        try:
            if not os.path.exists(path):
                self._write(path, lock.byte, make())
        except OSError as error:
            log.info("The %s could not be kept in %s: %s", kind, self.path, error)
        finally:
            lock.release()

    def put(self, kind: str, key: str, arrays: Arrays) -> Arrays:
        """Keep something that is made already, by whoever has its lock; give it as it is kept.

        Raises:
            OSError: If it can't be kept.
        """
        path = self._path(kind, key)
        self._write(path, self.lock(key).byte, arrays)
        return _open(path) or arrays

    def remove(self, kind: str, key: str) -> None:
        """Keep something no longer. Whoever has it mapped reads on."""
        with suppress(OSError):
            os.unlink(self._path(kind, key))

    def lock(self, key: str) -> Claim:
        """The lock of whoever makes what is kept under a key."""
        return Claim(os.path.join(self.path, _LOCKS), int(key[:12], 16))

    def _path(self, kind: str, key: str) -> str:
        return os.path.join(self.path, f"{kind}-{key}.keep")

    def _write(self, path: str, lock: int, arrays: Arrays) -> None:
        """Write a file under a temporary name, then give it its own."""
        size = sum(array.nbytes + _ALIGNMENT for array in arrays.values())
        if size > self.limit_bytes:
            raise OSError(f"it takes {size:,} bytes, and the limit is {self.limit_bytes:,}")
        self._make_room(size)
        part = os.path.join(self.path, f".part-{lock}-{secrets.token_hex(4)}")
        try:
            with open(part, "xb") as file:
                _write_arrays(file, arrays)
            os.replace(part, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part)

    def _make_room(self, size: int) -> None:
        """Unlink what was not used for longest, and what was left by processes that were killed.

        Whoever has it mapped reads on.
        """
        kept = []
        for item in os.scandir(self.path):
            with suppress(FileNotFoundError):
                if item.name.startswith(".part-"):
                    self._remove_abandoned(item.path, int(item.name.split("-")[1]))
                elif item.name.endswith(".keep"):
                    found = item.stat(follow_symlinks=False)
                    kept.append((found.st_mtime_ns, found.st_size, item.path))
        used = sum(entry[1] for entry in kept)
        for _, freed, path in sorted(kept):
            if used + size <= self.limit_bytes:
                return
            with suppress(FileNotFoundError):
                os.unlink(path)
            used -= freed

    def _remove_abandoned(self, path: str, lock: int) -> None:
        claim = Claim(os.path.join(self.path, _LOCKS), lock)
        if claim.is_held_here() or not claim.try_acquire():
            return
        try:
            os.unlink(path)
        finally:
            claim.release()


def user_keep() -> Keep | None:
    """This user's folder; None if there can be none, which is logged.

    It is what ``STREAMING_CACHE_DIR`` says. Otherwise it is ``shardstream`` in the user's cache
    folder (``XDG_CACHE_HOME`` or ``~/.cache``), or, where that lies on a network file system, a
    folder of this user's in the temporary one.
    """
    given = os.environ.get(FOLDER)
    if given == "":
        return None
    limit = os.environ.get(LIMIT)
    for path in [given] if given else _default_paths():
        try:
            return Keep(path, _LIMIT_BYTES if limit is None else bytes_to_int(limit))
        except OSError as error:
            log.info("Plans and indexes are not kept in %s: %s", path, error)
    return None


def _default_paths() -> Iterator[str]:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    with suppress(OSError):
        os.makedirs(home, mode=0o700, exist_ok=True)
        if not is_network_device(os.stat(home).st_dev):
            yield os.path.join(home, "shardstream")
    user = os.getuid() if hasattr(os, "getuid") else "user"
    yield os.path.join(tempfile.gettempdir(), f"shardstream-{user}")


def _check_ours(path: str) -> None:
    if not hasattr(os, "getuid"):
        return
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(
            f"{path} is no folder that only this user may write to. Remove it, or set {FOLDER} to "
            f"another one."
        )


def _write_arrays(file: BinaryIO, arrays: Arrays) -> None:
    described, at, total = {}, 0, 0
    for name, array in arrays.items():
        described[name] = (array.dtype.str, array.shape, at)
        at += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        total = _sum(array.reshape(-1).view(np.uint8), total)
    header = json.dumps({"arrays": described, "size": at, "sum": total}).encode()
    header += b" " * (-(_PREFIX.size + len(header)) % _ALIGNMENT)
    file.write(_PREFIX.pack(_FORMAT, len(header), zlib.crc32(header)))
    file.write(header)
    for array in arrays.values():
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        file.write(b"\0" * (-array.nbytes % _ALIGNMENT))


def _sum(data: NDArray[np.uint8], start: int) -> int:
    """A checksum of some bytes; of many, a checksum of pages all over them."""
    for at, length in _summed(len(data)):
        start = zlib.crc32(data[at : at + length].data, start)
    return start


def _sum_file(file: BinaryIO, begin: int, size: int, start: int) -> int:
    """The same of a part of a file, which is read: a mapping would take memory for what it shows.

    The kernel maps as much around a place that is touched as it holds together, up to megabytes.
    """
    for at, length in _summed(size):
        file.seek(begin + at)
        start = zlib.crc32(file.read(length), start)
    return start


def _summed(size: int) -> list[tuple[int, int]]:
    """Where the bytes are that a checksum of so many is taken of, and how many each time."""
    if size <= _SAMPLED * _PAGE:
        return [(0, size)]
    places = np.linspace(0, size - _PAGE, _SAMPLED).astype(np.int64).tolist()
    return [(at, _PAGE) for at in places]


def _open(path: str) -> Arrays | None:
    """Map a kept file, and note that it was used; None if there is none, or none that is sound."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if hasattr(os, "getuid") and found.st_uid != os.getuid():
                return None
            arrays = _read_arrays(file, found.st_size)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, struct.error) as error:
        log.warning("%s is damaged and will be made again: %s", path, error)
        with suppress(OSError):
            os.unlink(path)
        return None
    with suppress(OSError):
        os.utime(path)
    return arrays


def _read_arrays(file: BinaryIO, size: int) -> Arrays:
    name, length, checksum = _PREFIX.unpack(file.read(_PREFIX.size))
    header = file.read(length)
    if name != _FORMAT or len(header) != length or zlib.crc32(header) != checksum:
        raise ValueError("its beginning is not what was written")
    content = json.loads(header)
    start = _PREFIX.size + length
    if start + content["size"] != size:
        raise ValueError(f"it has {size} bytes, and {start + content['size']} were written")
    if is_network_device(os.fstat(file.fileno()).st_dev):
        data = np.frombuffer(file.read(), np.uint8)  # a mapped file may vanish there
    elif content["size"]:
        data = np.frombuffer(_map(file), np.uint8)[start:]
    else:
        data = np.zeros(0, np.uint8)
    arrays, total = {}, 0
    for array_name, (dtype, shape, at) in content["arrays"].items():
        kind = np.dtype(dtype)
        span = data[at : at + kind.itemsize * int(np.prod(shape))]
        total = _sum_file(file, start + at, len(span), total)
        arrays[array_name] = span.view(kind).reshape(shape)
        arrays[array_name].flags.writeable = False
    if total != content["sum"]:
        raise ValueError("its content is not what was written")
    return arrays


def _map(file: BinaryIO) -> mmap.mmap:
    extra: dict[str, Any] = {}
    if sys.version_info >= (3, 13) and sys.platform != "win32":
        extra["trackfd"] = False
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, **extra)
