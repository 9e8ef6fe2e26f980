"""How far a command is, shown to whoever sits before a terminal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Watch"]


class Watch:
    """Shows a bar on the error output for each kind of work, made at its first step.

    It is called from several threads.

    Example:
        >>> from io import StringIO
        >>> from rich.console import Console
        >>> watch = Watch(Console(file=StringIO(), force_terminal=True))
        >>> for _ in range(3):
        ...     watch("shards verified", 3)
        >>> watch.done
        {'shards verified': 3}
    """

    def __init__(self, console: object = None) -> None:
        self.done: dict[str, int] = {}
        self._console = console
        self._bars: dict[str, TaskID] = {}
        self._progress: Progress | None = None
        self._lock = threading.Lock()

    def __call__(self, what: str, total: int) -> None:
        """Note one more step.

        Args:
            what: The kind of work.
            total: How many steps it has.
        """
        with self._lock:
            self.done[what] = self.done.get(what, 0) + 1
            progress = self._open()
            if what not in self._bars:
                self._bars[what] = progress.add_task(what, total=total)
            progress.advance(self._bars[what])
            if all(task.finished for task in progress.tasks):
                progress.stop()
                self._progress, self._bars = None, {}

    def close(self) -> None:
        """Leave the terminal as it was, if work ended before all of it was done."""
        with self._lock:
            if self._progress is not None:
                self._progress.stop()
                self._progress, self._bars = None, {}

    def _open(self) -> Progress:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            console = self._console if isinstance(self._console, Console) else Console(stderr=True)
            self._progress = Progress(
                *columns, TimeRemainingColumn(), console=console, transient=True
            )
            self._progress.start()
        return self._progress
