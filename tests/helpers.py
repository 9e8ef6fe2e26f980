"""What several rooms' tests share."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LIMIT_S = 30.0
"""How long a test waits for something that should come at once."""


def in_thread(fn: Callable[[], T]) -> Callable[[], T]:
    """Start a function in a thread; calling the result waits for what it returns."""
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(fn()), daemon=True)
    thread.start()

    def result() -> T:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "the thread hangs"
        return results[0]

    return result
