"""The runs of this machine: their boards, found through the open files of its processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streaming.watch.board import BOARD_BYTES, KIND, Row, describe, rows_of

PROCESSES = Path("/proc")


@dataclass(frozen=True)
class RunningDataset:
    """A dataset that processes of this machine have open."""

    board: int
    """Tells it from all others, as long as it is there."""
    dataset: str
    started_s: float
    """Since when, in seconds since 1970."""
    rows: list[Row]
    """What those of its workers have noted that are there."""


def running_datasets() -> list[RunningDataset]:
    """The datasets that processes of this user have open now; of all users, if this one may.

    Raises:
        OSError: If this system does not tell what processes have open: only Linux does.

    Example:
        >>> from streaming.watch.board import RunBoard
        >>> board = RunBoard("s3://bucket/data")
        >>> "s3://bucket/data" in [run.dataset for run in running_datasets()]
        True
    """
    if not sys.platform.startswith("linux"):
        raise OSError(f"What runs on this machine is found on Linux only, not on {sys.platform}.")
    boards: dict[int, bytes] = {}
    holders: dict[int, set[int]] = {}
    for process in PROCESSES.iterdir():
        if process.name.isdecimal():
            for board, file in _boards_of(process):
                if board in boards or _read(file, board, boards):
                    holders.setdefault(board, set()).add(_own_number(process))
    runs = (_run(board, data, holders[board]) for board, data in boards.items())
    return sorted((run for run in runs if run is not None), key=lambda run: run.started_s)


def _boards_of(process: Path) -> Iterator[tuple[int, Path]]:
    """What a process has open that may be boards; nothing if it is not this user's, or gone."""
    try:
        files = list((process / "fd").iterdir())
    except OSError:
        return
    for file in files:
        try:
            if os.readlink(file).startswith(f"/memfd:{KIND}"):
                yield os.stat(file).st_ino, file
        except OSError:
            continue


def _read(file: Path, board: int, into: dict[int, bytes]) -> bool:
    """Read a board, if it is one and still there."""
    try:
        with open(file, "rb", buffering=0) as memory:
            stat = os.fstat(memory.fileno())
            if stat.st_ino != board or stat.st_size != BOARD_BYTES:
                return False
            into[board] = os.pread(memory.fileno(), BOARD_BYTES, 0)
    except OSError:
        return False
    return len(into[board]) == BOARD_BYTES


def _own_number(process: Path) -> int:
    """The process id by which a process knows itself: in a container, another than from outside."""
    try:
        with open(process / "status") as status:
            numbers = next((line for line in status if line.startswith("NSpid:")), "").split()
    except OSError:
        numbers = []
    return int(numbers[-1]) if len(numbers) > 1 else int(process.name)


def _run(board: int, data: bytes, holders: set[int]) -> RunningDataset | None:
    ints = np.frombuffer(data, np.int64)
    described = describe(ints)
    if described is None:
        return None
    rows = [row for row in rows_of(ints) if row.owner in holders and row.pid in holders]
    return RunningDataset(board, *described, rows)
