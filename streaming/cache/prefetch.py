"""Fetch ahead what an iteration will need, in the order in which it will need it.

Threads of a process walk the order of need and claim the next shard that is neither here nor
claimed. They sleep on a condition while there is nothing to do: until the iteration has moved on,
or the process is told to stop.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streaming.cache.space import Victim

log = logging.getLogger("streaming")

BLOCK = 1024
"""Samples whose shards are looked up at once."""


class Fetcher(Protocol):
    """What the threads ask of the cache."""

    def is_present(self, shard: int) -> bool:
        """Whether the shard can be read."""

    def size(self, shard: int) -> int:
        """Bytes that fetching it takes."""

    def fetch_ahead(self, shard: int, may_evict: Callable[[Victim], bool]) -> bool:
        """Fetch it unless somebody does; False if there is no room now."""

    def number(self, victim: Victim) -> int:
        """The shard number of a victim."""

    def sweep(self) -> None:
        """Remove what processes that are gone have left half-written."""


class Prefetcher:
    """Keeps the shards of the samples ahead of an iteration coming.

    Args:
        fetcher: Does the fetching.
        shards: The shards of the iteration's samples, in their order, as blocks of arrays.
        samples_ahead: How many samples ahead of the iteration to fetch, or None to go by bytes.
        bytes_ahead: How many bytes to have under way or ready ahead, where ``samples_ahead`` is
            None.
        threads: How many shards to fetch side by side.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        shards: Iterator[NDArray[np.int64]],
        samples_ahead: int | None,
        bytes_ahead: int,
        threads: int,
    ) -> None:
        self._fetcher = fetcher
        self._needs = _needs(shards)
        self._samples_ahead = samples_ahead
        self._bytes_ahead = bytes_ahead
        self._changed = threading.Condition()
        self._position = 0
        self._stopped = False
        # What was taken from the order of need and that the iteration has not passed yet:
        # (position, shard, bytes).
        self._taken: deque[tuple[int, int, int]] = deque()
        self._in_window: Counter[int] = Counter()
        self._bytes = 0
        self._next: tuple[int, int] | None = None
        self._exhausted = False
        self._threads = [
            threading.Thread(
                target=self._run if i else self._sweep_and_run,
                name=f"streaming-fetch-{i}",
                daemon=True,
            )
            for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def advance(self, position: int) -> None:
        """Tell how many samples the iteration has handed out."""
        with self._changed:
            self._position = position
            while self._taken and self._taken[0][0] < position:
                _, shard, size = self._taken.popleft()
                self._bytes -= size
                self._in_window[shard] -= 1
                if not self._in_window[shard]:
                    del self._in_window[shard]
            self._changed.notify_all()

    def stop(self) -> None:
        """Let the threads end; they finish a download under way, but nobody waits for it."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _sweep_and_run(self) -> None:
        self._fetcher.sweep()
        self._run()

    def _run(self) -> None:
        while True:
            with self._changed:
                shard = self._take()
                while shard is None and not self._stopped and not self._exhausted:
                    self._changed.wait()
                    shard = self._take()
                if self._stopped or shard is None:
                    return
            self._fetch(shard)

    def _fetch(self, shard: int) -> None:
        while True:
            with self._changed:
                position = self._position
            try:
                if self._fetcher.is_present(shard) or self._fetcher.fetch_ahead(
                    shard, self._may_evict
                ):
                    return
            except Exception as error:
                # Whoever needs the shard tries itself, and raises there.
                log.debug("Could not fetch shard %d ahead: %s", shard, error)
                return
            with self._changed:
                while self._position == position and not self._stopped:
                    self._changed.wait()
                if self._stopped or not self._in_window[shard]:
                    return

    def _take(self) -> int | None:
        """The next shard to see to, or None if there is enough ahead. Called with the lock held."""
        while True:
            if self._next is None:
                self._next = next(self._needs, None)
            if self._next is None:
                self._exhausted = True
                self._changed.notify_all()
                return None
            position, shard = self._next
            if position < self._position:
                self._next = None
                continue
            if self._is_enough(position):
                return None
            self._next = None
            size = 0 if self._in_window[shard] else self._fetcher.size(shard)
            self._taken.append((position, shard, size))
            self._bytes += size
            self._in_window[shard] += 1
            if size:
                return shard

    def _is_enough(self, position: int) -> bool:
        if self._samples_ahead is not None:
            return position >= self._position + self._samples_ahead
        return self._bytes >= self._bytes_ahead

    def _may_evict(self, victim: Victim) -> bool:
        """Spare what is needed before, here or (fetched and not opened yet) by other processes."""
        with self._changed:
            return victim.was_opened and not self._in_window[self._fetcher.number(victim)]


def _needs(blocks: Iterator[NDArray[np.int64]]) -> Iterator[tuple[int, int]]:
    """The first position of each shard in each block of samples, in order."""
    start = 0
    for block in blocks:
        for at in range(0, len(block), BLOCK):
            part = block[at : at + BLOCK]
            shards, first = np.unique(part, return_index=True)
            for i in np.argsort(first, kind="stable").tolist():
                yield start + at + int(first[i]), int(shards[i])
        start += len(block)
