"""Work on finished shards in the background: bounded, prompt to end, without a thread when idle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["CancelledError", "Pipeline"]

J = TypeVar("J")


class CancelledError(Exception):
    """The work has been called off; a step raises it to end early."""


class Pipeline(Generic[J]):
    """Two steps for each job, each job in a thread of its own, no more than a few at once.

    The first step (to hash, compress and write a shard) needs memory, the second (to upload it)
    needs room on disk until it is done. `submit` waits until there is room for another job, so that
    whoever makes the jobs is slowed down to what the steps can take.

    Threads live as long as their job, sleep on one condition, and are daemons: a process that ends
    by an error doesn't wait for them.

    Args:
        prepare: The first step.
        deliver: The second step; None if there is none.
        preparing: How many jobs may be in the first step.
        delivering: How many jobs may be in the second step. One more may wait for it.

    Example:
        >>> done = []
        >>> pipeline = Pipeline(lambda job: job.append("written"), done.append, preparing=1)
        >>> pipeline.submit(["shard 0"])
        >>> pipeline.drain()
        >>> done
        [['shard 0', 'written']]
    """

    def __init__(
        self,
        prepare: Callable[[J], None],
        deliver: Callable[[J], None] | None = None,
        *,
        preparing: int,
        delivering: int = 1,
    ) -> None:
        self._prepare = prepare
        self._deliver = deliver
        self._max_preparing = preparing
        self._max_delivering = delivering
        self._max_flying = preparing if deliver is None else delivering + 1
        self._changed = threading.Condition()
        self._preparing = 0
        self._delivering = 0
        self._flying = 0
        self._cancelled = threading.Event()
        self.error: BaseException | None = None
        """Why nothing more begins; None while all is well."""
        self.failed: J | None = None
        """The job that could not be done, if it was one."""

    def sleep(self, seconds: float) -> None:
        """Wait inside a step.

        Raises:
            CancelledError: As soon as the pipeline is cancelled.
        """
        if self._cancelled.wait(seconds):
            raise CancelledError

    def submit(self, job: J) -> None:
        """Begin a job, as soon as there is room; do nothing if the pipeline is cancelled."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            if self._cancelled.is_set():
                return
            self._preparing += 1
            self._flying += 1
        try:
            threading.Thread(target=self._run, args=(job,), daemon=True).start()
        except BaseException:  # no thread to be had
            with self._changed:
                self._preparing -= 1
                self._flying -= 1
            raise

    def drain(self) -> None:
        """Wait for all jobs, or for the first that fails and those still under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self._flying)

    def cancel(self, error: BaseException) -> None:
        """Let nothing more begin.

        Args:
            error: Why; kept if it is the first.
        """
        self._fail(error, None)

    def stop(self, error: BaseException) -> None:
        """Let nothing more begin, and wait for what has begun.

        Args:
            error: Why; kept if it is the first.
        """
        self._fail(error, None)
        self.drain()

    def _fail(self, error: BaseException, job: J | None) -> None:
        with self._changed:
            if self.error is None:
                self.error, self.failed = error, job
            self._cancelled.set()
            self._changed.notify_all()

    def _has_room(self) -> bool:
        room = self._preparing < self._max_preparing and self._flying < self._max_flying
        return room or self._cancelled.is_set()

    def _run(self, job: J) -> None:
        try:
            try:
                if self._cancelled.is_set():
                    raise CancelledError
                self._prepare(job)
            finally:
                with self._changed:
                    self._preparing -= 1
                    self._changed.notify_all()
            if self._deliver is not None:
                self._take_turn(self._deliver, job)
        except CancelledError:
            pass
        except BaseException as exc:
            self._fail(exc, job)
        finally:
            with self._changed:
                self._flying -= 1
                self._changed.notify_all()

    def _take_turn(self, deliver: Callable[[J], None], job: J) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._delivering < self._max_delivering or self._cancelled.is_set()
            )
            if self._cancelled.is_set():
                raise CancelledError
            self._delivering += 1
        try:
            deliver(job)
        finally:
            with self._changed:
                self._delivering -= 1
                self._changed.notify_all()
