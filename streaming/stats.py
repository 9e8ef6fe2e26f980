"""What a run did: counters that a rank's process and its workers add up together."""

import logging
import os
import threading
import time
from collections import Counter
from typing import Any

from streaming.epochs import EpochBoard, Iteration
from streaming.world import World

log = logging.getLogger("streaming")

COUNTERS = (
    "samples",
    "bytes_fetched",
    "bytes_read",
    "shards_fetched",
    "cache_hits",
    "evictions",
    "retries",
    "wait_ns",
    "bytes_fetched_by_range",
)
"""The counters, in the order of their numbers on the board."""

FLUSH_S = 0.02
"""How long what was added may wait before others see it, while more is added."""

_NUMBER = {name: number for number, name in enumerate(COUNTERS)}


class Counters:
    """Adds up amounts in this process, and hands them to its rank's board now and then.

    Example:
        >>> counters = Counters(EpochBoard())
        >>> counters.add(samples=3, retries=1)
        >>> counters.totals()["samples"]
        3
    """

    def __init__(self, board: EpochBoard) -> None:
        self._board = board
        self.owner: int | None = None
        """Process id of the rank that this process works for; None for the process itself."""
        self._begin_empty()

    def _begin_empty(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._flushed_s = 0.0
        self._pending: Counter[str] = Counter()

    def add(self, **amounts: int) -> None:
        """Add amounts by the counters' names."""
        if self._pid != os.getpid():
            self._begin_empty()  # what a parent had pending is the parent's to hand on
        with self._lock:
            self._pending.update(amounts)

    def flush(self) -> None:
        """Hand what was added to the board."""
        if self._pid != os.getpid():
            self._begin_empty()
        with self._lock:
            pending, self._pending = self._pending, Counter()
        if pending:
            amounts = {_NUMBER[name]: amount for name, amount in pending.items()}
            self._board.add(self.owner or os.getpid(), amounts)

    def flush_now_and_then(self) -> None:
        """Hand what was added to the board, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._flushed_s > FLUSH_S:
            self._flushed_s = now
            self.flush()

    def begin(self, iteration: Iteration, world: World) -> None:
        """Tell that this rank begins an iteration; one of its workers does."""
        if world.worker_of_rank == 0:
            done = iteration.sample_in_epoch
            after = f" after {done:,} samples over all ranks" if done else ""
            log.info("Rank %d begins epoch %d%s.", world.rank, iteration.epoch, after)

    def end(self, iteration: Iteration, world: World) -> None:
        """Tell that this rank has ended an iteration; the last of its workers does."""
        self.flush()
        amounts = self._board.end(iteration, world.workers_per_rank)
        if amounts is not None:
            did = dict(zip(COUNTERS, amounts, strict=False))
            log.info(
                "Rank %d has ended epoch %d: %d samples, %d bytes fetched, %.1f s waited for them.",
                world.rank,
                iteration.epoch,
                did["samples"],
                did["bytes_fetched"],
                did["wait_ns"] / 1e9,
            )

    def totals(self) -> dict[str, int | float]:
        """The totals of this rank and its workers since the start; times in seconds."""
        self.flush()
        totals: dict[str, int | float] = dict(zip(COUNTERS, self._board.counters(), strict=False))
        totals["wait_s"] = totals.pop("wait_ns") / 1e9
        return totals

    def __getstate__(self) -> dict[str, Any]:
        return {"_board": self._board, "owner": self.owner}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_empty()
