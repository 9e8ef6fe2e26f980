"""What is kept and takes long to make: its first part is given out while the rest is made."""

import hashlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from streaming.cache.claims import Claim
from streaming.cache.waiting import waiting
from streaming.keep import Arrays, Keep

log = logging.getLogger("streaming")

Publish = Callable[[Arrays], None]
"""Takes the first part of what is being made, once at most."""


@dataclass(frozen=True, slots=True)
class Early:
    """Something kept, of which perhaps only the first part is there yet."""

    arrays: Arrays
    """The first part, or all of it."""
    is_whole: bool
    """Whether it is all of it."""
    whole: Callable[[], Arrays]
    """Waits for all of it."""
    end: Callable[[], bool]
    """Waits until this process has made it, silently; False if it does not make it, or failed."""


def get_early(keep: Keep, kind: str, key: str, make: Callable[[Publish], Arrays]) -> Early:
    """Give what is kept under a key, as :meth:`Keep.get` does, or its first part until it is made.

    One process makes it, in a thread; the others get its first part as soon as it does. Whoever
    needs the rest waits for it, and makes it if the one that did has died.

    Args:
        keep: Where it is kept.
        kind: What it is, for its file's name and for log lines.
        key: A hex digest of all that it depends on.
        make: Makes it. It is given what to call with the first part when that is there, which it
            may leave.

    Raises:
        Exception: What ``make`` raises.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> def make(publish):
        ...     publish({"squares": np.arange(2) ** 2})
        ...     return {"squares": np.arange(5) ** 2}
        >>> early = get_early(Keep(tempfile.mkdtemp()), "squares", "5", make)
        >>> early.arrays["squares"][:2].tolist(), early.whole()["squares"].tolist()
        ([0, 1], [0, 1, 4, 9, 16])
    """
    found = keep.find(kind, key)
    if found is not None:
        return Early(found, True, lambda: found, lambda: True)
    making = _Making(keep, kind, key, make)
    threading.Thread(target=making.run, name=f"streaming-{kind}", daemon=True).start()
    arrays, is_whole = making.early.result()
    return Early(arrays, is_whole, making.whole, making.end)


class _Making:
    """The making of something, here or by another process."""

    def __init__(self, keep: Keep, kind: str, key: str, make: Callable[[Publish], Arrays]) -> None:
        self._keep, self._kind, self._key, self._make = keep, kind, key, make
        self._first_key = hashlib.blake2b(f"first of {key}".encode(), digest_size=20).hexdigest()
        self._pid = os.getpid()
        self._here = False  # whether this process makes it, if it has not been forked since
        self._all: Future[Arrays] = Future()
        self.early: Future[tuple[Arrays, bool]] = Future()
        """The first part or all of it, and whether it is all."""

    def run(self) -> None:
        """Make it, unless another process does."""
        try:
            self._run()
        except BaseException as error:
            for future in (self.early, self._all):
                if not future.done():
                    future.set_exception(error)

    def whole(self) -> Arrays:
        """Wait for all of it."""
        if self._is_here():
            with waiting(f"the rest of the {self._kind}"):
                return self._all.result()
        whole = self._keep.get(self._kind, self._key, partial(self._make, _keep_quiet))
        self._keep.remove(self._kind, self._first_key)
        return whole

    def end(self) -> bool:
        """Wait until this process has made it; False if it doesn't make it, or failed."""
        return self._is_here() and self._all.exception() is None

    def _is_here(self) -> bool:
        return self._here and self._pid == os.getpid()

    def _run(self) -> None:
        # Held until the first part is there: others wait for that, and not for each other.
        lock = self._keep.lock(self._first_key)
        lock.acquire(f"the {self._kind} that another process makes")
        try:
            whole = self._keep.find(self._kind, self._key)
            first = None if whole is not None else self._keep.find(self._kind, self._first_key)
            if first is not None:
                self.early.set_result((first, False))
                return
            self._here = True
            if whole is None:
                make = partial(self._make, partial(self._publish, lock))
                whole = self._keep.get(self._kind, self._key, make)
            self._keep.remove(self._kind, self._first_key)
            self._all.set_result(whole)
            if not self.early.done():
                self.early.set_result((whole, True))
        finally:
            lock.release()

    def _publish(self, lock: Claim, first: Arrays) -> None:
        try:
            first = self._keep.put(self._kind, self._first_key, first)
        except OSError as error:
            log.info("The %s could not be kept in %s: %s", self._kind, self._keep.path, error)
        self.early.set_result((first, False))
        lock.release()


def _keep_quiet(first: Arrays) -> None:
    """Publish nothing."""
