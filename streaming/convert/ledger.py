"""What a conversion remembers: small files beside the data set, gone when it is committed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from streaming.convert.errors import ConvertError
from streaming.format.index import get_index_basename
from streaming.format.replace import write_atomically
from streaming.storage import NotFound, RetryPolicy, Store, is_local, local_path, store_for

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["FOLDER", "INDEX", "Ledger", "sha256"]

INDEX = get_index_basename()
FOLDER = ".convert"
"""The folder of the records, below the data set's."""
_JOB = f"{FOLDER}/job.json"
_OLD = f"{FOLDER}/old-index.json"
_DELETERS = 16


def sha256(data: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


class Ledger:
    """The records of a conversion, and the index that it is about to write.

    Args:
        out: The data set's folder or URL.
        storage_options: Options of its store.

    Example:
        >>> import tempfile
        >>> ledger = Ledger(tempfile.mkdtemp())
        >>> ledger.write_part("00003", {"samples": 7})
        >>> ledger.part("00003"), ledger.part("00004"), ledger.job()
        ({'samples': 7}, None, None)
    """

    def __init__(self, out: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.out = out
        options = {} if is_local(out) else dict(storage_options or {})
        self.store: Store = store_for(out, **options)
        self._retry = RetryPolicy()

    def read(self, key: str) -> bytes | None:
        """The content of a file; None if there is none."""

        def fetch() -> bytes:
            file = io.BytesIO()
            self.store.get(key, file)
            return file.getvalue()

        try:
            return self._retry.call(fetch, f"reading {self.store.url_of(key)}")
        except NotFound:
            return None

    def write(self, key: str, data: bytes, durable: bool = True) -> None:
        """Write a file so that it is seen whole or not at all.

        Args:
            key: Its name.
            data: Its content.
            durable: Whether this has to hold after a power failure as well.
        """
        if is_local(self.out):
            path = Path(local_path(self.out), key)
            path.parent.mkdir(parents=True, exist_ok=True)
            if durable:
                write_atomically(path, data)
            else:
                aside = path.with_name(f"{path.name}.{os.getpid()}")
                aside.write_bytes(data)
                os.replace(aside, path)
            return
        with tempfile.NamedTemporaryFile(prefix="shardstream-", delete=False) as file:
            file.write(data)
        try:
            put = partial(self.store.put, file.name, key)
            self._retry.call(put, f"uploading {self.store.url_of(key)}")
        finally:
            os.unlink(file.name)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove files, several at once; those that are absent are as good as removed.

        Folders of this machine that are empty then go as well.
        """

        def remove(key: str) -> None:
            self._retry.call(partial(self.store.delete, key), f"deleting {key}")

        listed = list(keys)
        with ThreadPoolExecutor(_DELETERS, "streaming-delete") as pool:
            for _ in pool.map(remove, listed):
                pass
        if is_local(self.out):
            for folder in sorted({os.path.dirname(key) for key in listed}, reverse=True):
                path = Path(local_path(self.out), folder)
                if folder and path.is_dir() and not any(path.iterdir()):
                    path.rmdir()

    def keys(self, prefix: str = "") -> list[str]:
        """The files below a prefix; none where the store can't be listed."""
        if not self.store.can_list:
            return []
        return self._retry.call(
            lambda: list(self.store.list(prefix)), f"listing {self.store.url}/{prefix}"
        )

    def first_key(self) -> str | None:
        """Any file that is there, records aside."""
        if not self.store.can_list:
            return INDEX if self.store.exists(INDEX) else None

        def find() -> str | None:
            keys = self.store.list()
            return next((key for key in keys if not key.startswith(f"{FOLDER}/")), None)

        return self._retry.call(find, f"looking into {self.store.url}")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """See that nobody else converts to the same folder meanwhile, where that can be seen.

        The lock goes with the process that has it; processes that it has forked don't have it.

        Raises:
            ConvertError: If another process does.
        """
        if not is_local(self.out) or fcntl is None:
            yield
            return
        path = Path(local_path(self.out), FOLDER, "lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConvertError(
                    f"another process is converting to {self.out}; wait for it, or end it"
                ) from None
            except OSError:  # a file system without locks
                pass
            yield

    # The records.

    def job(self) -> dict[str, Any] | None:
        """What an earlier run noted of its job; None if there was none, or it was cut off."""
        return _parse(self.read(_JOB))

    def write_job(self, record: Mapping[str, Any]) -> None:
        """Note the job that begins."""
        self.write(_JOB, json.dumps(record, sort_keys=True).encode())

    def part(self, folder: str) -> dict[str, Any] | None:
        """What was noted of a finished part."""
        return _parse(self.read(f"{FOLDER}/{folder}.json"))

    def write_part(self, folder: str, record: Mapping[str, Any]) -> None:
        """Note that a part is finished."""
        data = json.dumps(record, sort_keys=True).encode()
        # A record that is lost, or cut off, is a part that is written again.
        self.write(f"{FOLDER}/{folder}.json", data, durable=False)

    def forget_part(self, folder: str) -> None:
        """Forget a part that is about to be written anew, and what would make it readable."""
        self.delete([f"{FOLDER}/{folder}.json", f"{folder}/{INDEX}"])

    def old_index(self) -> bytes | None:
        """The index of the data set that is being replaced."""
        return self.read(_OLD)

    def keep_old_index(self, data: bytes) -> None:
        """Keep it until its files are removed."""
        self.write(_OLD, data)

    def clear(self, folders: Iterable[str] = ()) -> None:
        """Remove the records, the job's last: what is cut off can be taken up again.

        Args:
            folders: Of the parts that are noted, for stores that can't be listed.
        """
        found = {*self.keys(f"{FOLDER}/"), *(f"{FOLDER}/{name}.json" for name in folders)}
        self.delete(found - {_JOB})
        self.delete([_JOB])


def _parse(data: bytes | None) -> dict[str, Any] | None:
    """A record; None if it can't be read, which a power failure may have caused."""
    try:
        record = json.loads(data or b"null")
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
