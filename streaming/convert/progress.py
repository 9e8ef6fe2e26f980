"""How far a conversion is: counted in the process that called it, shown as a bar."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streaming.convert.job import PartReport
from streaming.convert.source import Part

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["BarWatch", "Watch"]


class Watch:
    """Counts what engines tell it. Not for several threads at once.

    Args:
        parts: What there is to do.

    Example:
        >>> watch = Watch([Part(0, "a", rows=10, bytes=100), Part(1, "b", rows=10, bytes=100)])
        >>> watch.tick(0, 5, 1)
        >>> watch.rows, watch.failures, watch.bytes
        (5, 1, 50)
        >>> watch.restart(0)
        >>> watch.rows
        0
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = {part.number: part for part in parts}
        self.total_bytes = sum(part.bytes for part in parts)
        self.rows = 0
        self.failures = 0
        self.bytes = 0
        """Of the source; of parts under way, an estimate."""
        self.finished = 0
        self._begun: dict[int, tuple[int, int, int]] = {}  # rows, failures, bytes of each part
        self._known = [0, 0]  # rows and bytes of finished parts, for estimates

    def tick(self, number: int, rows: int, failures: int) -> None:
        """Note that more rows of a part are done.

        Args:
            number: The part's number.
            rows: How many more.
            failures: How many more samples have failed.
        """
        had = self._begun.get(number, (0, 0, 0))
        now_rows = had[0] + rows
        self._set(number, (now_rows, had[1] + failures, self._estimate(number, now_rows)))

    def restart(self, number: int) -> None:
        """Note that a part is begun anew."""
        self._set(number, (0, 0, 0))

    def done(self, report: PartReport) -> None:
        """Note that a part is finished."""
        part = self.parts.get(report.number)
        size = part.bytes if part is not None else report.bytes
        self._known[0] += report.rows
        self._known[1] += size
        self.finished += 1
        self._set(report.number, (report.rows, report.failures, size))
        self._begun.pop(report.number)

    def close(self) -> None:
        """Leave the screen as it should be."""

    def _estimate(self, number: int, rows: int) -> int:
        part = self.parts.get(number)
        if part is None:
            return 0
        if part.rows:
            return min(part.bytes, part.bytes * rows // part.rows)
        known_rows, known_bytes = self._known
        return min(part.bytes, rows * known_bytes // known_rows) if known_rows else 0

    def _set(self, number: int, now: tuple[int, int, int]) -> None:
        had = self._begun.get(number, (0, 0, 0))
        self._begun[number] = now
        self.rows += now[0] - had[0]
        self.failures += now[1] - had[1]
        self.bytes += now[2] - had[2]
        self.show()

    def show(self) -> None:
        """Show where it stands; called at each change."""


class BarWatch(Watch):
    """Shows a bar: bytes of the source, rate, remaining time; rows, parts and failures beside it.

    In a notebook it is the notebook's own kind of bar; where nobody sits before a terminal, a line
    every ten seconds.

    Args:
        parts: What there is to do.
        file: Where to; the error output unless given.
    """

    def __init__(self, parts: Sequence[Part], file: Any = None) -> None:
        super().__init__(parts)
        self._bar = self._make(file)
        self._begin = time.monotonic()
        self._shown = 0.0

    def _make(self, file: Any) -> tqdm[Any]:
        notebook = file is None and "ipykernel" in sys.modules
        # The notebook's own kind of bar needs widgets; without them, a notebook shows text.
        widgets = notebook and importlib.util.find_spec("ipywidgets") is not None
        bars = importlib.import_module("tqdm.notebook" if widgets else "tqdm")
        stream = file if file is not None else sys.stderr
        watched = notebook or bool(getattr(stream, "isatty", lambda: False)())
        if self.total_bytes:
            counted: dict[str, Any] = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
        else:
            counted = {"unit": " rows", "unit_scale": True}
        bar: tqdm[Any] = bars.tqdm(
            desc="Converting",
            total=self.total_bytes or None,
            mininterval=0.2 if watched else 10.0,
            file=None if widgets else stream,
            **counted,
        )
        return bar

    def show(self) -> None:
        """Show it, but not more often than it can be read."""
        now = self.bytes if self.total_bytes else self.rows
        self._bar.n = min(now, self._bar.total) if self._bar.total else now
        seconds = time.monotonic()
        if seconds - self._shown >= self._bar.mininterval:
            self._shown = seconds
            self._bar.set_postfix_str(self._words(), refresh=False)
            self._bar.refresh()

    def _words(self) -> str:
        rate = self.rows / max(time.monotonic() - self._begin, 1e-6)
        return (
            f"{self.rows:,} rows, {rate:,.0f}/s, parts {self.finished}/{len(self.parts)}, "
            f"failures {self.failures}"
        )

    def close(self) -> None:
        """Show where it ended."""
        self._bar.set_postfix_str(self._words(), refresh=False)
        self._bar.refresh()
        self._bar.close()
