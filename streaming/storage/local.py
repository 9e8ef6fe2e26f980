"""Folders of this machine as stores."""

from __future__ import annotations

import io
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from streaming.storage.base import CHUNK_BYTES, Body, ObjectInfo, Store
from streaming.storage.errors import AccessDenied, NotFound, ObjectChanged, StoreError
from streaming.storage.urls import local_path

__all__ = ["LocalStore"]

_ASIDE = ".uploading"


class LocalStore(Store):
    r"""The files below a folder: a plain path, `C:\…`, or a `file://` URL.

    Objects are read and written through their own names only: nothing outside the folder is
    reached, unless the user has put a symbolic link there. Uploads are written beside their place
    and renamed, so that nobody sees half of one.

    Args:
        url: The folder. It need not exist before something is put there.
        timeout_s: Has no effect here.

    Raises:
        ValueError: If a `file://` URL names another machine.
    """

    def __init__(self, url: str, *, timeout_s: float = 60.0) -> None:
        super().__init__(url, timeout_s=timeout_s)
        self.root = Path(local_path(url))

    def path(self, key: str) -> Path:
        """Where an object's file is.

        Raises:
            ValueError: If the key has a drive, which would lead out of the folder on Windows.
        """
        relative = Path(key)
        if relative.drive or relative.is_absolute():
            raise ValueError(f"{key!r} is not a key below {self.url}: it names a drive")
        return self.root / relative

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        file = io.FileIO(self.path(key))
        try:
            status = os.fstat(file.fileno())
            version = _version(status)
            if etag is not None and etag != version:
                url = self.url_of(key)
                raise ObjectChanged(f"{url}: the file has changed since it was first read", url=url)
            stop = status.st_size if stop is None else min(stop, status.st_size)
            file.seek(start)
        except BaseException:
            file.close()
            raise
        length = max(0, stop - start)
        total = status.st_size
        return Body(
            _chunks(file, length), length=length, etag=version, close=file.close, total=total
        )

    def _stat(self, key: str) -> ObjectInfo:
        path = self.path(key)
        status = path.stat()
        if path.is_dir():
            raise FileNotFoundError(f"{path} is a folder")
        return ObjectInfo(key, status.st_size, _version(status))

    def _put(self, path: Path, size: int, key: str) -> None:
        target = self.path(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f"{target.name}.{uuid.uuid4().hex}{_ASIDE}")
        try:
            shutil.copyfile(path, aside)
            copied = aside.stat().st_size
            if copied != size:
                url = self.url_of(key)
                raise StoreError(
                    f"{url}: {path} had {size} bytes, but {copied} were copied: it changes while "
                    "it is being uploaded",
                    url=url,
                )
            os.replace(aside, target)
        finally:
            aside.unlink(missing_ok=True)

    def _list(self, prefix: str) -> Iterator[str]:
        # Only the prefix's own folder is walked; within it, names decide.
        folder, _, _ = prefix.rpartition("/")
        yield from self._walk(self.path(folder) if folder else self.root, prefix)

    def _walk(self, folder: Path, prefix: str) -> Iterator[str]:
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name + "/" * e.is_dir())
        except FileNotFoundError:
            return
        for entry in entries:
            key = Path(entry.path).relative_to(self.root).as_posix()
            if entry.is_dir():
                if (key + "/").startswith(prefix) or prefix.startswith(key + "/"):
                    yield from self._walk(Path(entry.path), prefix)
            elif key.startswith(prefix) and not key.endswith(_ASIDE):
                yield key

    def _delete(self, key: str) -> None:
        self.path(key).unlink(missing_ok=True)

    def _check(self) -> None:
        if not self.root.is_dir():
            raise NotFound(f"{self.url}: there is no such folder", url=self.url)

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        for builtin, (kind, what) in _ERRORS.items():
            if isinstance(exc, builtin):
                return kind(f"{url}: {what} ({exc})", url=url)
        return None


_ERRORS: dict[type[OSError], tuple[type[StoreError], str]] = {
    FileNotFoundError: (NotFound, "there is no such file"),
    NotADirectoryError: (NotFound, "there is no such file"),
    IsADirectoryError: (NotFound, "that is a folder, not a file"),
    PermissionError: (AccessDenied, "the file system denies access"),
}


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def _chunks(file: io.FileIO, length: int) -> Iterator[memoryview]:
    """Read a file's next bytes through one buffer."""
    buffer = memoryview(bytearray(min(length, CHUNK_BYTES)))
    while length:
        count = file.readinto(buffer[: min(length, len(buffer))])
        if not count:
            return
        length -= count
        yield buffer[:count]
