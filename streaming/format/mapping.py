"""Files open for reading at any position: mapped where that is safe, else read by position.

A file that shrinks beneath its mapping kills the process that touches the lost part. On a local
disk only a vandal does that (whoever replaces a file properly leaves the old one whole for those
who have it open); on a network file system any client may, so that files there are read instead.
"""

from __future__ import annotations

import mmap
import os
import re
import sys
from dataclasses import dataclass
from typing import Any, Union

from streaming.format.errors import CorruptShardError

__all__ = ["Buffer", "OpenFile", "Positioned", "PositionedFile", "is_network_device", "open_file"]

_NETWORK = re.compile(
    r"9p|afs|beegfs|ceph|cifs|davfs|fuse|fuse\..+|gfs2|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2"
    r"|orangefs|pvfs2|smb2|smb3|smbfs|virtiofs|wekafs"
)
_MOUNTS = "/proc/self/mountinfo"


class Positioned:
    """What is read by position: its slices are made when they are asked for."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, span: slice) -> bytes:
        raise NotImplementedError


class PositionedFile(Positioned):
    """A file whose slices are read from it when asked for; several threads may ask at once.

    Args:
        descriptor: The open file, closed with this object.
        size: Its size in bytes.
        path: Its name in errors.
    """

    def __init__(self, descriptor: int, size: int, path: str) -> None:
        self._descriptor = descriptor
        self._size = size
        self._path = path

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, span: slice) -> bytes:
        start, stop, _ = span.indices(self._size)
        parts = []
        while start < stop:
            part = os.pread(self._descriptor, stop - start, start)
            if not part:
                raise CorruptShardError(
                    f"{self._path} ends at byte {start} and had {self._size} when it was opened: "
                    f"it was changed while in use."
                )
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def __del__(self) -> None:
        try:
            os.close(self._descriptor)
        except (AttributeError, OSError):  # half made, or at the interpreter's end
            pass


Buffer = Union[mmap.mmap, bytes, Positioned]  # noqa: UP007  # evaluated on Python 3.10
"""What slices to bytes. All but Positioned ones are buffers as well."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file's bytes, and which file it was."""

    data: Buffer
    path: str
    identity: tuple[int, int] | None
    """Device and inode; None for what was decompressed into memory."""

    def is_unlinked(self) -> bool:
        """Tell whether another file, or none, has its name now."""
        if self.identity is None:
            return False
        try:
            stat = os.stat(self.path)
        except OSError:
            return True
        return (stat.st_dev, stat.st_ino) != self.identity


def open_file(path: str, size: int) -> OpenFile:
    """Open a file that should have ``size`` bytes.

    Raises:
        FileNotFoundError: There is no such file.
        CorruptShardError: It has another size.
    """
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    keep = False
    try:
        stat = os.fstat(descriptor)
        if stat.st_size != size:
            raise CorruptShardError(
                f"{path} has {stat.st_size} bytes where the index says {size}: it is "
                f"{'cut off' if stat.st_size < size else 'another file'}."
            )
        identity = (stat.st_dev, stat.st_ino)
        if not size:
            return OpenFile(b"", path, identity)
        if is_network_device(stat.st_dev):
            keep = True
            return OpenFile(PositionedFile(descriptor, size, path), path, identity)
        return OpenFile(_map(descriptor, size), path, identity)
    finally:
        if not keep:
            os.close(descriptor)


def _map(descriptor: int, size: int) -> mmap.mmap:
    # The mapping needs no descriptor of its own, of which a process may have few.
    extra: dict[str, Any] = {}
    if sys.version_info >= (3, 13) and sys.platform != "win32":
        extra["trackfd"] = False
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, **extra)


_devices: dict[int, bool] = {}


def is_network_device(device: int) -> bool:
    """Tell whether files of a device (``st_dev``) can be changed by other machines.

    Known on Linux. A device that is in no mount table, such as a btrfs subvolume, is local.
    """
    known = _devices.get(device)
    if known is None:
        kind = _file_system(device) if hasattr(os, "pread") else None
        known = kind is not None and _NETWORK.fullmatch(kind) is not None
        _devices[device] = known
    return known


def _file_system(device: int) -> str | None:
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(_MOUNTS, encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                # "36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/root rw"
                left, _, right = line.partition(" - ")
                if left.split(" ")[2:3] == [wanted]:
                    return right.split(" ")[0]
    except OSError:
        pass
    return None
