"""Which version of a data set a directory holds, and whether it is still the one at its remote.

The index stands for the version: whoever rewrites a data set writes another one. Shards of two
versions can have the same names and sizes, so that nothing else tells them apart.
"""

import hashlib
import logging
import os
import threading
import time
from io import BytesIO
from typing import Any

from streaming.storage import NotFound, ObjectChanged, Store, StoreError

log = logging.getLogger("streaming")

INDEX = "index.json"

COSTLY_S = 10.0
"""How often, at most, remotes are asked that can't just tell their index's version."""

File = tuple[int, int, int]
"""What tells one file from another of the same name: inode, size in bytes, time of change in ns."""


def file_at(path: str) -> File | None:
    """Tell which file has a name now; None if none has."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def digest_of(data: bytes) -> str:
    """A digest of an index file's content."""
    return hashlib.blake2b(data, digest_size=20).hexdigest()


class Origin:
    """The version of a data set that a process has opened, from a remote, in a directory.

    Args:
        store: The remote.
        path: The directory's ``index.json``.
        file: Which file that is.
        digest: The digest of its content.
        etag: The version that the store gave it; None if that is not known.
    """

    def __init__(
        self, store: Store, path: str, file: File | None, digest: str, etag: str | None
    ) -> None:
        self.store = store
        self.path = path
        self.digest = digest
        self._file = file
        self._etag = etag
        self._checked_s = time.monotonic()
        self._lock = threading.Lock()

    def check_here(self) -> None:
        """See that the directory still holds this version.

        Whoever has just opened a shard's file, or is about to give one its name and so holds
        :meth:`Directory.renaming`, knows by it that the file is of this version.

        Raises:
            ObjectChanged: If another process has replaced it.
        """
        found = file_at(self.path)
        if found is None or found == self._file:
            return
        try:
            with open(self.path, "rb") as file:
                digest = digest_of(file.read())
        except FileNotFoundError:
            return
        if digest != self.digest:
            folder = os.path.dirname(self.path)
            raise ObjectChanged(
                f"The data set in {folder} was replaced while this run reads it: {self.store.url} "
                "was rewritten, and another process has opened it anew. Start this run again, or "
                "give each run a `local` of its own.",
                url=self.store.url,
            )
        self._file = found

    def check_there(self, max_age_s: float = 0.0) -> None:
        """See that the remote still holds this version; ask one question for all who wait.

        A shard whose bytes have come before is of this version then. If the remote can't be asked,
        nothing is raised: what it was asked for it gave.

        Args:
            max_age_s: How long ago it may have been asked. By default, not at all.

        Raises:
            ObjectChanged: If the remote was rewritten.
        """
        # A store without versions tells the size alone; one without ranges sends all of the index.
        if self._etag is None or not self.store.can_range:
            max_age_s = max(max_age_s, COSTLY_S)
        asked_s = time.monotonic() - max_age_s
        if max_age_s and self._checked_s >= asked_s:
            return
        with self._lock:
            if self._checked_s >= asked_s:
                return
            began_s, found = time.monotonic(), None
            try:
                found = self._ask()
            except NotFound:
                found = "its index is gone"
            except StoreError as error:
                log.debug("Could not see whether %s was rewritten: %s", self.store.url, error)
            if found is None:
                self._checked_s = began_s
                return
        raise ObjectChanged(
            f"{self.store.url} was rewritten while this run reads it ({found}): its old and new "
            "samples would be mixed. Start the run again when it is complete.",
            url=self.store.url,
        )

    def _ask(self) -> str | None:
        """What shows that the remote was rewritten."""
        info = self.store.stat(INDEX)
        if info.etag is None or info.etag == self._etag:
            size = self._file[1] if self._file else info.size
            return None if info.size == size else f"its index has {info.size:,} bytes, not {size:,}"
        data, etag = fetch_index(self.store)
        if digest_of(data) != self.digest:
            return "its index is another"
        self._etag = etag
        return None

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


def fetch_index(store: Store) -> tuple[bytes, str | None]:
    """Read a remote's index, and its version; one attempt."""
    data = BytesIO()
    with store.open(INDEX) as body:
        for chunk in body:
            data.write(chunk)
        return data.getvalue(), body.etag
