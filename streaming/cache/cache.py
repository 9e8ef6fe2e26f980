"""The shards on this node, as one dataset sees them: open, fetched when missing, bounded."""

import logging
import os
import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.cache.directory import Directory
from streaming.cache.fetch import fetch_shard
from streaming.cache.prefetch import Prefetcher
from streaming.cache.space import Blocked, MayEvict, Space, Victim
from streaming.format.errors import CorruptShardError
from streaming.format.hashing import hasher
from streaming.format.reader import Reader

log = logging.getLogger("streaming")

FETCH_THREADS = 4
"""Shards that one process fetches side by side."""
BYTES_AHEAD = 256 << 20
"""How far a process fetches ahead unless told in samples."""
LOOK_S = 0.01
"""How often to look, at most, whether shards that are open were evicted."""
TOUCH_S = 10.0
"""How often a shard that is being read is marked as used."""


class MissingShardError(FileNotFoundError):
    """A shard of a stream that has no remote is not there."""


class ShardCache:
    """All shards of a dataset, numbered through its streams.

    Args:
        directories: One for each stream.
        readers: The shards' readers, by number.
        limit: Bytes that the shards fetched may take together, or None.
        count: Called with amounts to add to the run's counters: ``shards_fetched``,
            ``bytes_fetched``, ``cache_hits``, ``evictions``, ``retries``, ``wait_ns``.
        max_open: How many shards to keep open for reading; None for as many as the process may
            well open.
    """

    def __init__(
        self,
        directories: Sequence[Directory],
        readers: Sequence[Reader],
        limit: int | None,
        count: Callable[..., None],
        max_open: int | None = None,
    ) -> None:
        self.directories = list(directories)
        self._readers = readers
        self._count = count
        self._max_open = max_open or _default_max_open()
        self.space = Space(self.directories, limit, on_evict=self._count_evictions)
        ends = np.cumsum([len(directory.index) for directory in directories])
        self._offsets = [0, *ends.tolist()]
        self._begin_empty()

    def _begin_empty(self) -> None:
        self._open: OrderedDict[int, Reader] = OrderedDict()
        self._lock = threading.Lock()
        self._verified: set[int] = set()
        self._swept = False
        self._touched_s = time.monotonic()
        self._looked_s = 0.0
        self._pid = os.getpid()

    def _count_evictions(self, shards: int) -> None:
        self._count(evictions=shards)
        self._close_evicted()

    # Reading.

    def reader(self, shard: int) -> Reader:
        """A shard, open for reading; fetched first if it is not here.

        Raises:
            MissingShardError: If its stream has no remote to fetch it from.
            CorruptShardError: If it is damaged, also when fetched again.
            StoreError: If it can't be fetched.
        """
        reader = self._open.get(shard)
        if reader is None:
            return self._open_shard(shard)
        try:
            self._open.move_to_end(shard)
        except KeyError:
            pass  # another thread closed it; whoever holds it reads on
        return reader

    def _open_shard(self, shard: int) -> Reader:
        at, local = self.locate(shard)
        directory = self.directories[at]
        if directory.is_cache:
            if not self._try_open(shard, at, local):
                self._fetch_and_open(shard, at, local)
            directory.mark(local, opened=True)
        else:
            self._open_original(shard, directory, local)
        reader = self._readers[shard]
        with self._lock:
            self._open[shard] = reader
            while len(self._open) > self._max_open:
                self._close(self._open.popitem(last=False)[1])
        return reader

    def _open_original(self, shard: int, directory: Directory, local: int) -> None:
        try:
            self._verify_hash(shard, directory, local)
            self._readers[shard].open()
        except FileNotFoundError as error:
            raise MissingShardError(
                f"Shard {local} is missing from {directory.path} (no {error.filename}), and the "
                "stream has no `remote` to fetch it from. Restore the file, or give the stream its "
                "`remote`."
            ) from error

    def _try_open(self, shard: int, at: int, local: int, claimed: bool = False) -> bool:
        """Open a shard that is here and sound; one that is damaged goes."""
        directory = self.directories[at]
        if not directory.is_present(local):
            return False
        try:
            self._verify_hash(shard, directory, local)
            self._readers[shard].open()
        except FileNotFoundError:
            return False  # evicted meanwhile
        except CorruptShardError as error:
            log.warning("A cached shard is damaged and will be fetched again: %s", error)
            if claimed:
                directory.remove(local)
            else:
                self.space.evict(at, local)
            return False
        self._count(cache_hits=1)
        return True

    def _fetch_and_open(self, shard: int, at: int, local: int) -> None:
        """Fetch a shard and open it under one claim, so that nobody evicts it in between."""
        started = time.monotonic_ns()
        try:
            while True:
                with self._claimed(at, local):
                    if self._try_open(shard, at, local, claimed=True):
                        return
                    blocked = self._fetch(shard, at, local)
                    if blocked is None:
                        self._readers[shard].open()
                        return
                self.space.wait_for_room(blocked, f"shard {local} of {self.directories[at].path}")
        finally:
            self._count(wait_ns=time.monotonic_ns() - started)

    @contextmanager
    def _claimed(self, at: int, local: int) -> Iterator[None]:
        """Hold the claim on a shard, waiting for whoever has it."""
        claim = self.directories[at].claim(local)
        if not claim.try_acquire():
            # What is evicted meanwhile should not stay on the disk until this wait is over.
            self.close()
            claim.acquire(f"{claim}, which another is fetching")
        try:
            yield
        finally:
            claim.release()

    def _fetch(
        self, shard: int, at: int, local: int, may_evict: MayEvict | None = None
    ) -> Blocked | None:
        fetched = fetch_shard(
            self.directories[at],
            at,
            local,
            self.space,
            may_evict,
            on_retry=lambda: self._count(retries=1),
            on_fetched=lambda travelled: self._count(shards_fetched=1, bytes_fetched=travelled),
        )
        if isinstance(fetched, Blocked):
            return fetched
        self._verified.add(shard)
        if not self._swept:
            self.sweep()
        return None

    def sweep(self) -> None:
        """Remove what processes that are gone have left half-written."""
        self._swept = True
        try:
            self.space.sweep()
        except OSError as error:
            log.debug("Could not look for what others left: %s", error)

    def _verify_hash(self, shard: int, directory: Directory, local: int) -> None:
        """Check the hash of a file that was here before, once in each process."""
        algo = directory.validate_hash
        if algo is None or shard in self._verified:
            return
        for raw, _ in directory.index.files(local):
            path = directory.path_of(raw)
            digest = hasher(algo)
            with open(path, "rb") as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
            if digest.hexdigest() != raw.hashes.get(algo):
                raise CorruptShardError(
                    f"{path} has the {algo} {digest.hexdigest()}, the index says "
                    f"{raw.hashes.get(algo)}"
                )
        self._verified.add(shard)

    def forget(self, shard: int) -> bool:
        """Close a shard whose file vanished before it was read; False if it was not even open."""
        with self._lock:
            reader = self._open.pop(shard, None)
        if reader is not None:
            reader.close()
        return reader is not None

    def refresh(self) -> None:
        """Close what was evicted, so that its space comes free; mark what is read as used."""
        now = time.monotonic()
        touch = now - self._touched_s > TOUCH_S
        if touch:
            self._touched_s = now
        self.count_read()
        if now - self._looked_s > LOOK_S:
            self._looked_s = now
            self._close_evicted()
        if not touch:
            return
        for shard in list(self._open):
            at, local = self.locate(shard)
            if self.directories[at].is_cache:
                self.directories[at].mark(local, opened=True)

    def _close_evicted(self) -> None:
        for shard, reader in list(self._open.items()):
            at, _ = self.locate(shard)
            if self.directories[at].is_cache and reader.unlinked():
                with self._lock:
                    self._open.pop(shard, None)
                self._close(reader)

    def count_read(self) -> None:
        """Add what was read since the last time to the counters."""
        for reader in list(self._open.values()):
            self._count_read(reader)

    def _count_read(self, reader: Reader) -> None:
        read, reader.bytes_read = reader.bytes_read, 0
        if read:
            self._count(bytes_read=read)

    def _close(self, reader: Reader) -> None:
        self._count_read(reader)
        reader.close()

    # Fetching ahead.

    def prefetcher(
        self, shards: Iterator[NDArray[np.int64]], samples_ahead: int | None
    ) -> Prefetcher | None:
        """Begin to fetch ahead; None if everything is read where it lies.

        Args:
            shards: The shards of the samples to come, in their order, as blocks of arrays.
            samples_ahead: How far to look, in samples, or None to go by bytes.
        """
        if self._pid != os.getpid():
            self._pid = os.getpid()
            for reader in self._open.values():
                reader.bytes_read = 0  # what a parent has read is the parent's to count
        if not any(directory.is_cache for directory in self.directories):
            return None
        limit = self.space.limit
        ahead = BYTES_AHEAD if limit is None else min(BYTES_AHEAD, limit // 2)
        return Prefetcher(self, shards, samples_ahead, ahead, FETCH_THREADS)

    def is_present(self, shard: int) -> bool:
        """Whether a shard is here, with its full size."""
        at, local = self.locate(shard)
        directory = self.directories[at]
        return not directory.is_cache or directory.is_present(local)

    def size(self, shard: int) -> int:
        """The bytes that a shard takes while it is fetched, raw and compressed."""
        at, local = self.locate(shard)
        index = self.directories[at].index
        return int(index.raw_bytes[local] + index.zip_bytes[local])

    def number(self, victim: Victim) -> int:
        """The number of a shard that could be evicted."""
        return int(self._offsets[victim.directory]) + victim.shard

    def fetch_ahead(self, shard: int, may_evict: MayEvict) -> bool:
        """Fetch a shard unless somebody is about it; False if there is no room for it now."""
        at, local = self.locate(shard)
        claim = self.directories[at].claim(local)
        if not claim.try_acquire():
            return True
        try:
            if self.directories[at].is_present(local):
                return True
            return self._fetch(shard, at, local, may_evict) is None
        finally:
            claim.release()

    # By hand.

    def prepare(self, shard: int, blocking: bool = True) -> None:
        """Make sure that a shard is here, or, not blocking, that somebody is fetching it."""
        at, local = self.locate(shard)
        directory = self.directories[at]
        if not directory.is_cache or directory.is_present(local):
            return
        if not blocking:
            self.fetch_ahead(shard, lambda victim: True)
            return
        while True:
            with self._claimed(at, local):
                if directory.is_present(local):
                    return
                blocked = self._fetch(shard, at, local)
            if blocked is None:
                return
            self.space.wait_for_room(blocked, f"shard {local} of {directory.path}")

    def evict(self, shard: int) -> bool:
        """Evict a shard; False if it is not here, is being fetched, or is its user's original."""
        at, local = self.locate(shard)
        evicted = self.space.evict(at, local)
        self.refresh()
        return evicted

    def evict_coldest(self) -> bool:
        """Evict the shard that was unused longest; False if there is none to evict."""
        evicted = self.space.evict_coldest()
        self.refresh()
        return evicted

    def locate(self, shard: int) -> tuple[int, int]:
        """A shard's directory, and its number in it."""
        at = bisect_right(self._offsets, shard) - 1
        return at, shard - self._offsets[at]

    def close(self) -> None:
        """Close every open shard."""
        with self._lock:
            while self._open:
                self._close(self._open.popitem()[1])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_open", "_lock", "_verified", "_swept", "_touched_s", "_looked_s", "_pid"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_empty()


def _default_max_open() -> int:
    """A quarter of the files that a process may open: the user's own code needs some too."""
    try:
        import resource
    except ImportError:  # Windows
        return 64
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 512
    return max(8, min(512, soft // 4))
