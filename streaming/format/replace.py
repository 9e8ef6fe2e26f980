"""Putting a new data set in an old one's place, on this machine's file system.

The new one is built in a hidden folder beside the old one and takes its place in one step (where
the system can exchange two folders), or in two renames. What a crash leaves behind at any moment is
the old data set or the new one under its name, and the other, whole, in a hidden folder; never a
mixture. Where the folder itself can't be renamed (the root of a mount, a parent that may not be
written to) the new files are built in a hidden folder inside it; then the old index goes first and
the new index comes last, so that in between there is no data set to be read.

Files that belong to no data set (a README, say) stay where they are.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["Staging", "dataset_files", "remove_dataset", "sync_folder", "write_atomically"]

logger = logging.getLogger(__name__)

INDEX = "index.json"
_MARK = ".shardstream-"
_OLD = "-old"
_SHARD = re.compile(r"shard\.\d{5,}\.[A-Za-z0-9.]+")
FILE_KEYS = ("raw_data", "zip_data", "raw_meta", "zip_meta")
"""Where the index names a shard's files."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is seen whole or not at all, also after a crash.

    Args:
        path: The file. One that is there is replaced.
        data: What it will hold.
    """
    aside = path.with_name(f".{path.name}{_MARK}{secrets.token_hex(4)}")
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        with suppress(FileNotFoundError):
            aside.unlink()
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make a folder's entries durable, where the system has a way to."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def dataset_files(index: bytes | None) -> set[str]:
    """The names of all files that an index makes part of its data set.

    Args:
        index: The index file's content, or None if there is none. What can't be understood in it is
            passed over: an index that is about to be replaced need not be right.

    Returns:
        Names below the data set's folder, '/'-separated, the index itself and those of merged parts
        included. Absolute ones and those that climb out are left out.

    Example:
        >>> sorted(dataset_files(b'{"shards": [{"raw_data": {"basename": "0/shard.00000.mds"}}]}'))
        ['0/index.json', '0/shard.00000.mds', 'index.json']
    """
    found = {INDEX}
    try:
        shards = json.loads(index)["shards"] if index else []
        for shard in shards:
            for key in FILE_KEYS:
                found.add((shard.get(key) or {}).get("basename") or INDEX)
    except (ValueError, TypeError, KeyError, AttributeError):
        logger.warning("The index that is being replaced is damaged; shards are known by name only")
    safe = {name for name in found if isinstance(name, str) and _is_below(name)}
    return safe | {f"{name.rpartition('/')[0]}/{INDEX}" for name in safe if "/" in name}


def _is_below(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return not (name.startswith(("/", "\\")) or ":" in parts[0] or ".." in parts or "\0" in name)


def is_shard_name(name: str) -> bool:
    """Whether a file that no index names must be a shard's, by its name.

    Example:
        >>> is_shard_name("shard.00012.mds.zstd"), is_shard_name("shard.txt")
        (True, False)
    """
    return _SHARD.fullmatch(name) is not None


def is_staging_name(name: str) -> bool:
    """Whether a folder's name says that a data set is being built in it, or has been replaced.

    Example:
        >>> is_staging_name(".train.shardstream-0a1b2c3d"), is_staging_name("train")
        (True, False)
    """
    return name.startswith(".") and _MARK in name


def remove_dataset(folder: Path) -> list[str]:
    """Remove a data set's files, the index first, and the folders below that are then empty.

    Args:
        folder: The data set's folder. It stays, empty or not.

    Returns:
        The names in the folder that are left: what is not a data set's, or could not be removed.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    # Out of the way first, so that nobody reads what is being removed, and gone last, so that an
    # interrupted removal can be finished. Indexes that were being written count as well.
    half = f".{INDEX}{_MARK}"
    with suppress(OSError):
        os.replace(folder / INDEX, folder / f"{half}old")
    indexes = [folder / name for name in {*names, f"{half}old"} if name.startswith(half)]
    listed = {name for name in names if is_shard_name(name)}
    for index in indexes:
        with suppress(OSError):
            listed |= dataset_files(index.read_bytes())
    for name in sorted(listed, key=len, reverse=True):
        with suppress(OSError):  # absent, or a folder of that name; what is left is returned
            (folder / name).unlink()
        with suppress(OSError):
            for parent in list(Path(name).parents)[:-1]:
                (folder / parent).rmdir()
    for index in indexes:
        with suppress(OSError):
            index.unlink()
    return sorted(os.listdir(folder))


class Staging:
    """The folder in which a local data set is built, and its way to the place where it belongs.

    Args:
        target: Where the data set will be. Made if it is not there.
        exist_ok: Whether a data set that is there may be replaced.

    Raises:
        FileExistsError: If something is there and `exist_ok` is false.
        NotADirectoryError: If a file is there.
    """

    folder: Path
    """Where the files have to be written."""

    def __init__(self, target: str | os.PathLike[str], exist_ok: bool) -> None:
        # A symbolic link stays one: what it points to is replaced.
        self.target = Path(os.path.realpath(target))
        if self.target.exists() and not self.target.is_dir():
            raise NotADirectoryError(f"{target} is a file; a data set needs a folder of its own")
        parent = self.target.parent
        self._inside = os.path.ismount(self.target) or (
            parent.exists() and not os.access(parent, os.W_OK | os.X_OK)
        )
        self._parent = self.target if self._inside else parent
        self._prefix = _MARK if self._inside else f".{self.target.name}{_MARK}"
        self._sweep()
        self.target.mkdir(parents=True, exist_ok=True)
        if not exist_ok and any(os.scandir(self.target)):
            raise FileExistsError(
                f"{target} is not empty; name another folder, or pass exist_ok=True to replace "
                "the data set in it"
            )
        self._lock: int | None = None
        self._begun = False
        self.folder = self.target
        if (self.target / INDEX).exists():
            self.folder, self._lock = _make_hidden(self._parent, self._prefix)
            shutil.copymode(self.target, self.folder)
        else:
            # Nothing that could be read: what an interrupted writer left only takes room.
            remove_dataset(self.target)

    @property
    def replaces(self) -> bool:
        """Whether there is a data set, untouched so far, that is to be replaced."""
        return self.folder != self.target

    def publish(self, index: bytes) -> None:
        """Let the data set appear: all its other files are in `folder` by now.

        Args:
            index: The index file's content.

        Raises:
            OSError: If it could not be put in place; `left` says what is where.
        """
        if not self.replaces:
            sync_folder(self.target)
            write_atomically(self.target / INDEX, index)
            return
        try:
            if self._inside:
                self._move_in(index)
                return
            write_atomically(self.folder / INDEX, index)
            try:
                old = self._change_places()
            except OSError as exc:  # a parent that lets us make folders, and not rename this one
                logger.info("%s can't be renamed (%s): moving file by file", self.target, exc)
                self._move_in(index)
            else:
                self._clear(old)
        finally:
            self._unlock()

    def give_up(self) -> None:
        """Remove what was written aside; files in the target folder stay. Harmless to repeat."""
        if self.replaces and not self._begun:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._unlock()

    def left(self) -> str:
        """Say what a writer that gives up leaves behind; "" if nothing."""
        if self._begun:
            return f"{self.target} was being replaced; what is not there yet is in {self.folder}"
        if self.replaces:
            return f"the data set in {self.target} is as it was"
        with suppress(OSError):
            if any(os.scandir(self.target)):
                return f"files without an index are left in {self.target}"
        return ""

    def drop(self) -> list[str]:
        """Remove the data set from the target folder as well, new and old.

        Returns:
            The names of other files, which are left there.
        """
        self.give_up()
        left = remove_dataset(self.target)
        if not left:
            with suppress(OSError):
                self.target.rmdir()
        return left

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _change_places(self) -> Path:
        """Put the new folder in the old one's place; return where the old one is now."""
        # From here on, what is in `folder` must not be removed: it may be the old data set.
        self._begun = True
        if _exchange(self.folder, self.target):
            old = self.folder
        else:
            old = self.folder.with_name(self.folder.name + _OLD)
            os.rename(self.target, old)
            try:
                os.rename(self.folder, self.target)
            except BaseException:
                os.rename(old, self.target)
                raise
        sync_folder(self.target.parent)
        return old

    def _clear(self, old: Path) -> None:
        """Remove the old data set, and bring back what was not part of it."""
        with suppress(OSError):
            for name in remove_dataset(old):
                if not os.path.lexists(self.target / name):
                    os.rename(old / name, self.target / name)
            old.rmdir()
        if old.exists():
            logger.warning("What was in %s and could not be moved back is in %s", self.target, old)

    def _move_in(self, index: bytes) -> None:
        """Replace file by file. Without an index, no mixture can be taken for a data set."""
        self._begun = True
        self.target.mkdir(exist_ok=True)
        remove_dataset(self.target)
        sync_folder(self.target)
        for name in os.listdir(self.folder):
            if name != INDEX:
                os.replace(self.folder / name, self.target / name)
        sync_folder(self.target)
        write_atomically(self.target / INDEX, index)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _sweep(self) -> None:
        """Finish what writers to this target that were killed have left in hidden folders."""
        for folder in sorted(_named(self._parent, self._prefix)):
            lock = _try_lock(folder)
            if lock is None:  # its writer lives, or we can't know
                continue
            try:
                if folder.name.endswith(_OLD) and not self.target.exists():
                    os.rename(folder, self.target)
                else:
                    self._clear(folder)
            finally:
                os.close(lock)


def _named(folder: Path, prefix: str) -> Iterator[Path]:
    with suppress(OSError):
        yield from (folder / name for name in os.listdir(folder) if name.startswith(prefix))


def _make_hidden(parent: Path, prefix: str) -> tuple[Path, int | None]:
    """Make a new hidden folder, locked so that nobody takes it for a dead process's."""
    while True:
        folder = parent / (prefix + secrets.token_hex(4))
        folder.mkdir()
        lock = _try_lock(folder)
        if folder.exists():
            return folder, lock
        # Between the two steps, another writer took it for a dead one's, and removed it.
        if lock is not None:
            os.close(lock)


def _try_lock(folder: Path) -> int | None:
    """Lock a folder if nobody has; the lock goes with its descriptor, or its process."""
    with suppress(ImportError, OSError):  # Windows has no such locks, some file systems neither
        from fcntl import LOCK_EX, LOCK_NB, flock

        descriptor = os.open(folder, os.O_RDONLY)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
        except OSError:
            os.close(descriptor)
        else:
            return descriptor
    return None


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step (renameat2, Linux); say whether the system can."""
    if not sys.platform.startswith("linux"):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    try:
        rename: Any = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library without it
        return False
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)
