"""Trace files: what each thread of each process did when, for https://ui.perfetto.dev.

The format is the array form of Chrome's trace events, which Perfetto, ``chrome://tracing`` and
PyTorch's own traces share. Its closing bracket may be left out, so that all processes of a machine
can append to one file, and one that was cut off can still be read.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from multiprocessing import util
from pathlib import Path
from time import perf_counter_ns
from typing import Any

log = logging.getLogger("streaming")

FLUSH_NS = 500_000_000
"""How long events may wait before they are written."""
FLUSH_EVENTS = 2000
"""How many may."""
MAX_BYTES = 1 << 30
"""A file is not made larger: viewers would not open it."""

_LANES, _LANES_OF_A_KIND = 1_000_000_000, 10_000
"""From the first on, what the format calls threads are lanes: the system has no such threads."""


Row = tuple[int, str]
"""Where events are shown: a number, and what it is called."""


class _Local(threading.local):
    row: Row | None = None


_here = _Local()


class Lanes:
    """Rows of a trace that threads use in turn, each for as long as it has something to show.

    Args:
        kind: A number of their own.
        name: What they are called; each gets a number.
    """

    def __init__(self, kind: int, name: str) -> None:
        self._first, self._name = _LANES + kind * _LANES_OF_A_KIND, name
        self._begin_empty()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_empty)

    def _begin_empty(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[int] = set()

    def enter(self) -> Row | None:
        """Give this thread the first row that is free; returns the one it had."""
        with self._lock:
            lane = next(n for n in range(len(self._taken) + 1) if n not in self._taken)
            self._taken.add(lane)
        before, _here.row = _here.row, (self._first + lane, f"{self._name} {lane}")
        return before

    def leave(self, before: Row | None) -> None:
        """Leave this thread's row to others, for the one it had before."""
        row, _here.row = _here.row, before
        if row is not None:
            with self._lock:
                self._taken.discard(row[0] - self._first)


FETCHING = Lanes(0, "fetch")
CONNECTIONS = Lanes(1, "connection")


class Trace:
    """Appends events to a file, from all processes that are forked from this one, too.

    Args:
        path: The file; what is in it stays.

    Raises:
        OSError: If it can't be written to.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        _create(self.path)
        self._file: int | None = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        # Times of day, for traces of several machines to be laid beside one another.
        self._offset = time.time_ns() - perf_counter_ns()
        self._begin_empty()

    def _begin_empty(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._lines: list[str] = []
        self._rows: set[int] = set()
        self._name: str | None = None
        self._flushed = perf_counter_ns()
        # The workers of a loader end without what atexit knows, but not without this.
        self._at_exit = util.Finalize(None, self.flush, exitpriority=0)

    def _enter_process(self) -> None:
        if self._pid != os.getpid():
            self._begin_empty()  # what a parent had pending is the parent's to write

    def add(self, name: str, begun: int, ended: int, about: dict[str, Any]) -> None:
        """Add what has happened in this thread, by times of ``perf_counter_ns``."""
        self._enter_process()
        row = self._row()
        event = {
            "name": name,
            "cat": "streaming",
            "ph": "X",
            "ts": (begun + self._offset) / 1000,
            "dur": (ended - begun) / 1000,
            "pid": self._pid,
            "tid": row,
        }
        if about:
            event["args"] = about
        self._lines.append(json.dumps(event, default=str))
        if ended - self._flushed > FLUSH_NS or len(self._lines) >= FLUSH_EVENTS:
            self.flush()

    def _row(self) -> int:
        """Where this thread's events are shown."""
        thread = _here.row or (threading.get_native_id(), threading.current_thread().name)
        if thread[0] not in self._rows:
            self._rows.add(thread[0])
            self._say("thread_name", thread[0], name=thread[1])
        return thread[0]

    def name_process(self, name: str, place: int) -> None:
        """Say what this process is, and its place among the others."""
        self._enter_process()
        if name != self._name:
            self._name = name
            self._say("process_name", 0, name=name)
            self._say("process_sort_index", 0, sort_index=place)

    def _say(self, kind: str, row: int, **about: Any) -> None:
        event = {"name": kind, "ph": "M", "pid": self._pid, "tid": row, "args": about}
        self._lines.append(json.dumps(event))

    def flush(self) -> None:
        """Write what was added. If that can't be done, the log says why, and no more is written."""
        self._enter_process()
        with self._lock:
            lines, self._lines = self._lines, []
            self._flushed = perf_counter_ns()
            if self._file is None or not lines:
                return
            try:
                self._append("".join(f"{line},\n" for line in lines).encode())
            except OSError as error:
                log.warning("The trace %s ends here: %s", self.path, error)
                self._close()

    def _append(self, data: bytes) -> None:
        """Write in one go, so that what several processes write does not mix."""
        assert self._file is not None
        size = os.fstat(self._file).st_size
        if size + len(data) > MAX_BYTES:
            raise OSError(f"it has {size:,} bytes, and viewers take {MAX_BYTES:,}")
        written = os.write(self._file, data)
        if written != len(data):
            raise OSError(f"only {written:,} of {len(data):,} bytes could be written")

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def close(self) -> None:
        """Write what was added, and end."""
        self.flush()
        self._at_exit.cancel()
        with self._lock:
            self._close()


def _create(path: str) -> None:
    """Make a file that opens an array, unless it is there: at once, as others may do so."""
    if os.path.exists(path):
        return
    own = Path(f"{path}.{os.getpid()}.{threading.get_ident()}")
    try:
        own.write_text("[\n")
        try:
            os.link(own, path)
        except FileExistsError:
            pass
        except OSError:  # this file system has no links
            if not os.path.exists(path):
                os.replace(own, path)
    finally:
        own.unlink(missing_ok=True)
