"""Files that samples name instead of holding their bytes: fetched one by one, kept locally."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from streaming.storage import RetryPolicy, store_for
from streaming.storage.base import check_key

__all__ = ["ContentFiles"]


class ContentFiles:
    """A folder's files, fetched when they are first read.

    What was fetched stays, and is not counted in a data set's `cache_limit`. Any number of threads
    and processes may read at once: a file has its name only when it is complete.

    Args:
        remote: Where the files are.
        local: The folder that they are kept in.
        timeout_s: Longest wait for the next bytes, in seconds.
        retries: Attempts after the first.

    Example:
        >>> import tempfile
        >>> remote, local = tempfile.mkdtemp(), tempfile.mkdtemp()
        >>> _ = Path(remote, "clip.mp4").write_bytes(b"video")
        >>> ContentFiles(remote, local).read("clip.mp4"), os.listdir(local)
        (b'video', ['clip.mp4'])
    """

    def __init__(
        self, remote: str, local: str, *, timeout_s: float = 60.0, retries: int = 2
    ) -> None:
        self.local = local
        self._store = store_for(remote, timeout_s=timeout_s)
        self._retry = RetryPolicy(retries=retries)

    def fetch(self, path: str) -> Path:
        """Fetch a file if it isn't here.

        Args:
            path: Its path below the remote, with slashes.

        Returns:
            Where it is.

        Raises:
            ValueError: The path is absolute or climbs out of the folder.
            streaming.storage.StoreError: It can't be had; `NotFound` if it isn't there.
        """
        # Samples come from elsewhere: what they name must not be written outside of the folder.
        file = Path(self.local, check_key(path, self._store.url))
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            aside = file.with_name(f".{file.name}.{uuid.uuid4().hex}.part")
            try:
                self._retry.call(lambda: self._download(path, aside), f"fetching {path}")
                os.replace(aside, file)
            finally:
                aside.unlink(missing_ok=True)
        return file

    def read(self, path: str) -> bytes:
        """The bytes of a file, fetched if it isn't here; raises what `fetch` does."""
        return self.fetch(path).read_bytes()

    def _download(self, path: str, aside: Path) -> None:
        with open(aside, "wb") as out:
            self._store.get(path, out)
