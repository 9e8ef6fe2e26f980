"""The protocol that every object store keeps.

A store is rooted at a URL and holds objects under keys, '/'-separated and relative to that root.
Callers use the public methods of `Store`; a provider writes the few methods with a leading
underscore, one request each, and says in `_error` what its client's exceptions mean. What has to
be the same everywhere (keys that climb out of the root are refused, a body that is shorter than
announced is an error, no client's exception gets through) stands here, once.
"""

from __future__ import annotations

import io
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, ClassVar

from streaming.storage.errors import NotFound, ObjectChanged, StoreError, from_connection

__all__ = ["CHUNK_BYTES", "Body", "ObjectInfo", "Store", "check_key"]

CHUNK_BYTES = 1 << 18
"""Bytes that stores read at a time: few enough to stay in the CPU's cache on their way."""

Translate = Callable[[BaseException, str], StoreError | None]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store says of one object."""

    key: str
    """The object's key, relative to the store's root."""
    size: int
    """Its size in bytes."""
    etag: str | None = None
    """A token that changes with the content; opaque, None where the store has none."""


def check_key(key: str, url: str) -> str:
    """Refuse keys that would lead out of a store's root.

    Args:
        key: An object's key.
        url: The store's URL, for the message.

    Returns:
        The key.

    Raises:
        ValueError: If it is empty, absolute, holds NUL, or has a component '..'.

    Example:
        >>> check_key("train/shard.00000.mds", "s3://b")
        'train/shard.00000.mds'
        >>> check_key("../secret", "s3://b")
        Traceback (most recent call last):
        ValueError: '../secret' is not a key below s3://b: keys are relative and never climb by '..'
    """
    if not key or key.startswith(("/", "\\")) or "\0" in key or ".." in _components(key):
        raise ValueError(
            f"{key!r} is not a key below {url}: keys are relative and never climb by '..'"
        )
    return key


def _components(key: str) -> list[str]:
    return key.replace("\\", "/").split("/")


class Body:
    """The bytes of one answer, to be iterated over once; a context manager that gives it back.

    A chunk is valid until the next one is asked for (a store may fill one buffer again and again).
    What comes is checked against what was announced: both less and more is a retryable error.

    Args:
        chunks: The bytes as they come.
        length: How many there will be; None if the store does not say.
        etag: The version of the object that they are of; None if the store has none.
        close: Gives the connection back, or drops it if bytes are left.
        interrupt: Ends a read that is under way in another thread (shuts the socket down), where
            `close` would wait for it.
        from_whole: Whether these are cut out of the whole object, which travels all the same.
        total: How many bytes the object has, of which these are a part; None if that is not said.
    """

    def __init__(
        self,
        chunks: Iterable[bytes | memoryview],
        *,
        length: int | None,
        etag: str | None = None,
        close: Callable[[], object] | None = None,
        interrupt: Callable[[], object] | None = None,
        from_whole: bool = False,
        total: int | None = None,
    ) -> None:
        self.length = length
        self.total = total
        self.from_whole = from_whole
        self.etag = etag
        self.url = ""
        self._chunks = iter(chunks)
        self._close = close
        self._interrupt = interrupt
        self._reading = threading.Lock()
        self._given_up = False
        self._translate: Translate = from_connection

    def bind(self, url: str, translate: Translate) -> Body:
        """Say whose bytes these are and what exceptions mean while they come."""
        self.url = url
        self._translate = translate
        return self

    def __iter__(self) -> Iterator[bytes | memoryview]:
        came = 0
        while True:
            # Only the store's own work is guarded: what the consumer raises is not a StoreError.
            with translated(self.url, self._meaning), self._reading:
                chunk = next(self._chunks, None)
            if chunk is None:
                break
            came += len(chunk)
            yield chunk
        if self.length is not None and came != self.length:
            raise StoreError(
                f"{self.url}: {self.length} bytes were announced, but {came} came",
                url=self.url,
                retryable=True,
            )

    def _meaning(self, exc: BaseException, url: str) -> StoreError | None:
        if self._given_up:  # What a connection says that is shut beneath its reader is chance.
            return StoreError(f"{url}: reading was given up ({exc})", url=url, retryable=True)
        return self._translate(exc, url)

    def __enter__(self) -> Body:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back; harmless to repeat.

        From another thread it ends a read that is under way, by a retryable `StoreError` there: a
        way to give up on a connection that has stalled.
        """
        self._given_up = True
        if self._reading.acquire(blocking=False):
            try:
                close, self._close = self._close, None
                if close is not None:
                    close()
            finally:
                self._reading.release()
        elif self._interrupt is not None:
            with suppress(Exception):  # It has just ended by itself.
                self._interrupt()


@contextmanager
def translated(url: str, translate: Translate) -> Iterator[None]:
    """Turn a client's exceptions into ours; those that mean nothing to us pass through."""
    try:
        yield
    except StoreError:
        raise
    except Exception as exc:
        error = translate(exc, url)
        if error is None:
            raise
        raise error from exc


class Store(ABC):
    """Objects under a URL. Every call makes one attempt; `RetryPolicy` makes it several.

    Stores are cheap, safe to share between threads, to pickle and to fork: they hold options, not
    connections (those live in `streaming.storage.clients`).

    All methods raise `StoreError` or one of its kinds (`NotFound`, `AccessDenied`, `Throttled`,
    `ObjectChanged`), and ValueError for a key that leads out of the root.

    Args:
        url: The root. The scheme says which store this is.
        timeout_s: Longest wait for a connection, and for the next bytes on one, in seconds. It
            does not bound a transfer that makes progress.

    Example:
        >>> import io, pathlib, tempfile
        >>> from streaming.storage import store_for
        >>> with tempfile.TemporaryDirectory() as root:
        ...     store = store_for(root + "/bucket")
        ...     source = pathlib.Path(root, "hello.txt")
        ...     _ = source.write_bytes(b"hello")
        ...     store.put(source, "a/hello")
        ...     file = io.BytesIO()
        ...     print(store.get("a/hello", file), file.getvalue(), store.get_range("a/hello", 1, 3))
        ...     print(list(store.list("a/")), store.size("a/hello"), store.exists("b"))
        5 b'hello' b'el'
        ['a/hello'] 5 False
    """

    can_write: ClassVar[bool] = True
    """Whether `put` and `delete` exist here."""
    can_list: ClassVar[bool] = True
    """Whether `list` exists here."""
    can_range: ClassVar[bool] = True
    """Whether reading a part costs only that part."""

    def __init__(self, url: str, *, timeout_s: float = 60.0) -> None:
        if timeout_s <= 0:
            raise ValueError(f"{url}: timeout_s is {timeout_s}; it must be above 0 seconds")
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    # What callers use.

    def url_of(self, key: str) -> str:
        """The full URL of an object, as errors name it."""
        return f"{self.url}/{key}"

    def open(
        self, key: str, start: int = 0, stop: int | None = None, *, etag: str | None = None
    ) -> Body:
        """Begin to read an object, or the bytes [start, stop) of it.

        Args:
            key: The object's key.
            start: First byte.
            stop: Byte to stop before; None for the object's end.
            etag: Refuse any other version of the object (`Body.etag`, `ObjectInfo.etag`).

        Returns:
            The bytes to come. Close it, or use it in a `with` statement.
        """
        check_key(key, self.url)
        if start < 0 or (stop is not None and stop <= start):
            raise ValueError(f"{self.url_of(key)}: [{start}, {stop}) is not a range of bytes")
        with self._guard(key):
            body = self._open(key, start, stop, etag)
        if etag is not None and body.etag is not None and body.etag != etag:
            body.close()  # A server that does not know If-Match answers with what it has.
            url = self.url_of(key)
            raise ObjectChanged(f"{url}: the object has changed since it was first read", url=url)
        return body.bind(self.url_of(key), self._translate)

    def get(self, key: str, file: BinaryIO, *, etag: str | None = None) -> int:
        """Write an object into a file, piece by piece as it comes.

        Args:
            key: The object's key.
            file: Where `write` is called. What it raises passes through as it is.
            etag: Refuse any other version of the object.

        Returns:
            The object's size in bytes. Fewer bytes than announced are a retryable `StoreError`.
        """
        with self.open(key, etag=etag) as body:
            return sum(file.write(chunk) for chunk in body)

    def get_range(self, key: str, start: int, stop: int, *, etag: str | None = None) -> bytes:
        """Read the bytes [start, stop) of an object.

        Args:
            key: The object's key.
            start: First byte.
            stop: Byte to stop before.
            etag: Refuse any other version of the object.

        Returns:
            Exactly stop - start bytes; if the object has fewer, that is a `StoreError`.
        """
        if start == stop >= 0:
            return b""
        data = io.BytesIO()
        with self.open(key, start, stop, etag=etag) as body:
            for chunk in body:
                data.write(chunk)
        if data.tell() != stop - start:
            raise StoreError(
                f"{self.url_of(key)}: bytes [{start}, {stop}) were asked for, but the object ends "
                f"at {start + data.tell()}",
                url=self.url_of(key),
            )
        return data.getvalue()

    def stat(self, key: str) -> ObjectInfo:
        """An object's size and version, without its bytes."""
        check_key(key, self.url)
        with self._guard(key):
            return self._stat(key)

    def size(self, key: str) -> int:
        """An object's size in bytes."""
        return self.stat(key).size

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        try:
            self.stat(key)
        except NotFound:
            return False
        return True

    def put(self, file: str | os.PathLike[str], key: str) -> None:
        """Upload a file; it appears under its key when it is whole, and not before.

        Args:
            file: The local file's path.
            key: The object's key. An object that is there is replaced.
        """
        check_key(key, self.url)
        path = Path(file)
        size = path.stat().st_size
        with self._guard(key):
            self._put(path, size, key)

    def list(self, prefix: str = "") -> Iterator[str]:
        """The keys that begin with a prefix, at every depth, page by page as they are consumed.

        Args:
            prefix: What the keys begin with ("train/" for a folder); any string, "" for all.

        Returns:
            The keys, relative to the root.
        """
        if prefix:
            check_key(prefix, self.url)
        with self._guard(prefix):
            keys = self._list(prefix)
        while True:
            with self._guard(prefix):
                key = next(keys, None)
            if key is None:
                return
            yield key

    def delete(self, key: str) -> None:
        """Remove an object. One that is not there is as good as removed."""
        check_key(key, self.url)
        with self._guard(key):
            self._delete(key)

    def check(self) -> None:
        """See that the bucket (or whatever holds the objects here) exists and lets us in."""
        with self._guard(""):
            self._check()

    # What a provider writes. One attempt each, nothing caught: `_error` says what exceptions mean.

    @abstractmethod
    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        """Ask for [start, stop) of an object (start 0 and stop None: all of it, no range)."""

    @abstractmethod
    def _stat(self, key: str) -> ObjectInfo:
        """Ask for an object's size and ETag."""

    def _put(self, path: Path, size: int, key: str) -> None:
        """Upload a file of that many bytes, verify it, let it appear at once."""
        raise self._cannot("be written to")

    def _list(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with a prefix."""
        raise self._cannot("be listed")

    def _delete(self, key: str) -> None:
        """Remove an object, or do nothing if there is none."""
        raise self._cannot("be written to")

    def _check(self) -> None:
        """See that the bucket is there; by listing it, unless there is something better."""
        if self.can_list:
            next(self._list(""), None)

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        """What one of the client's exceptions means; None leaves it to the shared table."""
        return None

    def _cannot(self, what: str) -> StoreError:
        return StoreError(f"{self.url}: {type(self).__name__} can't {what}", url=self.url)

    def _translate(self, exc: BaseException, url: str) -> StoreError | None:
        return self._error(exc, url) or from_connection(exc, url)

    @contextmanager
    def _guard(self, key: str) -> Iterator[None]:
        with translated(self.url_of(key) if key else self.url, self._translate):
            yield
