"""Bring one shard into its directory: download aside, check, decompress, rename."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

from streaming.cache.connections import Turn
from streaming.cache.directory import NOT_OURS, Directory
from streaming.cache.landing import Landing, Stream
from streaming.cache.space import Blocked, MayEvict, Space
from streaming.cache.transfer import Network, Source, Version
from streaming.cache.waiting import waiting
from streaming.format.compression import decompress_stream
from streaming.format.errors import FormatError
from streaming.format.hashing import hasher
from streaming.format.info import FileInfo
from streaming.storage import StoreError
from streaming.watch.spans import span

log = logging.getLogger("streaming")

PIECE = 1 << 20
"""Bytes that are read at a time."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What fetching a shard took."""

    bytes: int
    """Bytes that travelled."""
    retries: int


class Checked:
    """A file that refuses more bytes than it should get, and hashes them as they pass.

    Args:
        file: Where they go; None if they are there already.
        info: Size and hashes that the whole must have.
        algo: The hash to check, or None.
    """

    def __init__(self, file: BinaryIO | None, info: FileInfo, algo: str | None) -> None:
        self._file = file
        self._info = info
        self._algo = algo
        self._hash = hasher(algo) if algo else None
        self._size = 0

    def write(self, data: bytes) -> int:
        """Pass a chunk on.

        Raises:
            StoreError: If the whole is longer than it should be.
        """
        self._size += len(data)
        if self._size > self._info.bytes:
            raise self._wrong(f"is longer than the {self._info.bytes:,} bytes that the index gives")
        if self._hash is not None:
            self._hash.update(data)
        return len(data) if self._file is None else self._file.write(data)

    def passing(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Hand pieces on, and check the whole when they have passed."""
        for piece in pieces:
            self.write(piece)
            yield piece
        self.check()

    def check(self) -> None:
        """Check the whole, when it has passed.

        Raises:
            StoreError: If size or hash differ from the index's.
        """
        if self._size != self._info.bytes:
            raise self._wrong(f"is {self._size:,} bytes, the index says {self._info.bytes:,}")
        if self._hash is not None and self._algo is not None:
            expected, got = self._info.hashes.get(self._algo), self._hash.hexdigest()
            if got != expected:
                raise self._wrong(f"has the {self._algo} {got}, the index says {expected}")

    def _wrong(self, how: str) -> StoreError:
        # Worth another try: a proxy's error page and a half-written object look like this.
        return StoreError(f"{self._info.basename} {how}", retryable=True)


@dataclass
class Errand:
    """How a shard is fetched: over which connections, how urgently, and who is told."""

    network: Network = field(default_factory=Network)
    need: float = -1.0
    """How soon it is needed, as for :meth:`Connections.turn`."""
    urgent: bool = False
    """Whether it is so small, and so urgent, that it comes beside all others."""
    turn: Turn | None = None
    """A connection that was waited for already."""
    may_evict: MayEvict | None = None
    """Which shards may make way for it; None for any."""
    version: Version = field(default_factory=Version)
    """The version that the file with its samples has to have, if that is known."""
    on_retry: Callable[[], None] = lambda: None
    """Called at each attempt after the first."""
    on_fetched: Callable[[int], None] = lambda travelled: None
    """Called with the bytes that travelled, just before anybody can see the shard."""
    on_decompressed: Callable[[int], None] = lambda spent: None
    """Called with the nanoseconds of work that decompressing a file took."""


def fetch_shard(
    directory: Directory, at: int, shard: int, space: Space, errand: Errand | None = None
) -> Fetched | Blocked:
    """Make a shard present whose claim the caller holds.

    Args:
        directory: The shard's directory.
        at: Its number in ``space``.
        shard: The shard.
        space: Where the room comes from.
        errand: How to do it.

    Returns:
        What it took, or what blocks it if there is no room now.

    Raises:
        StoreError: If it can't be had; names the shard, its URL and each attempt's reason.
        CacheFullError: If there can't be room for it.
        PermissionError: If the directory is not complete, and may not be written to.
    """
    errand = Errand() if errand is None else errand
    if directory.bring is not None:
        directory.bring(shard)
        errand.on_fetched(0)
        return Fetched(0, 0)
    try:
        fetch = partial(_Fetch, directory, at, shard, errand)
        return _fetch_again_if_it_vanishes(fetch, space, errand.may_evict)
    except OSError as error:
        if error.errno not in NOT_OURS:
            raise
        raise PermissionError(
            f"Shard {shard} is missing from {directory.path} and can't be put there: {error}. "
            f"Complete the directory, let this user write to it, or give another `local`."
        ) from error


def _fetch_again_if_it_vanishes(
    fetch: Callable[[], "_Fetch"], space: Space, may_evict: MayEvict | None
) -> Fetched | Blocked:
    """Fetch; once more if somebody deletes what is being written, with all of its directory."""
    try:
        return fetch().run(space, may_evict)
    except FileNotFoundError as error:
        if isinstance(error, StoreError):
            raise
        log.warning("Fetching a shard again, since somebody has deleted it: %s", error)
    return fetch().run(space, may_evict)


class _Fetch:
    """One shard's way here."""

    def __init__(self, directory: Directory, at: int, shard: int, errand: Errand) -> None:
        self.directory = directory
        self.at = at
        self.shard = shard
        self._errand = errand
        self._bytes = 0
        self._retries = 0
        pairs = directory.index.files(shard)
        self._missing = [pair for pair in pairs if not directory.has(pair[0])]
        # Where each file is written, and how large it will be, by its name.
        self._parts: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        for raw, zipped in self._missing:
            _discard(directory.path_of(raw))
            self._write_aside(raw)
            if zipped is not None and not directory.has(zipped):
                self._write_aside(zipped)

    def _write_aside(self, info: FileInfo) -> str:
        path = self._parts[info.basename] = self.directory.part_path(info, self.shard)
        self._sizes[path] = info.bytes
        return path

    def run(self, space: Space, may_evict: MayEvict | None) -> Fetched | Blocked:
        if self._sizes:
            blocked = space.reserve(self.at, self.shard, self._sizes, may_evict)
            if blocked is not None:
                return blocked
        try:
            with waiting(f"shard {self.shard} of {self.directory.url}"):
                for raw, zipped in self._missing:
                    self._with_retries(raw, zipped)
            self.directory.check_there()
            self._errand.on_fetched(self._bytes)
            with self.directory.renaming():
                self.directory.check_here()
                for raw, zipped in self._missing:
                    self._publish(raw, zipped)
        finally:
            for path in self._parts.values():
                _discard(path)
        self.directory.mark(self.shard, opened=False)
        log.debug("Fetched shard %d of %s, %d bytes", self.shard, self.directory.url, self._bytes)
        return Fetched(self._bytes, self._retries)

    def _with_retries(self, raw: FileInfo, zipped: FileInfo | None) -> None:
        what = f"shard {self.shard} of {self.directory.url} ({(zipped or raw).basename})"
        try:
            self.directory.retry.call(lambda: self._bring(raw, zipped), what, self._retried)
        except StoreError as error:
            self.directory.check_there()  # that it was rewritten would say more
            raise type(error)(f"Could not fetch {what}: {error}") from error

    def _retried(self, error: StoreError) -> None:
        self._retries += 1
        self._errand.on_retry()
        log.info("Fetching shard %d of %s again: %s", self.shard, self.directory.url, error)

    def _bring(self, raw: FileInfo, zipped: FileInfo | None) -> None:
        """One attempt at one file; what the store gave is not asked for again if it was right."""
        if zipped is None:
            with self._landing(raw) as landing:
                self._check(landing, raw)
            return
        path = self.directory.path_of(zipped)
        if zipped.basename not in self._parts:
            with open(path, "rb") as packed:
                pieces = iter(partial(packed.read, PIECE), b"")
                self._decompress(pieces, raw, zipped)
            return
        with self._landing(zipped) as landing:
            checked = Checked(None, zipped, self.directory.validate_hash)
            self._decompress(checked.passing(landing.pieces()), raw, zipped)

    @contextmanager
    def _landing(self, info: FileInfo) -> Iterator[Landing]:
        """Begin to bring one file."""
        store = self.directory.store
        assert store is not None
        errand, last = self._errand, self.directory.index.files(self.shard)[-1][0]
        version = errand.version if info.basename == last.basename else Version()
        source = Source(
            store, info.basename, info.bytes, self.directory.retry, version, self._retried
        )
        turn, errand.turn = errand.turn, None
        path = self._parts[info.basename]
        with Landing(path, source, errand.network, errand.need, errand.urgent) as landing:
            try:
                landing.begin(turn)
                yield landing
            finally:
                self._bytes += landing.bytes

    def _check(self, landing: Landing, info: FileInfo) -> None:
        """Wait for a file, and hash it behind what fills it, if it is to be hashed."""
        algo = self.directory.validate_hash
        if algo is not None:
            for _ in Checked(None, info, algo).passing(landing.pieces()):
                pass
        landing.wait()

    def _decompress(self, packed: Iterator[bytes], raw: FileInfo, zipped: FileInfo) -> None:
        """Decompress a file behind what brings it."""
        algo = self.directory.index.config(self.shard)["compression"]
        started = time.thread_time_ns()  # of work, not of waiting for pieces
        try:
            with span("decompress"), open(self._parts[raw.basename], "r+b") as file:
                checked = Checked(file, raw, self.directory.validate_hash)
                source = Stream(packed)
                decompress_stream(algo, source, checked, raw.bytes)  # type: ignore[arg-type]
                source.read()
                checked.check()
        except FormatError as error:
            if zipped.basename not in self._parts:
                # The damaged file was here before; its space goes to the one that the next attempt
                # fetches.
                os.replace(self.directory.path_of(zipped), self._write_aside(zipped))
            raise StoreError(f"{zipped.basename} is damaged: {error}", retryable=True) from error
        finally:
            self._errand.on_decompressed(time.thread_time_ns() - started)

    def _publish(self, raw: FileInfo, zipped: FileInfo | None) -> None:
        if zipped is not None:
            part = self._parts.get(zipped.basename)
            if self.directory.keep_zip and part is not None:
                os.replace(part, self.directory.path_of(zipped))
            elif not self.directory.keep_zip and part is None:
                os.unlink(self.directory.path_of(zipped))
        os.replace(self._parts[raw.basename], self.directory.path_of(raw))


def _discard(path: str) -> None:
    """Remove a file if it is there: one of the wrong size takes the space of the right one."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
