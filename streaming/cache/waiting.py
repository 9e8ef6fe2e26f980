"""Say who waits for what, and since when, while somebody waits."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("streaming")

INTERVAL_S = 5.0
"""How long a wait lasts before it is first logged, and the time between two lines about it."""

Wait = tuple[str, str, float, float]
"""Who waits, for what, and since when: by the monotonic clock, and by the one on the wall."""


class _Watch:
    """One thread in each process that logs the waits which last, and ends when there are none."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waits: dict[int, Wait] = {}
        self._due: dict[int, float] = {}  # when the next line about a wait is due
        self._thread: threading.Thread | None = None
        self._next = 0

    def add(self, what: str) -> int:
        with self._changed:
            self._next += 1
            who = f"process {os.getpid()}, {threading.current_thread().name}"
            self._waits[self._next] = (who, what, time.monotonic(), time.time())
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="streaming-waits", daemon=True
                )
                self._thread.start()
            return self._next

    def remove(self, number: int) -> None:
        with self._changed:
            del self._waits[number]
            self._due.pop(number, None)

    def _run(self) -> None:
        with self._changed:
            while self._waits:
                now = time.monotonic()
                for number, wait in self._waits.items():
                    if now >= self._due.setdefault(number, wait[2] + INTERVAL_S):
                        self._due[number] = now + INTERVAL_S
                        log.warning("%s", _line(wait, now))
                # One that begins meanwhile is due later than these.
                self._changed.wait(min(self._due.values()) - now)
            self._thread = None


def _line(wait: Wait, now: float) -> str:
    who, what, since, wall = wait
    clock = time.strftime("%H:%M:%S", time.localtime(wall))
    return f"Waiting for {what}: {now - since:.0f} s now, since {clock} ({who})."


_watch = _Watch()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Log every few seconds that this process waits, for as long as the block lasts.

    Args:
        what: What for, to stand behind "Waiting for".
    """
    watch = _watch
    number = watch.add(what)
    try:
        yield
    finally:
        watch.remove(number)


def _forget_in_child() -> None:
    global _watch
    _watch = _Watch()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
