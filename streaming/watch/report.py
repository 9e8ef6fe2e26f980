"""Tell now and then how a run goes: to a callback, or to the log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streaming.watch.diagnosis import Amounts, diagnose, spent, stages, starved_share

log = logging.getLogger("streaming")


@dataclass(frozen=True)
class Report:
    """What a rank and its workers did since the report before."""

    dataset: str
    node: int
    rank: int
    seconds: float
    """How long that was."""
    amounts: Amounts
    """What the counters of ``dataset.stats()`` have grown by."""
    totals: Amounts
    """The counters since the start; ``bytes_read`` grows when shards are closed and epochs end."""
    diagnosis: str | None
    """Why the trainer waits for data, if it does for more than 5 % of its time."""

    @property
    def samples_per_s(self) -> float:
        """Samples a second."""
        return self.amounts["samples"] / self.seconds

    @property
    def fetched_bytes_per_s(self) -> float:
        """Bytes a second that came from the store."""
        amounts = self.amounts
        return (amounts["bytes_fetched"] + amounts["bytes_fetched_by_range"]) / self.seconds

    @property
    def starved(self) -> float:
        """The share of its time that the trainer waited; 0 without a StreamingDataLoader."""
        return starved_share(self.amounts)

    @property
    def stages(self) -> dict[str, float]:
        """Shares of the workers' time, by what it went into; nothing if they did nothing."""
        seconds = stages(self.amounts)
        whole = sum(seconds.values())
        return {what: each / whole for what, each in seconds.items()} if whole else {}


class Reporter:
    """Reports how a rank's dataset goes, from a thread of its own, until it is closed.

    Args:
        dataset: A ``StreamingDataset``; the one of the rank's process, not a worker's copy.
        to: Called with each report. What it raises is logged, and the run goes on.
        every_s: Seconds between two reports.

    Raises:
        ValueError: If ``every_s`` is no time.

    Example:
        >>> import tempfile
        >>> from streaming import MDSWriter, StreamingDataset
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "int"}) as writer:
        ...     for x in range(8):
        ...         writer.write({"x": x})
        >>> dataset, reports = StreamingDataset(local=folder, batch_size=2), []
        >>> with Reporter(dataset, reports.append, every_s=60):
        ...     samples = list(dataset)
        >>> reports[-1].totals["samples"]
        8
    """

    def __init__(
        self, dataset: Any, to: Callable[[Report], None] | None = None, every_s: float = 30.0
    ) -> None:
        if not every_s > 0:
            raise ValueError(f"`every_s` is {every_s!r}: give the seconds between two reports.")
        self._dataset, self._every_s = dataset, every_s
        self._to = to_log if to is None else to
        self._before, self._before_s = self._totals(), time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streaming-reporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Report what has not been reported, and end."""
        if not self._ended.is_set():
            self._ended.set()
            if threading.current_thread() is self._thread:
                return  # called by what it reports to: that was the last report
            self._thread.join()
            self._report()

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            self._report()

    def _report(self) -> None:
        try:
            self._to(self._look())
        except Exception:
            log.exception("A report on a dataset could not be handed over; the run goes on.")

    def _totals(self) -> dict[str, int | float]:
        """The counters as far as they were handed over: readers are not this thread's to ask."""
        totals: dict[str, int | float] = self._dataset._counters.totals()
        return totals

    def _look(self) -> Report:
        totals, now_s = self._totals(), time.monotonic()
        amounts = spent(self._before, totals)
        workers = self._dataset._counters.by_worker()
        place = next(((each["node"], each["rank"]) for each in workers), (0, 0))
        report = Report(
            dataset=self._dataset._name(),
            node=place[0],
            rank=place[1],
            seconds=max(1e-9, now_s - self._before_s),
            amounts=amounts,
            totals=totals,
            diagnosis=diagnose(amounts, place[1], sum(each["worker"] >= 0 for each in workers)),
        )
        self._before, self._before_s = totals, now_s
        return report


def to_log(report: Report) -> None:
    """Write a report to the log, as one line at INFO."""
    order = sorted(report.stages.items(), key=lambda one: -one[1])
    spoken = ", ".join(f"{what} {share:.0%}" for what, share in order if share >= 0.01)
    log.info(
        "Rank %d, %s: %.0f samples/s, %.1f MB/s fetched, the trainer waited %.0f %% of its time; "
        "workers: %s.%s",
        report.rank,
        report.dataset,
        report.samples_per_s,
        report.fetched_bytes_per_s / 1e6,
        100 * report.starved,
        spoken or "idle",
        f" {report.diagnosis}" if report.diagnosis else "",
    )
