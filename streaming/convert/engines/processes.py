"""The engine that comes with the library: a pool of processes that take part after part.

The parent hands a part to whoever is free, the largest first, so that a skewed source keeps all of
them busy. Each worker has a pipe of its own: a process that is killed takes no lock with it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from streaming.convert.engines import Engine
from streaming.convert.errors import ConvertError
from streaming.convert.job import Job, PartReport, check_failures, write_part
from streaming.convert.progress import Watch
from streaming.convert.source import Part

__all__ = ["ProcessesEngine"]

_TICK_S = 0.2


class ProcessesEngine(Engine):
    """Converts parts in processes of this machine.

    Args:
        workers: How many processes; 0 converts in the calling process; None for one a core, as far
            as there are parts.
        retries: How often a part is begun anew when its worker has been killed.
        start_method: "fork", "spawn" or "forkserver". On Linux it is "fork" unless given: workers
            then share what is in memory (tables, above all), a transform may be any function, and
            a script needs no `if __name__ == "__main__"`. A transform that uses a GPU, or a library
            whose threads must not be forked, needs "spawn".

    Raises:
        ValueError: If an argument makes no sense.
    """

    def __init__(
        self, workers: int | None = None, *, retries: int = 1, start_method: str | None = None
    ) -> None:
        if workers is not None and workers < 0:
            raise ValueError(f"workers is {workers}; it must not be negative")
        if retries < 0:
            raise ValueError(f"retries is {retries}; it must not be negative")
        if start_method is None:
            start_method = "fork" if sys.platform.startswith("linux") else "spawn"
        self.workers = workers
        self.retries = retries
        self._context: Any = multiprocessing.get_context(start_method)

    def run(self, job: Job, parts: Sequence[Part], watch: Watch) -> list[PartReport]:
        """Convert the parts; see `Engine.run`."""
        workers = self.workers
        if workers is None:
            workers = _cores() if len(parts) > 1 else 0
        if workers == 0:
            return [self._here(job, part, watch) for part in parts]
        pool = _Pool(self._context, job, parts, watch, self.retries)
        try:
            return pool.run(min(workers, len(parts)))
        finally:
            pool.close()

    @staticmethod
    def _here(job: Job, part: Part, watch: Watch) -> PartReport:
        def tick(rows: int, failures: int) -> None:
            watch.tick(part.number, rows, failures)
            check_failures(watch.failures, job.max_errors, None)

        report = write_part(job, part, tick)
        watch.done(report)
        return report


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker:
    """A process, the pipe to it, and the part that it has."""

    def __init__(self, process: BaseProcess, pipe: Connection) -> None:
        self.process, self.pipe = process, pipe
        self.part: Part | None = None


class _Pool:
    def __init__(
        self, context: Any, job: Job, parts: Sequence[Part], watch: Watch, retries: int
    ) -> None:
        self._context, self._job, self._watch, self._retries = context, job, watch, retries
        self._pending = deque(sorted(parts, key=lambda part: (-part.bytes, part.number)))
        self._begun: Counter[int] = Counter()
        self._workers: list[_Worker] = []
        self._reports: list[PartReport] = []

    def run(self, count: int) -> list[PartReport]:
        for _ in range(count):
            self._start()
        while any(worker.part is not None for worker in self._workers):
            ready = wait([worker.pipe for worker in self._workers])
            for worker in [one for one in self._workers if one.pipe in ready]:
                self._hear(worker)
        return self._reports

    def close(self) -> None:
        """End all workers, at once."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers = []

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        # A forked child inherits our ends of all pipes; while it holds one, nobody sees us die.
        forked = self._context.get_start_method() == "fork"
        inherited = [worker.pipe for worker in self._workers] + [ours] if forked else []
        process = self._context.Process(
            target=_work, args=(theirs, self._job, inherited, os.getpid()), daemon=True
        )
        with warnings.catch_warnings():  # threads: see start_method
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        worker.part = self._pending.popleft() if self._pending else None
        with suppress(BrokenPipeError):  # it has died: heard of at the next wait
            worker.pipe.send(worker.part)
        if worker.part is None:
            self._workers.remove(worker)
            worker.process.join()
            worker.pipe.close()

    def _hear(self, worker: _Worker) -> None:
        part = worker.part
        assert part is not None
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._lost(worker, part)
            return
        if kind == "tick":
            self._watch.tick(part.number, *content)
            check_failures(self._watch.failures, self._job.max_errors, None)
        elif kind == "done":
            self._watch.done(content)
            self._reports.append(content)
            self._give(worker)
        else:
            raise _rebuilt(*content)

    def _lost(self, worker: _Worker, part: Part) -> None:
        """A worker has been killed: begin its part anew elsewhere, or say so."""
        self._workers.remove(worker)
        worker.process.join()
        worker.pipe.close()
        self._begun[part.number] += 1
        if self._begun[part.number] > self._retries:
            raise ConvertError(
                f"{part.label}: the process that converted it {_ending(worker.process.exitcode)}, "
                f"{self._begun[part.number]} times. A process that is killed has often used too "
                "much memory: give fewer workers, or a smaller part_size or size_limit. What is "
                "finished stays; run it again to go on"
            )
        self._watch.restart(part.number)
        self._pending.appendleft(part)
        self._start()


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _rebuilt(data: bytes | None, text: str) -> BaseException:
    """A worker's exception, with its traceback as the cause."""
    error: BaseException = ConvertError(text.strip().rpartition("\n")[2])
    if data is not None:
        with suppress(Exception):
            error = pickle.loads(data)
    error.__cause__ = _WorkerError(text)
    return error


class _WorkerError(Exception):
    """Where in the worker it happened; shown above the exception."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


# In the worker.


def _work(pipe: Connection, job: Job, inherited: list[Connection], parent: int) -> None:
    for other in inherited:
        other.close()
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while (part := pipe.recv()) is not None:
            pipe.send(_convert(job, part, pipe))


def _convert(job: Job, part: Part, pipe: Connection) -> tuple[str, Any]:
    told, rows, failures = time.monotonic(), 0, 0

    def tick(more_rows: int, more_failures: int) -> None:
        nonlocal told, rows, failures
        rows, failures = rows + more_rows, failures + more_failures
        if time.monotonic() - told >= _TICK_S:
            pipe.send(("tick", (rows, failures)))
            told, rows, failures = time.monotonic(), 0, 0

    try:
        return "done", write_part(job, part, tick)
    except BrokenPipeError:
        raise
    except BaseException as exc:
        text = "".join(traceback.format_exception(type(exc), exc, exc.__traceback__))
        data = None
        with suppress(Exception):
            data = pickle.dumps(exc)
            pickle.loads(data)
        return "failed", (data, text)


def _die_with(parent: int) -> None:
    """End this process with its parent, lest it writes a part that a new run writes as well."""
    if sys.platform.startswith("linux"):
        death_signal = 1  # PR_SET_PDEATHSIG
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
