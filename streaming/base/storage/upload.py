"""`CloudUploader` and its kinds: files from this machine to a store, by the old interface."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from enum import Enum

from streaming.storage.base import Store
from streaming.storage.registry import store_for
from streaming.storage.retry import RetryPolicy
from streaming.storage.urls import is_local, local_path, scheme_of

__all__ = [
    "AlipanUploader",
    "AzureUploader",
    "CloudUploader",
    "DBFSUploader",
    "DatabricksUnityCatalogUploader",
    "GCSUploader",
    "HFUploader",
    "LocalUploader",
    "OCIUploader",
    "S3Uploader",
]

logger = logging.getLogger(__name__)

UPLOADERS: dict[str, str | type[CloudUploader]] = {
    "s3": "S3Uploader",
    "gs": "GCSUploader",
    "oci": "OCIUploader",
    "hf": "HFUploader",
    "azure": "AzureUploader",
    "azure-dl": "AzureDataLakeUploader",
    "dbfs:/Volumes": "DatabricksUnityCatalogUploader",
    "dbfs": "DBFSUploader",
    "alipan": "AlipanUploader",
    "": "LocalUploader",
}
"""The uploader of each scheme: a class, or the name of one in this module."""


class GCSAuthentication(Enum):
    """How Google's store is told who we are."""

    HMAC = 1
    SERVICE_ACCOUNT = 2


class CloudUploader:
    """Takes the files of a local folder to a store.

    Args:
        out: A local folder; or a URL, and the files are staged in a temporary folder; or a pair
            of a local folder and a URL.
        keep_local: Whether local files stay after they have been uploaded.
        progress_bar: Whether to show a bar for each upload, in bytes.
        retry: Attempts after the first, for each file.
        exist_ok: Whether the local folder may hold something already.

    Raises:
        ValueError: If `out` is neither a string nor a pair, or nobody knows its scheme.
        FileExistsError: If the local folder is not empty, and exist_ok is False.
        StoreError: If the bucket is not there, or does not let us in.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     uploader = CloudUploader.get((root + "/here", root + "/there"))
        ...     _ = pathlib.Path(uploader.local, "a").write_bytes(b"hello")
        ...     uploader.upload_file("a")
        ...     pathlib.Path(root, "there", "a").read_bytes(), os.listdir(uploader.local)
        (b'hello', [])
    """

    @classmethod
    def get(
        cls,
        out: str | tuple[str, str],
        keep_local: bool = False,
        progress_bar: bool = False,
        retry: int = 2,
        exist_ok: bool = False,
    ) -> CloudUploader:
        """The uploader for a place. The arguments and errors are the class's."""
        kind = _kind_for(_split(out)[1])
        return kind(out, keep_local, progress_bar, retry, exist_ok)

    def __init__(
        self,
        out: str | tuple[str, str],
        keep_local: bool = False,
        progress_bar: bool = False,
        retry: int = 2,
        exist_ok: bool = False,
    ) -> None:
        local, remote = _split(out)
        self.keep_local = keep_local
        self.progress_bar = progress_bar
        self.retry = retry
        self.remote: str | None = remote
        if remote is not None and local is None and is_local(remote):
            local, self.remote = local_path(remote), None  # A place of its own; nothing to upload.
        self.local = tempfile.mkdtemp(prefix="streaming-") if local is None else local
        os.makedirs(self.local, exist_ok=True)
        if os.listdir(self.local):
            if not exist_ok:
                raise FileExistsError(
                    f"{self.local} is not empty. Give another folder, or exist_ok=True to write "
                    "into it all the same"
                )
            logger.warning("%s is not empty; writing into it, because exist_ok=True", self.local)
        self._policy = RetryPolicy(retries=retry)
        if self.remote is not None:
            if is_local(self.remote):
                os.makedirs(local_path(self.remote), exist_ok=True)
            self._check(self.remote)

    def upload_file(self, filename: str) -> None:
        """Upload a file of the local folder, and remove it there unless it is to be kept.

        Args:
            filename: Its path relative to the local folder, and its key.

        Raises:
            FileNotFoundError: If there is no such local file.
            StoreError: If the store failed at every attempt.
        """
        if self.remote is None:
            return
        path = os.path.join(self.local, filename)
        size = os.path.getsize(path)
        store, key = self._store(), filename.replace(os.sep, "/")
        what = f"uploading to {store.url_of(key)}"
        if self.progress_bar:
            from tqdm import tqdm

            with tqdm(total=size, unit="B", unit_scale=True, desc=what) as bar:
                self._policy.call(lambda: store.put(path, key), what)
                bar.update(size)
        else:
            self._policy.call(lambda: store.put(path, key), what)
        self.clear_local(path)

    def list_objects(self, prefix: str | None = None) -> Sequence[str]:
        """List what is at the destination.

        Args:
            prefix: Only what begins with this, below the destination.

        Returns:
            Sorted keys from the bucket's top; paths, where the destination is a folder.
        """
        root = self.local if self.remote is None else self.remote
        store = store_for(root)
        keys = self._policy.call(lambda: sorted(store.list(prefix or "")), f"listing {root}")
        if is_local(root):
            return [os.path.join(local_path(root), key) for key in keys]
        # scheme://bucket/prefix: the part after the bucket's name.
        _, _, above = root.partition("://")[2].strip("/").partition("/")
        return [f"{above}/{key}" if above else key for key in keys]

    def clear_local(self, local: str) -> None:
        """Remove a local file, unless local files are to be kept.

        Args:
            local: Its path.
        """
        if not self.keep_local and os.path.isfile(local):
            os.remove(local)

    def _store(self) -> Store:
        assert self.remote is not None
        return store_for(self.remote)

    def _check(self, remote: str) -> None:
        """See that what is to hold the files is there and lets us in."""
        self._policy.call(store_for(remote).check, f"looking for {remote}")


def _split(out: str | tuple[str, str]) -> tuple[str | None, str]:
    """Local folder (or None) and destination of an `out` argument."""
    if isinstance(out, (str, os.PathLike)):
        return None, os.fspath(out)
    if isinstance(out, Sequence) and len(out) == 2:
        return os.fspath(out[0]), os.fspath(out[1])
    raise ValueError(f"out is {out!r}; it must be one URL or path, or a pair (local folder, URL)")


def _kind_for(remote: str) -> type[CloudUploader]:
    name = "" if is_local(remote) else scheme_of(remote)
    if remote.startswith("dbfs:/Volumes"):
        name = "dbfs:/Volumes"
    kind = UPLOADERS.get(name)
    if kind is None:
        if not store_for(remote).can_write:
            raise ValueError(f"{remote}: {name}:// is read-only; nothing can be uploaded there")
        return CloudUploader
    if isinstance(kind, str):
        found: type[CloudUploader] = globals()[kind]
        return found
    return kind


class _BucketUploader(CloudUploader):
    """An uploader into something that is called a bucket."""

    def check_bucket_exists(self, remote: str) -> None:
        """See that the bucket of a URL is there and lets us in.

        Args:
            remote: The URL.

        Raises:
            StoreError: NotFound or AccessDenied, as a rule.
        """
        self._check(remote)


class S3Uploader(_BucketUploader):
    """Uploads to `s3://`."""


class GCSUploader(_BucketUploader):
    """Uploads to `gs://`."""


class OCIUploader(_BucketUploader):
    """Uploads to `oci://`."""


class AzureUploader(_BucketUploader):
    """Uploads to `azure://`."""


class AzureDataLakeUploader(CloudUploader):
    """Uploads to `azure-dl://`."""

    def check_container_exists(self, remote: str) -> None:
        """See that the container of a URL is there and lets us in.

        Args:
            remote: The URL.

        Raises:
            StoreError: NotFound or AccessDenied, as a rule.
        """
        self._check(remote)


class HFUploader(CloudUploader):
    """Uploads to `hf://`."""

    def check_dataset_exists(self) -> None:
        """See that the destination's repository is there and lets us in.

        Raises:
            StoreError: NotFound or AccessDenied, as a rule.
        """
        if self.remote is not None:
            self._check(self.remote)


class DatabricksUploader(CloudUploader):
    """What the two uploaders to Databricks have in common."""


class DatabricksUnityCatalogUploader(DatabricksUploader):
    """Uploads to `dbfs:/Volumes/…`."""


class DBFSUploader(DatabricksUploader):
    """Uploads to `dbfs:/…`."""

    def check_folder_exists(self) -> None:
        """See that the destination's parent is there and lets us in.

        Raises:
            StoreError: NotFound or AccessDenied, as a rule.
        """
        if self.remote is not None:
            self._check(self.remote)


class AlipanUploader(CloudUploader):
    """Uploads to `alipan://`."""

    def check_token(self) -> None:
        """See that the refresh token lets us in.

        Raises:
            StoreError: AccessDenied, as a rule.
        """
        if self.remote is not None:
            self._check(self.remote)


class LocalUploader(CloudUploader):
    """Copies to a path or `file://`."""
