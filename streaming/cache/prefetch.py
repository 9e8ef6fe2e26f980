"""Fetch ahead what a node will need, in the order in which it will need it.

Every process of the node walks the same order, that of all its workers together: whoever has a free
connection claims the next shard that is neither here nor claimed. Threads sleep on a condition
while there is nothing to do: until the iteration has moved on, or the process is told to stop.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streaming.cache.connections import Connections, Turn
from streaming.cache.space import Victim
from streaming.cache.window import Window

log = logging.getLogger("streaming")

Ints = NDArray[np.int64]

BLOCK = 1024
"""Samples whose shards are looked up at once."""
SMALL_BYTES = 1 << 20
"""Shards up to this size come nearly as soon as a part of them."""


@dataclass(frozen=True)
class Needs:
    """What an iteration will need, in its order."""

    node: Iterator[Ints]
    """The shards of the samples of all workers of the node together, as blocks of arrays."""
    own: Iterator[tuple[Ints, Ints]]
    """The shards of this worker's samples, and their places in them, as blocks of arrays."""
    workers: int
    """How many workers the node has; each has its own samples."""
    samples_ahead: int | None
    """How many samples of each worker to look ahead; None to go by bytes."""
    sample_bytes: float
    """What a sample takes on average."""
    batch_size: int
    """How many samples are needed together."""
    sparse: tuple[int, ...] = ()
    """The streams that so little is needed of that their shards are not fetched."""


class Fetcher(Protocol):
    """What the threads ask of the cache."""

    def is_present(self, shard: int) -> bool:
        """Whether the shard can be read."""

    def is_fetched(self, shard: int) -> bool:
        """Whether the shard is fetched at all, where it is not here."""

    def size(self, shard: int) -> int:
        """Bytes that fetching it takes."""

    def fetch_ahead(
        self, shard: int, may_evict: Callable[[Victim], bool], need: float, turn: Turn
    ) -> bool:
        """Fetch it unless somebody does; False if there is no room now."""

    def number(self, victim: Victim) -> int:
        """The shard number of a victim."""

    def sweep(self) -> None:
        """Remove what processes that are gone have left half-written."""


class Prefetcher:
    """Keeps the shards of the samples ahead of an iteration coming.

    Args:
        fetcher: Does the fetching.
        needs: What the iteration will need.
        bytes_ahead: How far to look ahead where ``needs`` does not say it in samples: until the
            samples take so many bytes, or the shards that are not here and not needed yet do.
        connections: Whose turns are waited for.
    """

    def __init__(
        self, fetcher: Fetcher, needs: Needs, bytes_ahead: int, connections: Connections
    ) -> None:
        self._fetcher = fetcher
        self._connections = connections
        self._order = _first_needs(needs.node)
        self._workers = needs.workers
        self._batch = needs.batch_size * needs.workers
        self._window = Window(needs.workers, needs.samples_ahead, needs.sample_bytes, bytes_ahead)
        self._changed = threading.Condition()
        self._stopped = False
        self._next: tuple[int, int] | None = None
        self._exhausted = False
        self._blocked = 0
        self._threads = 0
        with self._changed:
            self._start_thread()

    def advance(self, position: int) -> None:
        """Tell how many samples this worker's iteration has handed out."""
        with self._changed:
            self._window.move(position * self._workers)
            if self._blocked:
                self._changed.notify_all()
            elif self._window.position >= self._window.wake_at:
                self._changed.notify()

    def stop(self) -> None:
        """Let the threads end; they finish a download under way, but nobody waits for it."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _start_thread(self) -> None:
        """Start another thread, if there could be a connection for it."""
        if self._threads < self._connections.most:
            self._threads += 1
            target = self._run if self._threads > 1 else self._sweep_and_run
            name = f"streaming-fetch-{self._threads - 1}"
            threading.Thread(target=target, name=name, daemon=True).start()

    def _sweep_and_run(self) -> None:
        self._fetcher.sweep()
        self._run()

    def _run(self) -> None:
        while True:
            with self._changed:
                found = self._take()
                while found is None and not self._stopped and not self._exhausted:
                    self._changed.wait()
                    found = self._take()
                if self._stopped or found is None:
                    return
                # There may be more to do, for another.
                self._start_thread()
                self._changed.notify()
            self._fetch(*found)

    def _fetch(self, need: int, shard: int) -> None:
        while True:
            with self._changed:
                position = self._window.position
            try:
                with self._connections.turn(need, self._is_urgent(need, shard)) as turn:
                    if self._stopped or self._fetcher.is_present(shard):
                        return
                    if self._fetcher.fetch_ahead(shard, self._may_evict, need, turn):
                        return
            except Exception as error:
                # Whoever needs the shard tries itself, and raises there.
                log.debug("Could not fetch shard %d ahead: %s", shard, error)
                return
            with self._changed:
                self._blocked += 1
                while self._window.position == position and not self._stopped:
                    self._changed.wait()
                self._blocked -= 1
                if self._stopped or shard not in self._window:
                    return

    def _is_urgent(self, need: int, shard: int) -> bool:
        """Whether a shard is wanted now, and small enough to come beside all others."""
        due = need < self._window.position + 2 * self._batch
        return due and self._fetcher.size(shard) <= SMALL_BYTES

    def _take(self) -> tuple[int, int] | None:
        """The next shard to fetch, and where it is needed; None if there is enough ahead.

        Called with the lock held.
        """
        while not self._stopped:
            if self._next is None:
                self._next = next(self._order, None)
            if self._next is None:
                self._exhausted = True
                self._changed.notify_all()
                return None
            position, shard = self._next
            if position < self._window.position:
                self._next = None
                continue
            if self._window.is_enough(position):
                return None
            self._next = None
            is_missing = shard not in self._window and not self._fetcher.is_present(shard)
            fetch = is_missing and self._fetcher.is_fetched(shard)
            size = self._fetcher.size(shard) if fetch else 0
            self._window.take(position, shard, size)
            if fetch:
                return position, shard
        return None

    def _may_evict(self, victim: Victim) -> bool:
        with self._changed:
            return self._window.may_evict(self._fetcher.number(victim), victim.was_opened)


def _first_needs(blocks: Iterator[Ints]) -> Iterator[tuple[int, int]]:
    """The first position of each shard in each block of samples, in order."""
    start = 0
    for block in blocks:
        for at in range(0, len(block), BLOCK):
            part = block[at : at + BLOCK]
            shards, first = np.unique(part, return_index=True)
            for i in np.argsort(first, kind="stable").tolist():
                yield start + at + int(first[i]), int(shards[i])
        start += len(block)
