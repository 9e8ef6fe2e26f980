"""The shards on this node, as one dataset sees them: open, fetched when missing, bounded."""

import logging
import os
import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.cache.ahead import LOOK, LOOK_BYTES, RangesAhead
from streaming.cache.connections import MAX_CONNECTIONS, Turn
from streaming.cache.directory import Directory
from streaming.cache.fetch import Errand, fetch_shard
from streaming.cache.prefetch import SMALL_BYTES, Needs, Prefetcher
from streaming.cache.ranges import Ranges
from streaming.cache.space import Blocked, MayEvict, Space, Victim
from streaming.cache.transfer import Network, Version
from streaming.format.errors import CorruptShardError
from streaming.format.hashing import hasher
from streaming.format.reader import Reader
from streaming.storage import ObjectChanged
from streaming.watch.spans import span
from streaming.watch.trace_file import FETCHING

log = logging.getLogger("streaming")

BYTES_AHEAD = 512 << 20
"""How far ahead a node's processes fetch unless told in samples: what keeps a fast link busy for a
second."""
FEW = 1000
"""Shards that are looked at before an iteration, to see whether all are here."""
LOOK_S = 0.01
"""How often to look, at most, whether shards that are open were evicted."""
TOUCH_S = 10.0
"""How often a shard that is being read is marked as used."""

VANISHING = 20
"""How often to fetch a shard again that others delete before it is open."""
CHECKED_S = 2.0
"""How long what was seen of the remote's version holds for samples that are read by ranges."""


class MissingShardError(FileNotFoundError):
    """A shard of a stream that has no remote is not there."""


class ShardCache:
    """All shards of a dataset, numbered through its streams.

    Args:
        directories: One for each stream.
        readers: The shards' readers, by number.
        limit: Bytes that the shards fetched may take together, or None.
        count: Called with amounts to add to the run's counters: ``shards_fetched``,
            ``bytes_fetched``, ``bytes_fetched_by_range``, ``cache_hits``, ``evictions``,
            ``retries``, ``decompressing_ns``.
        waits: Called with what a reader waits for, to stand behind "waits for": a context that
            lasts as long as the wait.
        max_open: How many shards to keep open for reading; None for as many as the process may
            well open.
        max_connections: Most connections of the node's processes together, of which each takes its
            part.
    """

    def __init__(
        self,
        directories: Sequence[Directory],
        readers: Sequence[Reader],
        limit: int | None,
        count: Callable[..., None],
        max_open: int | None = None,
        max_connections: int = MAX_CONNECTIONS,
        waits: Callable[[str], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.directories = list(directories)
        self._readers = readers
        self._count, self._waits = count, waits
        self._max_open = max_open or _default_max_open()
        self._max_connections = max_connections
        self.space = Space(
            self.directories, limit, on_evict=self._count_evictions, let_go=self._close_evicted
        )
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
        self._begin_process(self._max_connections)

    def _begin_process(self, connections: int) -> None:
        self._pid = os.getpid()
        self._ranges = Ranges(self.directories, Network(connections), self._count, self._waits)

    @property
    def ranges(self) -> Ranges:
        """What this process reads by ranges, over its own connections."""
        if self._pid != os.getpid():
            for reader in self._open.values():
                reader.bytes_read = 0  # what a parent has read is the parent's to count
            self._begin_process(self._max_connections)
        return self._ranges

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

    def reader_of_samples(self, shard: int) -> Reader:
        """A shard for reading some samples: by ranges, if it is not here and that is quicker.

        Raises:
            MissingShardError: If its stream has no remote to fetch it from.
            CorruptShardError: If it is damaged, also when fetched again.
            StoreError: If it can't be fetched.
        """
        if shard not in self._open:
            at, local = self.locate(shard)
            directory = self.directories[at]
            if directory.is_cache and not directory.is_present(local):
                ranged = self.ranges.reader(shard, at, local, self._readers[shard])
                if ranged is not None:
                    directory.check_there(max_age_s=CHECKED_S)
                    return ranged
        return self.reader(shard)

    def ask(self, shards: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        """Begin to fetch samples by ranges, where that is quicker than their shards.

        Args:
            shards: The samples' shards.
            places: Their places in them.
        """
        for shard in dict.fromkeys(shards.tolist()):
            if shard in self._open:
                continue
            at, local = self.locate(shard)
            directory = self.directories[at]
            if directory.is_cache and not directory.is_present(local):
                own = places[shards == shard]
                self.ranges.ask(shard, at, local, self._readers[shard], own)

    def _open_shard(self, shard: int) -> Reader:
        at, local = self.locate(shard)
        directory = self.directories[at]
        if directory.is_cache:
            if not self._try_open(shard, at, local):
                self._fetch_and_open(shard, at, local)
            self._check_version(shard, directory)
            directory.mark(local, opened=True)
        else:
            self._open_original(shard, directory, local)
        reader = self._readers[shard]
        self.ranges.close(shard)
        with self._lock:
            self._open[shard] = reader
            while len(self._open) > self._max_open:
                self._close(self._open.popitem(last=False)[1])
        return reader

    def _check_version(self, shard: int, directory: Directory) -> None:
        try:
            directory.check_here()
        except ObjectChanged:
            self._readers[shard].close()
            raise

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
        if directory.bring is not None and not claimed:
            return False  # a stream's own way may make files of full size, and fill them later
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
        left = VANISHING
        with self._waits(f"shard {local} of {self.directories[at].url}"):
            while True:
                with self._claimed(at, local):
                    if self._try_open(shard, at, local, claimed=True):
                        return
                    blocked = self._fetch(shard, at, local)
                    if blocked is None:
                        if self._open_fetched(shard, left):
                            return
                        left -= 1
                        continue
                self.space.wait_for_room(blocked, f"shard {local} of {self.directories[at].path}")

    def _open_fetched(self, shard: int, left: int) -> bool:
        """Open a shard that was just fetched; False if it is gone again and may be so often yet.

        The claim keeps our own processes from evicting it. Those who see no locks evict all the
        same, and so does whoever deletes files by hand.
        """
        try:
            self._readers[shard].open()
        except FileNotFoundError:
            if not left:
                raise
            log.warning("Fetching %s again, since somebody deleted it", self._readers[shard].name)
            return False
        return True

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
        self,
        shard: int,
        at: int,
        local: int,
        may_evict: MayEvict | None = None,
        need: float = -1.0,
        turn: Turn | None = None,
    ) -> Blocked | None:
        ranges = self.ranges
        errand = Errand(
            ranges.network,
            need,
            turn is None and self.size(shard) <= SMALL_BYTES,
            turn,
            may_evict,
            ranges.version(shard) or Version(),
            on_retry=lambda: self._count(retries=1),
            on_fetched=lambda travelled: self._count(shards_fetched=1, bytes_fetched=travelled),
            on_decompressed=lambda spent: self._count(decompressing_ns=spent),
        )
        directory, lanes = self.directories[at], None if turn is None else FETCHING
        with span("fetch shard", lanes, shard=local, of=directory.url):
            fetched = fetch_shard(directory, at, local, self.space, errand)
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

    def give_up_ranges(self, shard: int, reader: Reader) -> bool:
        """Don't read a shard by ranges any more, if that is what a reader does, and has failed."""
        if reader is self._readers[shard]:
            return False
        self.ranges.give_up(shard)
        return True

    def forget(self, shard: int) -> None:
        """Close a shard whose file vanished before it was read."""
        with self._lock:
            reader = self._open.pop(shard, None)
        if reader is not None:
            reader.close()

    def refresh(self) -> None:
        """Close what was evicted, so that its space comes free; mark what is read as used."""
        now = time.monotonic()
        touch = now - self._touched_s > TOUCH_S
        if touch:
            self._touched_s = now
        if now - self._looked_s > LOOK_S:
            self._looked_s = now
            self.count_read()
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
                self.space.reader_left()

    def count_read(self) -> None:
        """Add what was read since the last time to the counters."""
        for reader in list(self._open.values()):
            self._count_read(reader)
        self._ranges.count_read()

    def _count_read(self, reader: Reader) -> None:
        read, reader.bytes_read = reader.bytes_read, 0
        if read:
            self._count(bytes_read=read)

    def _close(self, reader: Reader) -> None:
        self._count_read(reader)
        reader.close()

    # Fetching ahead.

    def ahead(self, needs: Needs, processes: int) -> "Ahead | None":
        """Begin to fetch ahead; None if everything is here.

        Args:
            needs: What will be needed.
            processes: How many processes of this node share the connections.
        """
        most = max(1, self._max_connections // processes)
        if self.ranges.network.connections.most != most:
            self._begin_process(most)
        if not any(directory.is_cache for directory in self.directories):
            return None
        if self._is_complete():
            if not self._swept:
                self.sweep()  # otherwise the threads do
            return None
        return Ahead(self, needs)

    def _is_complete(self) -> bool:
        """Whether all shards are here and nothing of ours makes them go: then none comes ahead.

        Only few are looked at, since a look at many would take longer than it saves.
        """
        if self.space.limit is not None or len(self._readers) > FEW:
            return False
        return all(map(self.is_present, range(len(self._readers))))

    @property
    def bytes_ahead(self) -> int:
        """How far a node fetches ahead unless told in samples."""
        limit = self.space.limit
        return BYTES_AHEAD if limit is None else min(BYTES_AHEAD, limit // 2)

    def is_present(self, shard: int) -> bool:
        """Whether a shard is here, with its full size."""
        at, local = self.locate(shard)
        directory = self.directories[at]
        return not directory.is_cache or directory.is_present(local)

    def is_fetched(self, shard: int) -> bool:
        """Whether a shard is fetched at all, and not only read by ranges."""
        return not self.ranges.is_sparse(self.locate(shard)[0])

    def size(self, shard: int) -> int:
        """The bytes that a shard takes while it is fetched, raw and compressed."""
        at, local = self.locate(shard)
        index = self.directories[at].index
        return int(index.raw_bytes[local] + index.zip_bytes[local])

    def number(self, victim: Victim) -> int:
        """The number of a shard that could be evicted."""
        return int(self._offsets[victim.directory]) + victim.shard

    def fetch_ahead(
        self, shard: int, may_evict: MayEvict, need: float = -1.0, turn: Turn | None = None
    ) -> bool:
        """Fetch a shard unless somebody is about it; False if there is no room for it now."""
        at, local = self.locate(shard)
        claim = self.directories[at].claim(local)
        if not claim.try_acquire():
            return True
        try:
            if self.directories[at].is_present(local):
                return True
            return self._fetch(shard, at, local, may_evict, need, turn) is None
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
        own = ("_open", "_lock", "_verified", "_swept", "_touched_s", "_looked_s", "_pid")
        for name in (*own, "_ranges"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_empty()


class Ahead:
    """What fetches ahead of an iteration: whole shards for the node, samples for this worker."""

    def __init__(self, cache: ShardCache, needs: Needs) -> None:
        look = min(LOOK, int(LOOK_BYTES / max(1.0, needs.sample_bytes)))
        cache.ranges.begin(needs.sparse)
        self._ranges = RangesAhead(cache.ask, needs.own, look, needs.batch_size)
        self._shards = Prefetcher(cache, needs, cache.bytes_ahead, cache.ranges.network.connections)
        self._cache = cache

    def advance(self, position: int) -> None:
        """Tell how many samples the iteration has handed out."""
        self._cache.ranges.spare_connections()
        self._ranges.advance(position)
        self._shards.advance(position)

    def stop(self) -> None:
        """End it; downloads under way are finished, but nobody waits for them."""
        self._ranges.stop()
        self._shards.stop()


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
