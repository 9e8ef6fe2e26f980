"""The counters of runs, for Prometheus to collect."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from streaming.format.errors import MissingExtraError
from streaming.stats import named
from streaming.watch.board import IN_RANK, Row
from streaming.watch.diagnosis import STAGES, TRAINER
from streaming.watch.machine import RunningDataset, running_datasets

if TYPE_CHECKING:
    from prometheus_client import Metric

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "Metrics need the package prometheus_client: pip install 'shardstream[metrics]'"
    ) from error

LABELS = ("dataset", "started", "pid", "node", "rank", "worker")
"""Ranks know their numbers only when an epoch begins: the process tells them apart before, since
Prometheus refuses all that it is told if two figures are called the same."""

_COUNTED = {
    "samples": ("samples", "Samples handed out."),
    "bytes_read": ("read_bytes", "Bytes of samples that were read."),
    "bytes_fetched": ("fetched_bytes", "Bytes of whole shards that came from the store."),
    "bytes_fetched_by_range": (
        "fetched_range_bytes",
        "Bytes of parts of shards that came from the store, for samples wanted at once.",
    ),
    "shards_fetched": ("fetched_shards", "Whole shards that came from the store."),
    "cache_hits": ("cache_hits", "Shards that were here when they were opened."),
    "evictions": ("evictions", "Shards that made way for others."),
    "retries": ("retries", "Requests to the store that were made again."),
    "decompressing_s": ("decompressing_seconds", "Work of decompressing shards."),
}
_SPENT = {counter: counter.removesuffix("_s") for counter in STAGES} | {
    "wait_s": "downloads",
    TRAINER: "trainer",
}
_TRAINER = {"starved_s": "waiting", "training_s": "training"}


class PrometheusCollector(Collector):
    """Gives Prometheus the counters of a rank and its workers, read whenever it asks.

    Every rank's process has to be asked for its own. ``shardstream metrics`` tells of all datasets
    that are open on a machine, without the runs being prepared for it.

    Args:
        dataset: A ``StreamingDataset``; the one of the rank's process, not a worker's copy. None
            for all datasets that processes of this user have open on this machine (on Linux only).

    Raises:
        OSError: If what is open on this machine was asked for, and this system does not tell.

    Example:
        >>> import tempfile
        >>> from prometheus_client import CollectorRegistry
        >>> from streaming import MDSWriter, StreamingDataset
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "int"}) as writer:
        ...     for x in range(8):
        ...         writer.write({"x": x})
        >>> dataset = StreamingDataset(local=folder, batch_size=2)
        >>> registry = CollectorRegistry()
        >>> registry.register(PrometheusCollector(dataset))
        >>> samples = list(dataset)
        >>> [each.value for metric in registry.collect() for each in metric.samples
        ...     if each.name == "shardstream_samples_total"]
        [8]
    """

    def __init__(self, dataset: Any = None) -> None:
        self._dataset = dataset
        if dataset is None:
            running_datasets()  # says at once if that can't be done here

    def describe(self) -> Iterable[Metric]:
        """Names of the metrics; there need not be a run yet."""
        return _metrics([])

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        if self._dataset is None:
            yield from _metrics(running_datasets())
        else:
            yield from _metrics([_open_here(self._dataset)])


def _open_here(dataset: Any) -> RunningDataset:
    counters = dataset._counters
    return RunningDataset(0, counters.run.dataset, counters.run.started_s, counters.rows())


def _metrics(runs: list[RunningDataset]) -> list[Metric]:
    workers = [(_labels(run, row), row, named(row.counters)) for run in runs for row in run.rows]
    metrics: list[Metric] = []
    for counter, (name, said) in _COUNTED.items():
        family = CounterMetricFamily(f"shardstream_{name}", said, labels=LABELS)
        for labels, _, amounts in workers:
            family.add_metric(labels, amounts[counter])
        metrics.append(family)
    said = "Time of workers, by what they were at work with or waited for."
    metrics.append(_split("worker_seconds", said, "stage", _SPENT, workers))
    said = "Time of trainers with a StreamingDataLoader: at work, or waiting for a batch."
    ranks = [each for each in workers if each[1].worker == IN_RANK]
    metrics.append(_split("trainer_seconds", said, "state", _TRAINER, ranks))
    return [*metrics, *_gauges(workers)]


_Worker = tuple[tuple[str, ...], Row, dict[str, int | float]]


def _split(
    name: str, said: str, label: str, parts: dict[str, str], workers: list[_Worker]
) -> Metric:
    family = CounterMetricFamily(f"shardstream_{name}", said, labels=(*LABELS, label))
    for labels, _, amounts in workers:
        for counter, part in parts.items():
            family.add_metric((*labels, part), amounts[counter])
    return family


def _gauges(workers: list[_Worker]) -> Iterator[Metric]:
    now_s = time.time()
    epoch = GaugeMetricFamily("shardstream_epoch", "The epoch that is read.", labels=LABELS)
    waiting = GaugeMetricFamily(
        "shardstream_waiting_seconds",
        "For how long a worker has been waiting for data by now; 0 if it is not.",
        labels=LABELS,
    )
    for labels, row, _ in workers:
        epoch.add_metric(labels, row.epoch)
        waiting.add_metric(labels, max(0.0, now_s - row.waits_since_s) if row.waits_for else 0.0)
    yield epoch
    yield waiting


def _labels(run: RunningDataset, row: Row) -> tuple[str, ...]:
    worker = "" if row.worker == IN_RANK else str(row.worker)
    started = f"{run.started_s:.6f}"
    return run.dataset, started, str(row.owner), str(row.node), str(row.rank), worker
