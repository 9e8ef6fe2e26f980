"""Moving files between stores and this machine, checked while they pass."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from streaming.cli.place import Access
from streaming.format.hashing import hasher, is_hash
from streaming.format.info import FileInfo
from streaming.storage import Store

__all__ = ["Received", "Sink", "ahead", "default_workers", "faults", "fetch", "receive"]

T = TypeVar("T")
R = TypeVar("R")


def default_workers() -> int:
    """How many files are handled at once unless it is said: threads, which mostly wait."""
    return min(16, 4 + (os.cpu_count() or 1))


class Sink:
    """Counts and hashes bytes, and writes them to a file if there is one.

    Args:
        algos: The hashes; those that are not known here are left out.
        file: Where the bytes go.

    Example:
        >>> sink = Sink(["sha1"])
        >>> _ = sink.write(b"abc")
        >>> sink.received().bytes
        3
    """

    def __init__(self, algos: Iterable[str], file: BinaryIO | None = None) -> None:
        self._hashers = {algo: hasher(algo) for algo in algos if is_hash(algo)}
        self._file = file
        self._bytes = 0

    def write(self, data: bytes) -> int:
        """Take the next bytes."""
        self._bytes += len(data)
        for running in self._hashers.values():
            running.update(data)
        if self._file is not None:
            self._file.write(data)
        return len(data)

    def received(self) -> Received:
        """What has come."""
        return Received(
            self._bytes, {algo: running.hexdigest() for algo, running in self._hashers.items()}
        )


@dataclass(frozen=True, slots=True)
class Received:
    """A file's bytes as they were read."""

    bytes: int
    digests: dict[str, str]


def receive(
    store: Store, key: str, algos: Iterable[str], access: Access, path: str | None = None
) -> Received:
    """Read a file from its beginning to its end, again if the connection fails.

    Args:
        store: The store.
        key: The file's key there.
        algos: The hashes to take.
        access: How often to try.
        path: Where to write it; None to look at it only.

    Raises:
        StoreError: If it can't be read.
    """
    names = list(algos)

    def attempt() -> Received:
        if path is None:
            sink = Sink(names)
            store.get(key, sink)  # type: ignore[arg-type]
            return sink.received()
        with open(path, "wb") as file:
            sink = Sink(names, file)
            store.get(key, sink)  # type: ignore[arg-type]
        return sink.received()

    return access.retry.call(attempt, f"reading {store.url_of(key)}")


def faults(info: FileInfo, received: Received) -> list[tuple[str, str]]:
    """What is wrong with a file: kind and description; nothing if it is as its index says.

    Example:
        >>> faults(FileInfo("a.mds", 3, {}), Received(2, {}))
        [('size', '2 bytes where the index says 3: it is cut off')]
    """
    if received.bytes != info.bytes:
        how = "it is cut off" if received.bytes < info.bytes else "it is longer, or another file"
        return [("size", f"{received.bytes} bytes where the index says {info.bytes}: {how}")]
    return [
        ("hash", f"its {algo} is {received.digests[algo]} where the index says {expected}")
        for algo, expected in info.hashes.items()
        if received.digests.get(algo, expected) != expected
    ][:1]


def fetch(store: Store, info: FileInfo, folder: str, access: Access) -> str:
    """Bring a file into a folder, and see that it is the one that the index describes.

    Args:
        store: The store.
        info: What the index says of the file.
        folder: Where it goes, under its own name.
        access: How the store is reached.

    Returns:
        Its path.

    Raises:
        FormatError: If size or a hash differ.
        StoreError: If it can't be read.
    """
    from streaming.format.errors import CorruptShardError

    path = Path(folder, *info.basename.split("/"))
    path.parent.mkdir(parents=True, exist_ok=True)
    found = faults(info, receive(store, info.basename, info.hashes, access, str(path)))
    if found:
        raise CorruptShardError(f"{store.url_of(info.basename)}: {found[0][1]}")
    return str(path)


def ahead(
    fn: Callable[[T], R],
    items: Iterable[T],
    workers: int,
    on_done: Callable[[], None] = lambda: None,
) -> Iterator[R]:
    """Call a function on items in threads; its results come in the items' order.

    Args:
        fn: The function.
        items: The items; no more than twice `workers` of them are under way or done and waiting.
        workers: How many threads.
        on_done: Called for each item, in the threads, when its result is there.

    Example:
        >>> list(ahead(lambda n: n * n, range(5), workers=2))
        [0, 1, 4, 9, 16]
    """
    if workers < 1:
        raise ValueError(f"workers is {workers}: give 1 or more")

    def work(item: T) -> R:
        result = fn(item)
        on_done()
        return result

    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="shardstream")
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
