"""Where each worker of a dataset notes what it has done and what it waits for, for all to see.

It is anonymous memory that a rank's process shares with its workers. On Linux every process of the
same user can find it through ``/proc`` and look on, without those that run noticing; when the last
of them is gone, so is it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing import context
from typing import Any

import numpy as np

from streaming.shared import SharedInts, is_alive

KIND = "streaming-run"
"""What the system's lists of open files call a board."""
MAGIC = 0x5348_4152_4453_0001
"""The board's first integer: what it is, and the version of its layout."""

ROWS = 512
_ROW = 64
# The integers of the first row, which tells of the dataset.
_MAGIC, _STARTED, _DATASET = 0, 1, 8
_DATASET_BYTES = 8 * (_ROW - _DATASET)
# The integers of all others: one for each rank's process and each worker of it.
_OWNER, _WORKER, _PID = 0, 1, 2
_NODE, _RANK, _EPOCH, _UPDATED, _WAITS_SINCE = 3, 4, 5, 6, 7
_WAITS_FOR, _WAITS_FOR_BYTES = 8, 128
_COUNTERS, NUM_COUNTERS = 24, 24

BOARD_BYTES = 8 * _ROW * (1 + ROWS)

IN_RANK = -1
"""The number of the worker that is the rank's process itself."""


@dataclass(frozen=True)
class Row:
    """What one worker of a rank has noted."""

    owner: int
    """Process id of the rank."""
    worker: int
    """Its number, or ``IN_RANK``."""
    pid: int
    """The process that noted it: the worker's, or the rank's own."""
    node: int
    rank: int
    epoch: int
    updated_s: float
    """When it noted something last, in seconds since 1970."""
    waits_for: str
    """What it waits for, or an empty string."""
    waits_since_s: float
    """Since when, in seconds since 1970."""
    counters: tuple[int, ...]


class RunBoard:
    """The rows of all ranks that were forked from one process, and of their workers.

    Example:
        >>> board = RunBoard("s3://bucket/data")
        >>> board.add(owner=1, worker=0, amounts={0: 7})
        >>> board.add(owner=1, worker=0, amounts={0: 1})
        >>> board.dataset, [(row.worker, row.counters[0]) for row in board.rows()]
        ('s3://bucket/data', [(0, 8)])
    """

    def __init__(self, dataset: str = "") -> None:
        self._ints = SharedInts(_ROW * (1 + ROWS), KIND)
        self._at: dict[tuple[int, int], int | None] = {}
        self.describe(dataset)
        self._ints[_STARTED] = time.time_ns()
        self._ints[_MAGIC] = MAGIC

    def describe(self, dataset: str) -> None:
        """Say which dataset this is."""
        self._ints.write(_DATASET, _packed(dataset, _DATASET_BYTES))

    @property
    def dataset(self) -> str:
        """Which dataset this is."""
        return _text(np.array(self._ints.slice(_DATASET, _ROW)))

    @property
    def started_s(self) -> float:
        """Since when it is there, in seconds since 1970."""
        return self._ints[_STARTED] / 1e9

    def add(self, owner: int, worker: int, amounts: Mapping[int, int]) -> None:
        """Add to a worker's counters, by their numbers."""
        at = self._row_of(owner, worker)
        if at is None:
            return
        with self._ints.lock():
            for number, amount in amounts.items():
                self._ints[at + _COUNTERS + number] += amount
            self._ints[at + _UPDATED] = time.time_ns()

    def begin(self, owner: int, worker: int, node: int, rank: int, epoch: int) -> None:
        """Note that a worker begins an iteration."""
        at = self._row_of(owner, worker)
        if at is not None:
            ints = self._ints
            ints[at + _PID], ints[at + _EPOCH] = os.getpid(), epoch
            ints[at + _NODE], ints[at + _RANK] = node, rank
            ints[at + _WAITS_SINCE], ints[at + _UPDATED] = 0, time.time_ns()

    def waits(self, owner: int, worker: int, what: str | None) -> None:
        """Note what a worker waits for from now on; None if it goes on."""
        at = self._row_of(owner, worker)
        if at is None:
            return
        if what is not None:
            self._ints.write(at + _WAITS_FOR, _packed(what, _WAITS_FOR_BYTES))
        self._ints[at + _WAITS_SINCE] = 0 if what is None else time.time_ns()

    def rows(self) -> list[Row]:
        """What has been noted, by rank and worker."""
        return rows_of(np.array(self._ints.slice(0, self._ints.size), np.int64))

    def _row_of(self, owner: int, worker: int) -> int | None:
        """Where a worker's row begins; None if there is none left."""
        key = owner, worker
        if key not in self._at:
            with self._ints.lock():
                self._at[key] = self._claim(owner, worker)
        return self._at[key]

    def _claim(self, owner: int, worker: int) -> int | None:
        ints = self._ints
        rows = range(_ROW, _ROW * (1 + ROWS), _ROW)
        free = None
        for at in rows:
            if ints[at + _OWNER] == owner and ints[at + _WORKER] == worker:
                return at
            if free is None and not is_alive(ints[at + _OWNER]):
                free = at
            if not ints[at + _OWNER]:
                break  # none comes behind the first that was never used
        if free is not None:
            ints.write(free, bytes(8 * _ROW))
            ints[free + _OWNER], ints[free + _WORKER] = owner, worker
            ints[free + _PID] = os.getpid()
        return free

    def __getstate__(self) -> dict[str, Any]:
        """The board itself for a worker that is being spawned; for others, a new one."""
        if context.get_spawning_popen() is not None:
            return {"_ints": self._ints}
        return {"dataset": self.dataset}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "dataset" in state:
            self.__init__(state["dataset"])  # type: ignore[misc]
        else:
            self._ints, self._at = state["_ints"], {}


def rows_of(ints: np.ndarray[Any, np.dtype[np.int64]]) -> list[Row]:
    """The rows among a board's integers, by rank and worker."""
    rows = []
    for row in ints.reshape(-1, _ROW)[1:]:
        if not row[_OWNER]:
            break
        since = int(row[_WAITS_SINCE])
        waits_for = _text(row[_WAITS_FOR : _WAITS_FOR + _WAITS_FOR_BYTES // 8]) if since else ""
        rows.append(
            Row(
                owner=int(row[_OWNER]),
                worker=int(row[_WORKER]),
                pid=int(row[_PID]),
                node=int(row[_NODE]),
                rank=int(row[_RANK]),
                epoch=int(row[_EPOCH]),
                updated_s=int(row[_UPDATED]) / 1e9,
                waits_for=waits_for,
                waits_since_s=since / 1e9,
                counters=tuple(row[_COUNTERS : _COUNTERS + NUM_COUNTERS].tolist()),
            )
        )
    ranks = {row.owner: row for row in rows if row.worker != IN_RANK}
    for at, row in enumerate(rows):
        if row.worker == IN_RANK and row.owner in ranks:  # only its workers know its place
            known = ranks[row.owner]
            rows[at] = replace(row, node=known.node, rank=known.rank, epoch=known.epoch)
    return sorted(rows, key=lambda row: (row.node, row.rank, row.owner, row.worker))


def describe(ints: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[str, float] | None:
    """Which dataset a board's integers are of, and since when; None if that is no board."""
    if 8 * len(ints) != BOARD_BYTES or int(ints[_MAGIC]) != MAGIC:
        return None
    return _text(ints[_DATASET:_ROW]), int(ints[_STARTED]) / 1e9


def _packed(text: str, room: int) -> bytes:
    """A text's bytes, its end cut off if there are too many, zeros behind it."""
    return text.encode()[:room].ljust(room, b"\0")


def _text(ints: np.ndarray[Any, np.dtype[np.int64]]) -> str:
    return ints.astype(np.int64).tobytes().rstrip(b"\0").decode(errors="ignore")
