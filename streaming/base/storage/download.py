"""`CloudDownloader` and its kinds: files from a store to this machine, by the old interface.

A downloader of one's own is a subclass with `_client_identifier`, `_download_file_impl` and
`clean_up`, put into `DOWNLOADER_MAPPINGS` under its scheme; data sets then fetch through it. New
code does better with a `streaming.storage.Store`, which can also be read in parts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

from streaming.storage.base import CHUNK_BYTES, Body, ObjectInfo, Store
from streaming.storage.clients import shared_client
from streaming.storage.errors import AccessDenied, NotFound, StoreError
from streaming.storage.registry import StoreFactory, factory_for, register_resolver
from streaming.storage.urls import is_local, scheme_of, split_url

__all__ = [
    "AlipanDownloader",
    "AzureDataLakeDownloader",
    "AzureDownloader",
    "CloudDownloader",
    "DBFSDownloader",
    "DatabricksUnityCatalogDownloader",
    "GCSDownloader",
    "HFDownloader",
    "LocalDownloader",
    "OCIDownloader",
    "S3Downloader",
    "SFTPDownloader",
]

DEFAULT_TIMEOUT = 60.0
"""Longest wait for a connection, and for the next bytes on one, in seconds."""

UNITY_CATALOG = "dbfs:/Volumes"


class CloudDownloader(ABC):
    """Brings single files of a store to this machine.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     source, target = pathlib.Path(folder, "a"), pathlib.Path(folder, "b", "a")
        ...     _ = source.write_bytes(b"hello")
        ...     CloudDownloader.direct_download(str(source), str(target))
        ...     target.read_bytes()
        b'hello'
    """

    @classmethod
    def get(cls, remote_dir: str | None = None) -> CloudDownloader:
        """The downloader for a place.

        Args:
            remote_dir: A URL or path; None for a data set that is local altogether.

        Returns:
            A new downloader.

        Raises:
            ValueError: If there is none for the URL's scheme.
        """
        kind = DOWNLOADER_MAPPINGS.get(_identifier(remote_dir))
        if kind is not None:
            return kind()
        assert remote_dir is not None
        factory_for(remote_dir)  # Raises for a scheme that nobody knows.
        return _AnyDownloader()

    @classmethod
    def direct_download(
        cls, remote: str | None, local: str, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        """Download one file by whichever downloader its URL calls for.

        Args:
            remote: The file's URL.
            local: The path to write it to.
            timeout: Longest wait for the next bytes, in seconds.

        Raises:
            ValueError: If there is no downloader for the URL, or no URL and no local file.
        """
        downloader = cls.get(remote)
        try:
            downloader.download(remote, local, timeout)
        finally:
            downloader.clean_up()

    def download(self, remote: str | None, local: str, timeout: float = DEFAULT_TIMEOUT) -> None:
        """Download one file, unless it is there already.

        Args:
            remote: The file's URL; None is allowed where the local file exists.
            local: The path to write it to. Its folder is made.
            timeout: Longest wait for the next bytes, in seconds.

        Raises:
            ValueError: If the URL's scheme is not this downloader's, or no URL and no local file
                are given.
            StoreError: If the store fails; NotFound, AccessDenied and so on are kinds of it.
        """
        if os.path.exists(local):
            return
        if not remote:
            raise ValueError(f"{local} does not exist, and no remote is given to fetch it from")
        self._validate_remote_path(remote)
        os.makedirs(os.path.dirname(local) or ".", exist_ok=True)
        self._download_file_impl(remote, local, timeout)

    @staticmethod
    @abstractmethod
    def _client_identifier() -> str:
        """The scheme that this downloader serves."""

    @abstractmethod
    def clean_up(self) -> None:
        """Let go of what the downloader holds."""

    @abstractmethod
    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        """Write the file at a URL to a path. The path's folder exists, the file does not."""

    def _validate_remote_path(self, remote: str) -> None:
        mine, its = self._client_identifier(), _identifier(remote)
        if its != mine:
            raise ValueError(
                f"{remote}: {type(self).__name__} downloads from {mine or 'local paths'!r}, "
                f"not from {its!r}"
            )


def _identifier(remote: str | None) -> str:
    """What `DOWNLOADER_MAPPINGS` knows a place by."""
    if not remote or is_local(remote):
        return ""
    return "dbfs-uc" if remote.startswith(UNITY_CATALOG) else scheme_of(remote)


class _StoreDownloader(CloudDownloader):
    """A downloader that a store does the work of."""

    identifier: ClassVar[str]

    @classmethod
    def _client_identifier(cls) -> str:
        return cls.identifier

    def clean_up(self) -> None:
        """Do nothing: connections belong to the process, not to a downloader."""

    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        root, key = split_url(remote)
        store = factory_for(remote, resolve=False)(root, timeout_s=timeout)
        aside = f"{local}.{uuid.uuid4().hex}.tmp"
        try:
            with open(aside, "wb") as file:
                store.get(key, file)
            os.replace(aside, local)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(aside)


class S3Downloader(_StoreDownloader):
    """Downloads from `s3://`."""

    identifier = "s3"


class SFTPDownloader(_StoreDownloader):
    """Downloads from `sftp://`."""

    identifier = "sftp"


class GCSDownloader(_StoreDownloader):
    """Downloads from `gs://`."""

    identifier = "gs"


class OCIDownloader(_StoreDownloader):
    """Downloads from `oci://`."""

    identifier = "oci"


class HFDownloader(_StoreDownloader):
    """Downloads from `hf://`."""

    identifier = "hf"


class AzureDownloader(_StoreDownloader):
    """Downloads from `azure://`."""

    identifier = "azure"


class AzureDataLakeDownloader(_StoreDownloader):
    """Downloads from `azure-dl://`."""

    identifier = "azure-dl"


class DatabricksUnityCatalogDownloader(_StoreDownloader):
    """Downloads from `dbfs:/Volumes/…`."""

    identifier = "dbfs-uc"


class DBFSDownloader(_StoreDownloader):
    """Downloads from `dbfs:/…`."""

    identifier = "dbfs"


class AlipanDownloader(_StoreDownloader):
    """Downloads from `alipan://`."""

    identifier = "alipan"


class LocalDownloader(_StoreDownloader):
    """Copies from a path or `file://`."""

    identifier = ""


class _AnyDownloader(_StoreDownloader):
    """Downloads by any scheme that only a store is registered for (`https://`, one's own)."""

    identifier = "any"

    def _validate_remote_path(self, remote: str) -> None:
        pass


_BUILT_IN: dict[str, type[CloudDownloader]] = {
    kind.identifier: kind
    for kind in _StoreDownloader.__subclasses__()
    if kind is not _AnyDownloader
}

DOWNLOADER_MAPPINGS: dict[str, type[CloudDownloader]] = dict(_BUILT_IN)
"""The downloader of each scheme ("" for paths). Put one of your own in, and data sets use it."""


class DownloaderStore(Store):
    """A user's downloader as a store: whole files, read-only.

    Args:
        url: The root.
        kind: The downloader's class; one instance serves a process.
        timeout_s: Passed to the downloader, in seconds.
    """

    can_write: ClassVar[bool] = False
    can_list: ClassVar[bool] = False
    can_range: ClassVar[bool] = False

    def __init__(self, url: str, kind: type[CloudDownloader], *, timeout_s: float = 60.0) -> None:
        super().__init__(url, timeout_s=timeout_s)
        self._kind = kind

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        downloader: CloudDownloader = shared_client(("downloader", self._kind), self._kind)
        folder = tempfile.mkdtemp(prefix="streaming-")
        try:
            path = Path(folder, "object")
            downloader.download(self.url_of(key), str(path), self.timeout_s)
            if not path.exists():
                raise StoreError(f"{self.url_of(key)}: {self._kind.__name__} wrote no file")
            file = path.open("rb")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        size = os.fstat(file.fileno()).st_size
        file.seek(start)

        def close() -> None:
            file.close()
            shutil.rmtree(folder, ignore_errors=True)

        left = max(0, (size if stop is None else min(stop, size)) - start)
        return Body(_pieces(file, left), length=left, close=close)

    def _stat(self, key: str) -> ObjectInfo:
        with self._open(key, 0, None, None) as body:
            assert body.length is not None
            return ObjectInfo(key, body.length)

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        # A downloader may raise anything; what is not clearly final is worth another try.
        said = f"{url}: {self._kind.__name__} failed ({type(exc).__name__}: {exc})"
        if isinstance(exc, FileNotFoundError):
            return NotFound(said, url=url)
        if isinstance(exc, PermissionError):
            return AccessDenied(said, url=url)
        return StoreError(said, url=url, retryable=True)


def _pieces(file: BinaryIO, left: int) -> Iterator[bytes]:
    """The next bytes of a file, at most so many."""
    while left and (piece := file.read(min(left, CHUNK_BYTES))):
        left -= len(piece)
        yield piece


def _custom_store(url: str) -> StoreFactory | None:
    """The store for a URL that a user's downloader serves."""
    identifier = _identifier(url)
    kind = DOWNLOADER_MAPPINGS.get(identifier)
    if kind is None or kind is _BUILT_IN.get(identifier):
        return None

    def make(url: str, *, timeout_s: float = 60.0) -> Store:
        return DownloaderStore(url, kind, timeout_s=timeout_s)

    return make


register_resolver(_custom_store)
