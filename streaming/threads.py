"""Loader workers that are threads: nothing is copied, pickled or forked.

They suit reading, and transforms that release the interpreter's lock. Each worker makes its own
batches, as a process would, and the consumer takes them in turn, so that order, checkpoints and
errors are those of worker processes.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from streaming.thread_workers import ThreadWorkerInfo, enter
from streaming.turns import Parcel

Make = Callable[[], Iterator[Parcel[Any]]]

EXIT_S = 1.0
"""How long the end of the process waits for threads to end with what they do."""
BUSY_S = 10.0
"""How much longer it waits for those that are at work and don't."""
LOOK_S = 0.1
"""How long a thread does nothing before it counts as one that waits."""
RUNNING = -1


class Raised:
    """An error of a worker that is a thread: raised as it is, with its traceback."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def reraise(self) -> None:
        """Raise it."""
        try:
            raise self._error
        finally:
            del self._error  # it refers to this frame by now


class ThreadPool:
    """Threads, each of which is a worker for one iteration after another.

    Nobody waits for them when they are not needed any more: one may be in the middle of a download.

    Args:
        workers: How many there are.
    """

    def __init__(self, workers: int) -> None:
        self._jobs: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(workers)]
        threads = [
            threading.Thread(
                target=_serve, args=(jobs,), name=f"streaming-worker-{number}", daemon=True
            )
            for number, jobs in enumerate(self._jobs)
        ]
        self._finish = weakref.finalize(self, _dismiss, self._jobs)
        self._finish.atexit = False
        _pools.add(self)
        for thread in threads:
            _threads.add(thread)
            thread.start()

    def run(
        self,
        infos: Sequence[ThreadWorkerInfo],
        make: Callable[[ThreadWorkerInfo], Iterator[Parcel[Any]]],
        prefetch: int,
        timeout_s: float = 0,
        in_order: bool = True,
    ) -> ThreadRun:
        """Begin an iteration.

        Args:
            infos: The workers.
            make: Makes a worker's parcels; called in its thread.
            prefetch: How many parcels each worker makes ahead.
            timeout_s: Longest wait for a parcel; 0 for ever.
            in_order: False to take parcels as they come.
        """
        run = ThreadRun(len(infos), prefetch, timeout_s, in_order)
        for info, jobs, line in zip(infos, self._jobs, run.lines, strict=True):
            jobs.put((make, info, line))
        _runs.add(run)
        return run

    def dismiss(self) -> None:
        """Let the threads end when they have done what they were given."""
        self._finish()


class ThreadRun:
    """One iteration of a pool: parcels on their way. Its workers stop when it is dropped.

    Args:
        workers: How many workers there are.
        prefetch: How many parcels each makes ahead.
        timeout_s: Longest wait for a parcel; 0 for ever.
        in_order: False for one line that all of them share.
    """

    def __init__(self, workers: int, prefetch: int, timeout_s: float, in_order: bool) -> None:
        self._timeout_s = timeout_s
        self._pid = os.getpid()
        if in_order:
            self.lines = [_Line(max(1, prefetch)) for _ in range(workers)]
        else:
            self.lines = [_Line(max(1, prefetch) * workers)] * workers

    def pull(self, worker: int) -> Parcel[Any]:
        """Wait for a worker's next parcel.

        Raises:
            RuntimeError: If it takes longer than the time limit.
        """
        parcel = self.lines[worker].get(self._timeout_s)
        if parcel is None:
            raise RuntimeError(
                f"No batch came from the loader's worker thread {worker} within "
                f"{self._timeout_s} seconds, the loader's `timeout`."
            )
        return parcel

    def close(self) -> None:
        """Let the workers stop with the batch that they are making."""
        if self._pid == os.getpid():  # in a forked process, locks may be held for ever
            for line in self.lines:
                line.close()

    def __del__(self) -> None:
        self.close()


class _Line:
    """Parcels that wait for the consumer: so many and no more."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._parcels: deque[Parcel[Any]] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, parcel: Parcel[Any]) -> bool:
        """Wait for room and add a parcel; False if nobody wants it any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._parcels) < self._room)
            if not self._closed:
                self._parcels.append(parcel)
                self._changed.notify_all()
            return not self._closed

    def get(self, timeout_s: float) -> Parcel[Any] | None:
        """Wait for a parcel and take it; None if the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._parcels, timeout_s or None)
            parcel = self._parcels.popleft() if self._parcels else None
            self._changed.notify_all()
            return parcel

    def close(self) -> None:
        """Want no more parcels."""
        with self._changed:
            self._closed = True
            self._parcels.clear()
            self._changed.notify_all()


def _serve(jobs: queue.SimpleQueue[Any]) -> None:
    while (job := jobs.get()) is not None:
        _work(*job)
        del job  # or it would be kept until the next one comes


def _work(
    make: Callable[[ThreadWorkerInfo], Iterator[Parcel[Any]]], info: ThreadWorkerInfo, line: _Line
) -> None:
    enter(info)
    parcels: Any = iter(())
    try:
        parcels = make(info)
        for parcel in parcels:
            if not line.put(parcel):
                break
    except BaseException as error:  # it is raised in the consumer
        line.put(Parcel(info.id, [], ended=True, failure=Raised(error)))
    finally:
        close = getattr(parcels, "close", None)
        if close is not None:
            close()
        enter(None)


_pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()
_runs: weakref.WeakSet[ThreadRun] = weakref.WeakSet()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Also those of pools that are gone: one may still be at work on its last batch."""


def _dismiss(jobs: list[queue.SimpleQueue[Any]]) -> None:
    for each in jobs:
        each.put(None)


@atexit.register
def _end() -> None:
    """End threads before the interpreter is taken down under them.

    Up to Python 3.13, a thread that comes back from C++ code after that, such as Torch's, ends the
    whole process as failed. One that waits doesn't come back, and nobody waits for it.
    """
    for run in list(_runs):
        run.close()
    for pool in list(_pools):
        pool.dismiss()
    busy = _join(list(_threads), EXIT_S)
    for thread in busy:
        _interrupt(thread)
    until = time.monotonic() + BUSY_S
    before: list[int] = []
    while busy and time.monotonic() < until:
        looks = [_switches(thread) for thread in busy]
        if looks == before and RUNNING not in looks:
            break
        before, busy = looks, _join(busy, LOOK_S)


def _join(threads: list[threading.Thread], seconds: float) -> list[threading.Thread]:
    """Wait for threads to end, so long together; those that have not."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [thread for thread in threads if thread.is_alive()]


def _interrupt(thread: threading.Thread) -> None:
    """Let a thread end before the next step of its Python code, whoever's that is."""
    exit_ = ctypes.py_object(SystemExit)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), exit_)


def _switches(thread: threading.Thread) -> int:
    """How often a thread went to sleep: the same while it waits. ``RUNNING`` if it does not.

    Where no system tells (Linux does), every thread seems to wait.
    """
    try:
        with open(f"/proc/self/task/{thread.native_id}/status") as file:
            status = dict(line.split(":\t", 1) for line in file)
    except OSError:
        return 0
    return RUNNING if status["State"][0] == "R" else int(status["voluntary_ctxt_switches"])
