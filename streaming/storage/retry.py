"""When to try again, and how long to wait before: one place for all providers."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from streaming.storage.errors import StoreError, Throttled

__all__ = ["RetryPolicy"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

_entropy = random.SystemRandom()


def system_random() -> float:
    """A number in [0, 1) from the system's entropy.

    Not from Python's shared generator: drawing from it would change what the user's own seeded code
    draws next, and forked workers, which inherit its state, would all wait for the same time.
    """
    return _entropy.random()


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with full jitter, for errors that are worth another try.

    Before attempt n + 1 (n = 1, 2, …) it waits for a time drawn evenly from
    [0, min(cap_s, base_s * 2**(n-1))), after the store's own Retry-After if it gave one. See Marc
    Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

    Args:
        retries: Attempts after the first. 0 turns retrying off.
        throttle_retries: Further attempts that only a `Throttled` answer may use up: a store that
            asks to wait is not broken. None stands for three times `retries`.
        base_s: Longest wait before the second attempt, in seconds.
        cap_s: Longest wait before any attempt (Retry-After aside), in seconds.
        max_wait_s: Longest time spent waiting in all, in seconds; a wait that would pass it is not
            begun. The attempts themselves are bounded by the stores' time-outs.
        rng: Gives a number in [0, 1).
        sleep: Waits for a number of seconds.

    Example:
        >>> waits = []
        >>> policy = RetryPolicy(retries=2, base_s=1.0, rng=lambda: 0.5, sleep=waits.append)
        >>> answers = [StoreError("s3://b/k: cut off", retryable=True), b"data"]
        >>> def fetch():
        ...     answer = answers.pop(0)
        ...     if isinstance(answer, StoreError):
        ...         raise answer
        ...     return answer
        >>> policy.call(fetch, "fetching s3://b/k")
        b'data'
        >>> waits
        [0.5]
    """

    retries: int = 2
    throttle_retries: int | None = None
    base_s: float = 0.2
    cap_s: float = 20.0
    max_wait_s: float = 120.0
    rng: Callable[[], float] = system_random
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        for name in ("retries", "throttle_retries", "base_s", "cap_s", "max_wait_s"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"RetryPolicy: {name} is {value}; it must not be negative")

    def wait_s(self, attempt: int, error: StoreError) -> float:
        """How long to wait after a failed attempt.

        Args:
            attempt: The number of the attempt that failed, from 1.
            error: Why it failed.

        Returns:
            Seconds.
        """
        # The exponent is bounded: 2.0**1024 is an error, not infinity.
        longest = min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 64))
        return (error.retry_after_s or 0.0) + self.rng() * longest

    def call(
        self,
        fn: Callable[[], T],
        what: str,
        on_retry: Callable[[StoreError], None] | None = None,
    ) -> T:
        """Call a function until it succeeds, fails for good, or the retries are used up.

        Args:
            fn: What to do; one attempt a call. It begins anew each time (a file that it fills has
                to be rewound and truncated by it).
            what: What it does, for messages: "fetching s3://bucket/shard.00003.mds".
            on_retry: Told each error that is followed by another attempt, before the wait.

        Returns:
            What the function returns.

        Raises:
            StoreError: Of the last attempt's kind; if there were several attempts, its message
                has the reason of each. Other exceptions of the function pass through.
        """
        failures: list[StoreError] = []
        spare = 3 * self.retries if self.throttle_retries is None else self.throttle_retries
        retries, waited = self.retries, 0.0
        while True:
            try:
                return fn()
            except StoreError as error:
                failures.append(error)
                if isinstance(error, Throttled) and spare and self.retries:
                    spare -= 1
                else:
                    retries -= 1
                wait, note = self.wait_s(len(failures), error), ""
                final = retries < 0 or not error.retryable
                if not final and waited + wait > self.max_wait_s:
                    note = f"; waiting {wait:.1f} s more would pass {self.max_wait_s:.1f} s in all"
                elif final and len(failures) == 1:
                    raise
                if final or note:
                    raise self._last(failures, what, note) from error
                waited += wait
                logger.debug("%s: attempt %d: %s", what, len(failures), error)
                if on_retry is not None:
                    on_retry(error)
            self.sleep(wait)

    def _last(self, failures: list[StoreError], what: str, note: str) -> StoreError:
        reasons = "".join(f"\n  attempt {i}: {e}" for i, e in enumerate(failures, 1))
        return failures[-1].retold(f"{what} failed after {len(failures)} attempts{note}:{reasons}")
