"""Reading samples by ranges where their shards are not here, beside fetching those or instead.

"When are ranges cheaper?" is answered by :func:`is_sparse` for what an epoch takes of a stream, and
by :func:`is_worth` for samples that can't wait, or that come one by one.
"""

import logging
import threading
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.cache.directory import Directory
from streaming.cache.prefetch import SMALL_BYTES
from streaming.cache.transfer import Network, Source, Transfer, Version
from streaming.format.errors import FormatError
from streaming.format.info import FileInfo
from streaming.format.ranges import Ranged, ranged_reader
from streaming.format.reader import Reader
from streaming.storage import StoreError

log = logging.getLogger("streaming")

Ints = NDArray[np.int64]

REQUEST_BYTES = 128 << 10
"""What a request costs, in bytes that could have come meanwhile."""
GAP_BYTES = 64 << 10
"""Samples that are no further apart than this are read by one request, with what lies between."""
SPAN_BYTES = 1 << 20
"""Longest span that is read by one request, unless a sample is longer."""
KEPT_BYTES = 32 << 20
"""Bytes of samples read by ranges that a process keeps."""
COPIED = 16
"""Samples read by ranges may take a shard's size divided by this, if the shard comes as well;"""
COST = 4
"""their requests may cost its size divided by this."""


def is_sparse(chosen: float, in_shard: float, sample_bytes: float) -> bool:
    """Whether an epoch takes so little of a stream that ranges are cheaper than its shards.

    They are if the samples' bytes and their requests add up to less than the shards that they lie
    in.

    Args:
        chosen: The share of the stream's samples that the epoch takes.
        in_shard: The share of a shard's samples that it takes at least, if it takes any.
        sample_bytes: What a sample takes on average.

    Example:
        >>> is_sparse(0.01, 0.0, 8192), is_sparse(0.2, 0.0, 8192), is_sparse(0.01, 0.5, 8192)
        (True, False, False)
    """
    taken = max(chosen, in_shard)
    return taken * (sample_bytes + REQUEST_BYTES) < sample_bytes


def is_worth(spent: int, cost: int, size: int) -> bool:
    """Whether more ranges of a shard are still cheap beside all of it, which comes as well.

    Without knowing what comes, paying by the piece until that has cost a good part of the whole,
    and then the whole, is never much dearer than what would have been best (the ski rental problem;
    Karlin, Manasse, Rudolph, Sleator: Competitive snoopy caching, 1988).

    Args:
        spent: Bytes asked for by ranges so far.
        cost: These, and what their requests cost.
        size: Bytes of the shard.

    Example:
        >>> is_worth(1 << 20, 10 << 20, 64 << 20), is_worth(1 << 20, 17 << 20, 64 << 20)
        (True, False)
    """
    return spent < size // COPIED and cost < size // COST


@dataclass(order=True)
class _Span:
    """Bytes of a file that are here, or on their way."""

    start: int
    stop: int = field(compare=False)
    transfer: Transfer = field(compare=False)
    data: bytearray = field(compare=False)


class RangedFile(Ranged):
    """A file in a store, read by ranges.

    Args:
        source: The file.
        bring: Makes a transfer of it, not begun yet, given its start, stop and sink.
        keep: Told of each span: this file, its start, its bytes.
        trim: Has the oldest spans forgotten where there are too many.
        may_ask: Whether what was not asked for may still be.
        waits: A context that lasts as long as a reader waits for what it is called with.
    """

    def __init__(
        self,
        source: Source,
        bring: Callable[..., Transfer],
        keep: Callable[["RangedFile", int, int], None],
        trim: Callable[[], None],
        may_ask: Callable[[], bool],
        waits: Callable[[str], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.source = source
        self.spent = self.cost = 0
        self.verify: Callable[[], None] | None = None
        self._bring, self._keep, self._trim, self._may_ask = bring, keep, trim, may_ask
        self._waits = waits
        self._lock = threading.Lock()
        self._spans: list[_Span] = []

    def __len__(self) -> int:
        return self.source.size

    def ask(self, begins: Ints, ends: Ints) -> None:
        """Begin to fetch some spans of bytes, several by one request where they are close."""
        with self._lock:
            pairs = zip(begins.tolist(), ends.tolist(), strict=True)
            wanted = sorted({pair for pair in pairs if self._find(*pair) is None})
            for start, stop in joined(wanted):
                self._begin(start, stop)
        self._trim()

    def _begin(self, start: int, stop: int) -> None:
        data = bytearray(stop - start)

        def sink(at: int, chunk: bytes | memoryview) -> None:
            data[at - start : at - start + len(chunk)] = chunk

        transfer = self._bring(self.source, start, stop, sink)
        insort(self._spans, _Span(start, stop, transfer, data))
        self.spent += stop - start
        self.cost += stop - start + REQUEST_BYTES
        self._keep(self, start, stop - start)
        transfer.begin()

    def _find(self, start: int, stop: int) -> _Span | None:
        at = bisect_right(self._spans, start, key=lambda span: span.start)
        for span in reversed(self._spans[max(0, at - 2) : at]):
            if stop <= span.stop:
                return span
        return None

    def __getitem__(self, span: slice) -> bytes:
        """Bytes that were asked for, once they are here, or that are fetched now.

        Raises:
            StoreError: If they can't be had.
        """
        start, stop, _ = span.indices(self.source.size)
        if start >= stop:
            return b""
        with self._lock:
            found = self._find(start, stop)
            if found is None:
                if not self._may_ask():
                    url = self.source.store.url_of(self.source.key)
                    raise StoreError(f"{url}: so much was read by ranges that the whole is cheaper")
                self._begin(start, stop)
                found = self._find(start, stop)
        self._trim()
        assert found is not None
        try:
            self._wait_for(found.transfer)
        except BaseException:
            self.forget(found.start)
            raise
        if self.verify is not None and not self.source.confirmed:
            verify, self.verify = self.verify, None
            verify()
        return bytes(memoryview(found.data)[start - found.start : stop - found.start])

    def _wait_for(self, transfer: Transfer) -> None:
        if transfer.is_over:
            transfer.wait()  # raises if it has failed
            return
        with self._waits(f"samples of {self.source.store.url_of(self.source.key)}"):
            transfer.wait()

    def forget(self, start: int) -> None:
        """Forget the span that begins somewhere, if there is one."""
        with self._lock:
            self._spans = [span for span in self._spans if span.start != start]


def joined(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Spans in order of their starts, those joined that are close to one another."""
    start = stop = -1
    for begin, end in spans:
        if start >= 0 and begin - stop <= GAP_BYTES and end - start <= SPAN_BYTES:
            stop = max(stop, end)
            continue
        if start >= 0:
            yield start, stop
        start, stop = begin, end
    if start >= 0:
        yield start, stop


@dataclass
class _Shard:
    """A shard that is read by ranges."""

    reader: Reader
    ask: Callable[[Ints], None]
    files: list[RangedFile]
    """The file with the samples comes first."""
    is_worth: Callable[[], bool]
    """Whether more of it should be read by ranges."""


class Ranges:
    """The shards that this process reads by ranges.

    Args:
        directories: One for each stream.
        network: What brings the ranges.
        count: Called with amounts to add to the run's counters.
        waits: A context that lasts as long as a reader waits for what it is called with.
    """

    def __init__(
        self,
        directories: Sequence[Directory],
        network: Network,
        count: Callable[..., None],
        waits: Callable[[str], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.network = network
        self._sparse: frozenset[int] = frozenset()
        self._directories, self._count, self._waits = directories, count, waits
        self._lock = threading.Lock()
        self._shards: dict[int, _Shard | None] = {}
        self._versions: dict[int, Version] = {}
        self._kept: deque[tuple[RangedFile, int, int]] = deque()
        self._bytes = 0

    def begin(self, sparse: Iterable[int]) -> None:
        """Begin an iteration.

        Args:
            sparse: The directories whose shards are not fetched, since so little of them is needed.
        """
        self._sparse = frozenset(sparse)
        connections = self.network.connections
        connections.urgent_most = connections.most

    def spare_connections(self) -> None:
        """Leave most connections to whole shards, now that the first samples are here."""
        if not self._sparse:
            connections = self.network.connections
            connections.urgent_most = max(1, connections.most // 4)

    def is_sparse(self, at: int) -> bool:
        """Whether the shards of a directory are not fetched in this iteration."""
        return at in self._sparse

    def reader(self, shard: int, at: int, local: int, reader: Reader) -> Reader | None:
        """What reads a shard that is not here by ranges; None if that can't or should not be done.

        Args:
            shard: The shard.
            at: The number of its directory.
            local: Its number there.
            reader: Its reader, when it is here.
        """
        found = self._find(shard, at, local, reader)
        return None if found is None else found.reader

    def ask(self, shard: int, at: int, local: int, reader: Reader, places: Ints) -> None:
        """Begin to fetch samples of a shard that is not here, if that can and should be done."""
        found = self._find(shard, at, local, reader)
        if found is not None and found.is_worth():
            found.ask(places)

    def _is_worth(self, files: list[RangedFile], at: int, size: int) -> bool:
        if at in self._sparse:
            return True
        return is_worth(sum(file.spent for file in files), sum(file.cost for file in files), size)

    def version(self, shard: int) -> Version | None:
        """The version that a shard's samples are read of by ranges, and all of it has to be."""
        return self._versions.get(shard)

    def give_up(self, shard: int) -> None:
        """Don't read a shard by ranges any more: that has failed."""
        with self._lock:
            found = self._shards.get(shard)
            self._shards[shard] = None
        if found is not None:
            self._count_read(found)

    def close(self, shard: int) -> None:
        """Forget what was read of a shard: it is here now."""
        with self._lock:
            found = self._shards.pop(shard, None)
        if found is not None:
            self._count_read(found)

    def count_read(self) -> None:
        """Add what was read since the last time to the counters."""
        for shard in list(self._shards.values()):
            if shard is not None:
                self._count_read(shard)

    def _count_read(self, shard: _Shard) -> None:
        read, shard.reader.bytes_read = shard.reader.bytes_read, 0
        if read:
            self._count(bytes_read=read)

    def _find(self, shard: int, at: int, local: int, reader: Reader) -> _Shard | None:
        try:
            return self._shards[shard]
        except KeyError:
            pass
        with self._lock:
            if shard not in self._shards:
                found = self._shards[shard] = self._open(at, local, reader)
                if found is not None:
                    source = found.files[0].source
                    source.version = self._versions.setdefault(shard, source.version)
            return self._shards[shard]

    def _open(self, at: int, local: int, reader: Reader) -> _Shard | None:
        directory = self._directories[at]
        store, size = directory.store, int(directory.index.raw_bytes[local])
        if store is None or directory.bring is not None or directory.validate_hash is not None:
            return None
        if not store.can_range or self.network.gives_parts(store.url) is False:
            return None
        if directory.index.zip_bytes[local] or (size <= SMALL_BYTES and at not in self._sparse):
            return None
        files: list[RangedFile] = []
        is_worth = partial(self._is_worth, files, at, size)

        def open_ranged(info: FileInfo) -> RangedFile:
            source = Source(store, info.basename, info.bytes, directory.retry)
            source.on_retry = lambda error: self._count(retries=1)
            file = RangedFile(source, self._transfer, self._keep, self._trim, is_worth, self._waits)
            files.append(file)
            return files[-1]

        try:
            return _Shard(*ranged_reader(reader, open_ranged), files, is_worth)
        except FormatError:
            return None  # the reader of the shard itself says why

    def _transfer(
        self, source: Source, start: int, stop: int, sink: Callable[..., None]
    ) -> Transfer:
        transfer = self.network.bring(source, start, stop, sink, urgent=True)
        transfer.on_end = partial(self._ended, source)
        return transfer

    def _ended(self, source: Source, transfer: Transfer) -> None:
        self._count(bytes_fetched_by_range=transfer.bytes)
        if not source.ranged:
            self.network.note_parts(source.store.url, False)
        elif source.version.etag is not None:
            self.network.note_parts(source.store.url, True)

    def _keep(self, file: RangedFile, start: int, size: int) -> None:
        with self._lock:
            self._kept.append((file, start, size))
            self._bytes += size

    def _trim(self) -> None:
        oldest = []
        with self._lock:
            while self._bytes > KEPT_BYTES and len(self._kept) > 1:
                oldest.append(self._kept.popleft())
                self._bytes -= oldest[-1][2]
        for file, start, _ in oldest:
            file.forget(start)
