"""Small helpers that scripts import from here."""

from __future__ import annotations

import functools
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast, overload

from streaming.format.merge import merge_index
from streaming.units import bytes_to_int, get_list_arg, number_abbrev_to_int

__all__ = [
    "bytes_to_int",
    "clean_stale_shared_memory",
    "get_import_exception_message",
    "get_list_arg",
    "merge_index",
    "number_abbrev_to_int",
    "retry",
    "wait_for_file_to_exist",
]

F = TypeVar("F", bound=Callable[..., Any])


def wait_for_file_to_exist(
    filename: str, poll_interval: float, timeout: float, err_msg: str
) -> None:
    """Look for a file until it is there.

    Args:
        filename: The file's or folder's path.
        poll_interval: Seconds between two looks.
        timeout: Seconds after which to give up.
        err_msg: How the error begins.

    Raises:
        RuntimeError: If it is not there in time.

    Example:
        >>> wait_for_file_to_exist("/", 0.1, 1.0, "No root: ")
    """
    deadline = time.monotonic() + timeout
    while not os.path.exists(filename):
        left = deadline - time.monotonic()
        if left <= 0:
            raise RuntimeError(f"{err_msg} ({filename} was not there within {timeout:.3f} s)")
        time.sleep(min(poll_interval, left))


def clean_stale_shared_memory() -> None:
    """Do nothing: no shared memory here has a name, so that none can be left behind."""


def get_import_exception_message(package_name: str, extra_deps: str) -> str:
    """Say how to install a package that is missing.

    Args:
        package_name: The package that could not be imported.
        extra_deps: The extra of this distribution that brings it.

    Returns:
        The message.

    Example:
        >>> print(get_import_exception_message("brotli", "compression"))
        The package brotli is not installed; run: pip install 'shardstream[compression]'
    """
    return (
        f"The package {package_name} is not installed; run: pip install 'shardstream[{extra_deps}]'"
    )


@overload
def retry(exc_class: F) -> F: ...


@overload
def retry(
    exc_class: type[Exception] | Sequence[type[Exception]] = Exception,
    clean_up_fn: Callable[[], None] | None = None,
    num_attempts: int = 3,
    initial_backoff: float = 1.0,
    max_jitter: float = 0.5,
) -> Callable[[F], F]: ...


def retry(
    exc_class: Any = Exception,
    clean_up_fn: Callable[[], None] | None = None,
    num_attempts: int = 3,
    initial_backoff: float = 1.0,
    max_jitter: float = 0.5,
) -> Any:
    """Decorate a function to be called again when it fails.

    Between attempts n and n + 1 (n = 1, 2, …) it waits for `initial_backoff * 2**(n-1)` seconds and
    a part of `max_jitter`. It may be written with or without arguments.

    Args:
        exc_class: The exceptions that are worth another attempt, one class or several.
        clean_up_fn: Called after each attempt that failed, the last one included.
        num_attempts: Attempts in all.
        initial_backoff: Seconds to wait after the first failure.
        max_jitter: Most seconds to wait in addition, drawn at random.

    Returns:
        The decorator (or, used without arguments, the decorated function). The function raises
        what its last attempt raised.

    Raises:
        ValueError: If there are to be no attempts, or a wait is negative.

    Example:
        >>> calls = []
        >>> @retry(OSError, num_attempts=2, initial_backoff=0.0, max_jitter=0.0)
        ... def flaky():
        ...     calls.append(1)
        ...     if len(calls) == 1:
        ...         raise OSError("not yet")
        ...     return "done"
        >>> flaky(), len(calls)
        ('done', 2)
    """
    if callable(exc_class) and not isinstance(exc_class, type):
        return retry()(exc_class)
    if num_attempts < 1:
        raise ValueError(f"num_attempts is {num_attempts}; it must be 1 or more")
    if initial_backoff < 0 or max_jitter < 0:
        raise ValueError("initial_backoff and max_jitter are seconds and must not be negative")
    wanted = (exc_class,) if isinstance(exc_class, type) else tuple(exc_class)

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for attempt in range(1, num_attempts + 1):
                try:
                    return function(*args, **kwargs)
                except wanted:
                    if clean_up_fn is not None:
                        clean_up_fn()
                    if attempt == num_attempts:
                        raise
                # Not from the shared generator, which the caller may have seeded.
                jitter = random.SystemRandom().random() * max_jitter
                time.sleep(initial_backoff * 2.0 ** (attempt - 1) + jitter)
            raise AssertionError("the last attempt returns or raises")

        return cast(F, call)

    return decorate
