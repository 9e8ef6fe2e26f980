"""A remote's index and the copy of it in a directory: fetched, compared, and replaced.

What a remote's index was like when it was last looked at is noted in the user's folder, see
:mod:`streaming.keep`, so that a node asks once for it, and for no more than its ETag.
"""

import json
import logging
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TypeVar
from urllib.parse import urlsplit

from streaming.cache.alone import alone_in, is_fetched, publish
from streaming.cache.directory import INDEX
from streaming.cache.in_use import not_in_use
from streaming.cache.origin import File, Origin, digest_of, fetch_index, file_at
from streaming.cache.renew import renew
from streaming.format.errors import FormatError
from streaming.format.index import Index
from streaming.indexes import parse_index, read_index
from streaming.keep import user_keep
from streaming.storage import ObjectChanged, RetryPolicy, Store, StoreError

log = logging.getLogger("streaming")
T = TypeVar("T")

LAUNCH_S = 60.0
"""Processes that were started so long before one looked at a remote belong to the same run."""
UNREACHABLE_S = 30.0
"""How long a host is not asked again that could not be reached."""

_started_ns = time.time_ns()
_opened: set[str] = set()
_unreachable: dict[tuple[str, str], float] = {}


def open_index(store: Store, folder: str, retry: RetryPolicy) -> tuple[Index, Origin]:
    """Open the index of a directory that holds shards from a remote.

    It is fetched if it is not there, and compared with the remote's otherwise, once on a node for
    processes that start together. If the remote was rewritten, its index takes the place of the
    old one, and shards of the old go. If it can't be asked, what is here is used, with a warning.

    Args:
        store: The remote.
        folder: The directory, which exists.
        retry: How often to try.

    Raises:
        StoreError: If it is not here and can't be fetched.
        ObjectChanged: If the remote was rewritten while an iteration reads the directory, or the
            directory was not filled from there.
        PermissionError: If the remote was rewritten, and this user may not change the directory.
    """
    return _Opening(store, folder, retry).run()


@dataclass(frozen=True)
class _Note:
    """What a remote's index was like when it was last looked at, and the copy of it here."""

    url: str
    path: str
    file: File | None
    digest: str
    etag: str | None
    checked_ns: int
    """When it was asked for."""


class _Opening:
    """One directory's index on its way to be opened."""

    def __init__(self, store: Store, folder: str, retry: RetryPolicy) -> None:
        self._store = store
        self._folder = folder
        self._retry = retry
        self._path = os.path.join(folder, INDEX)
        keep = user_keep()
        self._locks = None if keep is None else keep.locks_path
        key = digest_of(f"{store.url}\n{os.path.realpath(self._path)}".encode())
        self._note_path = None if keep is None else os.path.join(keep.path, f"origin-{key}.keep")

    def run(self) -> tuple[Index, Origin]:
        since_ns = _begin(self._path)
        found = self._looked_at(since_ns)
        if found is not None:
            return found
        with alone_in(self._folder):  # so that a node's ranks don't all ask
            found = self._looked_at(since_ns)
            if found is not None:
                return found
            index = _read_cached(self._path)
            return self._fetch() if index is None else self._compare(index)

    def _looked_at(self, since_ns: int) -> tuple[Index, Origin] | None:
        """The index that is here, if it was found to be the remote's since then."""
        note = self._note()
        if note is None or note.checked_ns < since_ns or note.file != file_at(self._path):
            return None
        index = _read_cached(self._path)
        return None if index is None else (index, self._origin(note.digest, note.etag))

    def _fetch(self) -> tuple[Index, Origin]:
        began_ns = time.time_ns()

        def attempt() -> tuple[bytes, str | None, Index]:
            data, etag = fetch_index(self._store)
            try:
                return data, etag, self._parse(data)
            except FormatError as error:
                # Worth another try: an index that is just being replaced can look like this.
                raise StoreError(str(error), retryable=True) from error

        what = f"fetching {self._store.url_of(INDEX)}"
        data, etag, index = self._retry.call(attempt, what)
        digest, note = digest_of(data), self._note()
        if note is not None and note.digest != digest:
            renew(self._folder, None, index, data)  # shards of the other version may be here
        else:
            publish(self._path, data)
        return index, self._take_note(digest, etag, began_ns)

    def _compare(self, index: Index) -> tuple[Index, Origin]:
        """See whether the remote's index is still the one that is here."""
        began_ns, note = time.time_ns(), self._note()
        file = file_at(self._path)
        if note is not None and note.file != file:
            note = None
        try:
            self._check_reachable()
            if note is not None and note.etag is not None:
                info = self._ask(lambda: self._store.stat(INDEX))
                if info.etag == note.etag and file is not None and info.size == file[1]:
                    return index, self._take_note(note.digest, note.etag, began_ns)
            data, etag = self._ask(lambda: fetch_index(self._store))
        except StoreError as error:
            self._warn(error)
            digest = self._digest() if note is None else note.digest
            return index, self._origin(digest, None if note is None else note.etag)
        here, there = self._digest() if note is None else note.digest, digest_of(data)
        if here != there:
            index = self._renew(index, data, is_cache=note is not None or is_fetched(self._path))
        return index, self._take_note(there, etag, began_ns)

    def _renew(self, old: Index, data: bytes, is_cache: bool) -> Index:
        url, folder = self._store.url, self._folder
        new = self._parse(data)
        if not is_cache:
            raise ObjectChanged(
                f"{folder} holds another data set than {url}, and was not filled from there, so "
                "that its files may be the only ones. Give another `local`; or, if it is a copy of "
                "what was there before, remove it.",
                url=url,
            )
        with not_in_use(self._locks, folder) as is_free:
            if not is_free:
                raise ObjectChanged(
                    f"{url} was rewritten since it was cached in {folder}, and an iteration that "
                    "reads the old samples there has not ended. Wait for its end, or give another "
                    "`local`.",
                    url=url,
                )
            log.warning("%s was rewritten: old shards go from %s.", url, folder)
            renew(folder, old, new, data)
        return new

    def _ask(self, question: Callable[[], T]) -> T:
        once_more = replace(self._retry, retries=min(1, self._retry.retries))
        return once_more.call(question, f"looking whether {self._store.url} was rewritten")

    def _check_reachable(self) -> None:
        """Not to wait for the same host once for each of many streams."""
        if time.monotonic() < _unreachable.get(self._host, 0.0):
            raise StoreError(f"{self._store.url}: it could not be reached just now")

    @property
    def _host(self) -> tuple[str, str]:
        parts = urlsplit(self._store.url)
        return parts.scheme, parts.netloc

    def _warn(self, error: StoreError) -> None:
        if error.retryable:
            _unreachable[self._host] = time.monotonic() + UNREACHABLE_S
        log.warning(
            "Could not see whether %s was rewritten, so that what is in %s is used as it is: %s",
            self._store.url,
            self._folder,
            error,
        )

    def _parse(self, data: bytes) -> Index:
        return parse_index(data, self._store.url_of(INDEX), self._path)

    def _digest(self) -> str:
        with open(self._path, "rb") as file:
            return digest_of(file.read())

    def _origin(self, digest: str, etag: str | None) -> Origin:
        return Origin(self._store, self._path, file_at(self._path), digest, etag)

    # What was noted.

    def _note(self) -> _Note | None:
        if self._note_path is None:
            return None
        try:
            with open(self._note_path, encoding="utf-8") as file:
                content = json.load(file)
            found = content["file"]
            note = _Note(**{**content, "file": None if found is None else tuple(found)})
        except (OSError, ValueError, TypeError, LookupError):
            return None
        return note if note.url == self._store.url else None

    def _take_note(self, digest: str, etag: str | None, began_ns: int) -> Origin:
        file = file_at(self._path)
        if self._note_path is not None:
            note = _Note(self._store.url, self._path, file, digest, etag, began_ns)
            # By the name of a part of what nobody makes: it may be removed, and is not missed.
            part = os.path.join(os.path.dirname(self._note_path), f".part-0-{secrets.token_hex(4)}")
            with suppress(OSError):
                with open(part, "x", encoding="utf-8") as target:
                    json.dump(asdict(note), target)
                os.replace(part, self._note_path)
        return Origin(self._store, self._path, file, digest, etag)


def _begin(path: str) -> int:
    """Since when a look at the remote counts for a process that opens an index now, in Unix ns.

    Processes that were started together need not all look: what one found when the others were
    running already holds for them, too. Not so when one of them opens the index once more.
    """
    now_ns = time.time_ns()
    if path in _opened:
        return now_ns
    _opened.add(path)
    return max(_started_ns, now_ns - int(LAUNCH_S * 1e9))


def _read_cached(path: str) -> Index | None:
    try:
        return read_index(path)
    except FileNotFoundError:
        return None
    except FormatError as error:
        log.warning("The cached index is damaged and will be fetched again: %s", error)
        with suppress(FileNotFoundError):
            os.unlink(path)
        return None


def _start_in_child() -> None:
    global _started_ns
    _started_ns = time.time_ns()
    _opened.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_in_child)
