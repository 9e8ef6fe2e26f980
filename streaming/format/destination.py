"""Where a data set is written to: a folder, an object store, or both.

Files are written to `Destination.folder`. A local data set appears in its place when `publish` is
called, and a remote one when its index is uploaded, after everything else. Until then neither can
be read; what `Destination.left` says is what there is to be cleaned away by hand.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming.format.pieces import write_pieces
from streaming.format.replace import (
    INDEX,
    Staging,
    dataset_files,
    is_shard_name,
    write_atomically,
)
from streaming.storage import (
    AccessDenied,
    NotFound,
    RetryPolicy,
    Store,
    is_local,
    local_path,
    store_for,
)

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["Destination", "Out", "split_out"]

logger = logging.getLogger(__name__)

Out = str | os.PathLike[str] | tuple[str | os.PathLike[str], str | os.PathLike[str]]
"""A folder or URL; or a folder and a URL."""


def split_out(out: Any) -> tuple[str | None, str | None]:
    """Tell the local part of a place from its remote part.

    Args:
        out: A folder, a URL, or a pair of both, where an empty one counts as not given.

    Returns:
        The local path and the remote URL; one of them may be None.

    Raises:
        TypeError: If it is something else.
        ValueError: If nothing is given, the first of a pair is not local, or both are one place.

    Example:
        >>> split_out("s3://bucket/train"), split_out("/data"), split_out(("/data", "s3://b"))
        ((None, 's3://bucket/train'), ('/data', None), ('/data', 's3://b'))
    """
    pair = (out, None) if isinstance(out, (str, os.PathLike)) else out
    try:
        first, second = (os.fspath(part) if part else None for part in pair)
    except (TypeError, ValueError):
        raise TypeError(
            f"out is {out!r}; give a folder, a URL, or a pair of both: (local, remote)"
        ) from None
    if first is not None and second is None and not is_local(first):
        first, second = None, first
    if first is None and second is None:
        raise ValueError(f"out is {out!r}; name a folder or a URL")
    if first is None:
        return None, second
    if not is_local(first):
        raise ValueError(f"out is {out!r}; the first of a pair has to be a local folder")
    first = local_path(first)
    if second is not None and is_local(second):
        where = os.path.realpath(first)
        if where == os.path.realpath(local_path(second)):
            raise ValueError(f"out is {out!r}: both are the folder {where}; give it once")
    return first, second


class Destination:
    """A place for a data set that is being written.

    Args:
        out: A local folder, a URL, or a pair of both.
        keep_local: Whether local files stay when they have been uploaded.
        exist_ok: Whether a data set that is there may be replaced.
        retries: Attempts to upload a file after the first.
        progress_bar: Whether to show how much has been uploaded.
        storage_options: Options of the store.
        sleep: Waits between attempts, and may raise to give up.

    Raises:
        FileExistsError: If there is something already and `exist_ok` is false.
        StoreError: If the store can't be reached, or can't be written to.
        TypeError, ValueError: If `out` makes no sense.
    """

    local: str
    """The local data set's folder; a temporary one if only a URL was given."""
    remote: str | None
    """The URL of the remote data set, if there is one."""
    folder: Path
    """Where the files have to be written."""

    def __init__(
        self,
        out: Out,
        *,
        keep_local: bool = False,
        exist_ok: bool = False,
        retries: int = 2,
        progress_bar: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        sleep: Callable[[float], None],
    ) -> None:
        local, self.remote = split_out(out)
        self.keep = keep_local or self.remote is None
        self._retry = RetryPolicy(retries=retries, sleep=sleep)
        self._exist_ok = exist_ok
        self._store: Store | None = None
        if self.remote is not None:
            self._store = store_for(self.remote, **(storage_options or {}))
            self._check_store(self._store)
        self._staging: Staging | None = None
        if local is None:
            self.folder = Path(tempfile.mkdtemp(prefix="shardstream-"))
        else:
            self._staging = Staging(local, exist_ok)
            self.folder = self._staging.folder
        self.local = str(self.folder) if local is None else local
        # Also when a writer is dropped without having been finished.
        self._rubbish = weakref.finalize(self, _remove, self._staging or self.folder, os.getpid())
        self._lock = threading.Lock()
        self._withdrawn = not exist_ok
        self._old_names: set[str] = set()
        self._uploaded = 0
        self._published = False
        self._bar: tqdm[Any] | None = None
        self._wants_bar = progress_bar and self._store is not None

    def write(self, name: str, data: bytes | Sequence[bytes]) -> None:
        """Write a file of the data set into `folder`.

        Args:
            name: The file's name. Several threads may write at once.
            data: Its content, whole or in pieces.
        """
        with open(self.folder / name, "wb") as file:
            if isinstance(data, bytes):
                file.write(data)
            else:
                write_pieces(file, data)
            # The index that makes it a data set must not outlive the files in a power failure.
            if self.keep and self._staging is not None:
                file.flush()
                os.fsync(file.fileno())

    def upload(self, name: str) -> None:
        """Upload a file of `folder`, and remove it from there if it is not to be kept.

        Args:
            name: The file's name. Several threads may upload at once.

        Raises:
            StoreError: After all attempts, with the reason of each.
        """
        assert self._store is not None
        self._withdraw(self._store)
        path = self.folder / name
        size = path.stat().st_size
        self._put(path, name)
        with self._lock:
            self._uploaded += 1
        if not self.keep:
            path.unlink()
        self._show(size)

    def publish(self, index: bytes, names: set[str]) -> None:
        """Let the data set appear: the index goes to the store, then to the local folder.

        Args:
            index: The index file's content.
            names: The names of all other files of the data set.

        Raises:
            StoreError: If the index could not be uploaded; then nothing has appeared.
            OSError: If the local data set could not be put in place.
        """
        if self._store is not None:
            self._withdraw(self._store)
            aside = self.folder / f".{INDEX}.shardstream-upload"
            try:
                aside.write_bytes(index)
                self._put(aside, INDEX)
            finally:
                aside.unlink(missing_ok=True)
            self._remove_stale(self._store, names | {INDEX})
            self._show(len(index))
            self._published = True
        if self._staging is None:
            if self.keep:
                write_atomically(self.folder / INDEX, index)
                self._rubbish.detach()
        elif self.keep:
            self._staging.publish(index)
        else:
            self._staging.drop()
        self.close()

    def close(self) -> None:
        """Remove what is temporary; a folder of the user's is left as it is. May be repeated."""
        self._rubbish()
        if self._bar is not None:
            self._bar.close()

    def left(self) -> str:
        """Say what a writer that gives up leaves behind."""
        said = [] if self._staging is None else [self._staging.left()]
        if self._published:
            said.append(f"the data set in {self.remote} is complete")
        elif self._store is not None:
            if self._uploaded:
                said.append(f"{self._uploaded} files without an index are left in {self.remote}")
            if self._exist_ok and self._withdrawn:
                said.append(f"the index that was in {self.remote} is removed")
        return "; ".join(filter(None, said)) or "nothing is left behind"

    def _check_store(self, store: Store) -> None:
        """See at once that the store can be written to and holds nothing that should stay."""
        if not store.can_write:
            raise ValueError(f"{self.remote} can only be read; a writer needs a store to write to")
        try:
            found = self._retry.call(lambda: self._first_key(store), f"looking into {self.remote}")
        except AccessDenied as exc:
            if self._exist_ok:  # whoever may write need not be allowed to look
                logger.info("Writing to %s without having looked into it: %s", self.remote, exc)
                return
            raise exc.retold(
                f"{exc}. A writer looks whether {self.remote} is empty before it begins; pass "
                "exist_ok=True if it may write there without looking"
            ) from exc
        if found is not None and not self._exist_ok:
            raise FileExistsError(
                f"{self.remote} is not empty (it has {found}); name another place, or pass "
                "exist_ok=True to replace the data set in it"
            )

    @staticmethod
    def _first_key(store: Store) -> str | None:
        if store.can_list:
            return next(store.list(), None)
        return INDEX if store.exists(INDEX) else None

    def _withdraw(self, store: Store) -> None:
        """Delete the old index before the first new shard goes up: no mixture is ever readable."""
        with self._lock:
            if self._withdrawn:
                return
            index = BytesIO()
            try:
                self._retry.call(lambda: _fetch(store, index), f"reading {store.url_of(INDEX)}")
                self._old_names = dataset_files(index.getvalue())
            except AccessDenied as exc:
                logger.info("The old index can't be read, only deleted: %s", exc)
            except NotFound:
                self._withdrawn = True
                return
            self._retry.call(lambda: store.delete(INDEX), f"deleting {store.url_of(INDEX)}")
            self._withdrawn = True

    def _remove_stale(self, store: Store, names: set[str]) -> None:
        """Remove an old data set's shards, which no index names any more; failing is no harm."""
        if not self._exist_ok:
            return
        try:
            listed = store.list("shard.") if store.can_list else iter(())
            stale = {key for key in listed if is_shard_name(key)} | self._old_names
            for key in sorted(stale - names):
                self._retry.call(lambda key=key: store.delete(key), f"deleting {key}")  # type: ignore[misc]
        except Exception as exc:
            logger.warning("%s is complete, but old shards are left there: %s", self.remote, exc)

    def _put(self, path: Path, key: str) -> None:
        store = self._store
        assert store is not None
        self._retry.call(lambda: store.put(path, key), f"uploading {store.url_of(key)}")

    def _show(self, size: int) -> None:
        if not self._wants_bar:
            return
        with self._lock:
            if self._bar is None:
                from tqdm import tqdm

                self._bar = tqdm(
                    desc=f"Uploading to {self.remote}", unit="B", unit_scale=True, leave=True
                )
            self._bar.update(size)


def _fetch(store: Store, file: BytesIO) -> None:
    file.seek(0)
    file.truncate()
    store.get(INDEX, file)


def _remove(place: Staging | Path, pid: int) -> None:
    """Remove what is temporary, in the process that made it."""
    if os.getpid() != pid:
        return
    if isinstance(place, Staging):
        place.give_up()
    else:
        shutil.rmtree(place, ignore_errors=True)
