"""What a run did, and where its time went: counters that a rank and its workers add up together."""

import logging
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import context
from typing import Any

from torch import distributed
from torch.utils.data import get_worker_info

from streaming.epochs import EpochBoard, Iteration
from streaming.thread_workers import thread_worker_info
from streaming.watch import spans
from streaming.watch.board import IN_RANK, Row, RunBoard
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
    "planning_ns",
    "decompressing_ns",
    "reading_ns",
    "decoding_ns",
    "user_code_ns",
    "collating_ns",
    "trainer_ns",
    "starved_ns",
    "training_ns",
)
"""The counters, in the order of their numbers on the boards."""

FLUSH_S = 0.02
"""How long what was added may wait before others see it, while more is added."""

_NUMBER = {name: number for number, name in enumerate(COUNTERS)}


def _nothing_yet() -> defaultdict[int, defaultdict[str, int]]:
    """Amounts by worker and counter."""
    return defaultdict(partial(defaultdict, int))


class _Here(threading.local):
    """What this thread alone has measured: nanoseconds."""

    waited = 0
    collating = 0
    user_code = 0


class Counters:
    """Adds up amounts in this process, and hands them to its rank's boards now and then.

    Example:
        >>> counters = Counters(EpochBoard())
        >>> counters.add(samples=3, retries=1)
        >>> counters.totals()["samples"]
        3
    """

    def __init__(self, board: EpochBoard, dataset: str = "") -> None:
        self._board = board
        self.run = RunBoard(dataset)
        self.owner: int | None = None
        """Process id of the rank that this process works for; None for the process itself."""
        self.here = _Here()
        self._begin_empty()

    def _begin_empty(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._flushed_s = 0.0
        self._pending: defaultdict[int, defaultdict[str, int]] = _nothing_yet()

    def add(self, **amounts: int) -> None:
        """Add amounts by the counters' names."""
        if self._pid != os.getpid():
            self._begin_empty()  # what a parent had pending is the parent's to hand on
        with self._lock:
            pending = self._pending[worker_here()]
            for name, amount in amounts.items():
                pending[name] += amount

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Count the time of the block as waited for data, and let others see what for."""
        worker, owner = worker_here(), self.owner or os.getpid()
        self.run.waits(owner, worker, what)
        started = time.perf_counter_ns()
        try:
            with spans.span("wait", what=what):
                yield
        finally:
            waited = time.perf_counter_ns() - started
            self.here.waited += waited
            self.add(wait_ns=waited)
            self.run.waits(owner, worker, None)

    def made_of_samples(self, collating: int, user_code: int) -> None:
        """Count nanoseconds that this thread has spent in making a batch of samples."""
        self.here.collating += collating
        self.here.user_code += user_code
        self.add(collating_ns=collating, user_code_ns=user_code)

    def flush(self) -> None:
        """Hand what was added to the boards."""
        if self._pid != os.getpid():
            self._begin_empty()
        with self._lock:
            pending, self._pending = self._pending, _nothing_yet()
        owner = self.owner or os.getpid()
        for worker, each in pending.items():
            amounts = {_NUMBER[name]: amount for name, amount in each.items()}
            self._board.add(owner, amounts)
            self.run.add(owner, worker, amounts)

    def flush_now_and_then(self) -> None:
        """Hand what was added to the boards, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._flushed_s > FLUSH_S:
            self._flushed_s = now
            self.flush()

    def begin(self, iteration: Iteration, world: World) -> None:
        """Tell that this rank begins an iteration; one of its workers does."""
        owner = self.owner or os.getpid()
        self.run.begin(owner, worker_here(), world.node, world.rank, iteration.epoch)
        spans.name_process(world.rank, worker_of_process())
        if world.worker_of_rank == 0:
            done = iteration.sample_in_epoch
            after = f" after {done:,} samples over all ranks" if done else ""
            log.info("Rank %d begins epoch %d%s.", world.rank, iteration.epoch, after)

    def end(self, iteration: Iteration, world: World) -> None:
        """Tell that this rank has ended an iteration; the last of its workers does."""
        self.flush()
        spans.flush()
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
        return named(self._board.counters())

    def by_worker(self) -> list[dict[str, Any]]:
        """The totals of each worker of this rank, and of its own process, since the start."""
        return [described(row) for row in self.rows()]

    def rows(self) -> list[Row]:
        """The rows of this rank's workers and of its own process."""
        self.flush()
        owner = self.owner or os.getpid()
        return [row for row in self.run.rows() if row.owner == owner]

    @property
    def rank(self) -> int:
        """This rank's number, as far as an iteration has begun."""
        return next((each["rank"] for each in self.by_worker()), 0)

    def __getstate__(self) -> dict[str, Any]:
        state = {"_board": self._board, "run": self.run, "owner": self.owner}
        if context.get_spawning_popen() is not None:
            state["trace"] = spans.traced_to()  # a worker adds to its rank's trace
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        path = state.pop("trace", None)
        if path is not None:
            spans.write_to(path)
        self.__dict__.update(state, here=_Here())
        self._begin_empty()


def named(amounts: Any) -> dict[str, int | float]:
    """Counters by their names; times in seconds.

    Example:
        >>> named([3, 0, 0, 0, 0, 0, 0, 500_000_000])["wait_s"]
        0.5
    """
    totals: dict[str, int | float] = {}
    for name, amount in zip(COUNTERS, amounts, strict=False):
        if name.endswith("_ns"):
            totals[f"{name[:-3]}_s"] = amount / 1e9
        else:
            totals[name] = amount
    return totals


def described(row: Row) -> dict[str, Any]:
    """A row of a board: which worker it is of, what that waits for, and its counters by name."""
    return {
        "node": row.node,
        "rank": row.rank,
        "worker": row.worker,
        "pid": row.pid,
        "epoch": row.epoch,
        "waits_for": row.waits_for,
        **named(row.counters),
    }


def gathered(counters: Counters, place: tuple[int, int], by: str) -> list[dict[str, Any]]:
    """The totals of every rank, or node, of the process group if there is one.

    Args:
        counters: This rank's.
        place: Its node, and its number.
        by: ``"rank"`` or ``"node"``.
    """
    ranks: list[Any] = [(*place, counters.totals())]
    if distributed.is_available() and distributed.is_initialized():
        own, ranks = ranks[0], [None] * distributed.get_world_size()
        distributed.all_gather_object(ranks, own)
    if by == "rank":
        return [{"node": node, "rank": rank, **totals} for node, rank, totals in ranks]
    nodes: dict[int, Counter[str]] = defaultdict(Counter)
    for node, _, totals in ranks:
        nodes[node].update(totals)
    return [{"node": node, **nodes[node]} for node in sorted(nodes)]


def worker_here() -> int:
    """The number of the loader's worker that this thread or process is, or ``IN_RANK``."""
    thread = thread_worker_info()
    if thread is not None:
        return thread.id
    return worker_of_process()


def worker_of_process() -> int:
    """The number of the loader's worker that this process is, or ``IN_RANK``."""
    process = get_worker_info()
    return IN_RANK if process is None else process.id
