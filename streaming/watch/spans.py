"""What happens when: spans of time, for PyTorch's profiler and for trace files.

Where neither is on, a span costs a call that looks at two variables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any, TypeVar

from streaming.watch.trace_file import Lanes, Row, Trace

T = TypeVar("T")

VARIABLE = "STREAMING_TRACE"
"""The environment variable with the file that this process and its workers write a trace to."""

_NOTHING: AbstractContextManager[None] = nullcontext()
_NO_MORE: Any = object()
_modules = sys.modules

_now: Trace | None = None


@contextmanager
def trace(path: str | os.PathLike[str]) -> Iterator[None]:
    """Write what happens during the block, in this process and the workers that it starts.

    The file shows, for https://ui.perfetto.dev, what each worker read, decoded, collated and waited
    for, what each connection fetched, and when the trainer had its batches. For all of a program,
    on all its ranks, set the environment variable ``STREAMING_TRACE`` to a file instead.

    Args:
        path: The file; one that is there is replaced.

    Raises:
        OSError: If it can't be written to.

    Example:
        >>> import tempfile
        >>> from streaming import MDSWriter, StreamingDataset, StreamingDataLoader
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "int"}) as writer:
        ...     for x in range(8):
        ...         writer.write({"x": x})
        >>> dataset = StreamingDataset(local=folder, batch_size=2)
        >>> with trace(f"{folder}/trace.json"):
        ...     batches = list(StreamingDataLoader(dataset, batch_size=2))
        >>> "make batch" in open(f"{folder}/trace.json").read()
        True
    """
    Path(path).unlink(missing_ok=True)
    before = traced_to()
    write_to(os.fspath(path))
    try:
        yield
    finally:
        write_to(before)


def is_profiling() -> bool:
    """Whether PyTorch's profiler is on in this process."""
    return getattr(_modules.get("torch.autograd.profiler"), "_is_profiler_enabled", False)


def are_on() -> bool:
    """Whether anybody sees spans; where every nanosecond counts, they are left out otherwise."""
    if _now is not None:
        return True
    # As in `is_profiling`; a call costs as much as the rest.
    return getattr(_modules.get("torch.autograd.profiler"), "_is_profiler_enabled", False)


def span(name: str, lanes: Lanes | None = None, **about: Any) -> AbstractContextManager[None]:
    """The time of a block.

    Args:
        name: What happens in it; it is one of a few names.
        lanes: Where to show it, for threads that come and go; else the thread has a row of its own.
        about: What else there is to tell of this one.
    """
    return _Span(name, lanes, about) if are_on() else _NOTHING


def each(name: str, items: Iterator[T]) -> Iterator[T]:
    """Items, with a span for the time that each takes."""
    return _each(name, items) if are_on() else items


def together(name: str, items: Iterator[T], count: int) -> Iterator[T]:
    """Items that take little time each: in a trace, one span from the first to the last of them.

    Args:
        name: What making them is called.
        items: The items.
        count: How many there are.
    """
    if is_profiling():
        return _each(name, items)
    return items if _now is None else _together(name, items, count)


def record(name: str, begun: int, ended: int, **about: Any) -> None:
    """Add to the trace what has happened in this thread, by times of ``perf_counter_ns``."""
    now = _now  # another thread may end it meanwhile
    if now is not None:
        now.add(name, begun, ended, about)


def name_process(rank: int, worker: int) -> None:
    """Say in the trace which worker of which rank this process is; or -1, the rank itself."""
    now = _now
    if now is not None:
        name = f"rank {rank}" if worker < 0 else f"rank {rank}, worker {worker}"
        now.name_process(name, 1000 * rank + worker + 1)


def flush() -> None:
    """Write what was added to the trace."""
    now = _now
    if now is not None:
        now.flush()


def traced_to() -> str | None:
    """The file of the trace that this process writes, for its workers to write to as well."""
    now = _now
    return None if now is None else now.path


def write_to(path: str | None) -> None:
    """Write a trace to a file from now on, behind what is in it; None to end that."""
    global _now
    if path is not None and os.path.abspath(path) == traced_to():
        return
    before, _now = _now, None if path is None else Trace(path)
    if before is not None:
        before.close()


class _Span:
    """The time of a block."""

    __slots__ = ("_about", "_begun", "_lanes", "_name", "_profiled", "_row_before")

    def __init__(self, name: str, lanes: Lanes | None, about: dict[str, Any]) -> None:
        self._name, self._lanes, self._about = name, lanes, about
        self._begun = 0
        self._row_before: Row | None = None
        self._profiled: Any = None

    def __enter__(self) -> None:
        if self._lanes is not None:
            self._row_before = self._lanes.enter()
        if is_profiling():
            from torch.autograd import profiler

            self._profiled = profiler.record_function(f"streaming: {self._name}")
            self._profiled.__enter__()
        self._begun = perf_counter_ns()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ended = perf_counter_ns()
        if self._profiled is not None:
            self._profiled.__exit__(kind, error, traceback)
        if error is not None:
            self._about["error"] = repr(error)
        record(self._name, self._begun, ended, **self._about)
        if error is not None:
            flush()  # who knows how this process goes on
        if self._lanes is not None:
            self._lanes.leave(self._row_before)


def _each(name: str, items: Iterator[T]) -> Iterator[T]:
    while True:
        with span(name):
            item = next(items, _NO_MORE)
        if item is _NO_MORE:
            return
        yield item


def _together(name: str, items: Iterator[T], count: int) -> Iterator[T]:
    begun = perf_counter_ns()
    for number, item in enumerate(items, 1):
        if number == count:
            record(name, begun, perf_counter_ns(), samples=count)
        yield item


def _begin() -> None:
    path = os.environ.get(VARIABLE)
    if path:
        try:
            write_to(path)
        except OSError as error:
            raise OSError(
                f"No trace can be written to {path}, as {VARIABLE} asks: {error}"
            ) from error


_begin()
