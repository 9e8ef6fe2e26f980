"""Reports on how a run goes, handed to a callback or the log."""

import logging
import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from streaming import StreamingDataLoader, StreamingDataset
from streaming.watch.report import Report, Reporter
from tests.data import write_numbers

SAMPLES = 60
LIMIT_S = 30
LATER_S = 3600.0


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("data") / "remote", SAMPLES)


def dataset_of(remote: Path, local: Path) -> StreamingDataset:
    return StreamingDataset(remote=str(remote), local=str(local), batch_size=4)


def read(dataset: Any, **options: Any) -> None:
    loader = StreamingDataLoader(dataset, batch_size=4, **options)
    assert sum(len(batch["id"]) for batch in loader) == SAMPLES


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"}]
)
def test_the_last_report_tells_all(remote: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    dataset = dataset_of(remote, tmp_path)
    reports: list[Report] = []
    with Reporter(dataset, reports.append, every_s=LATER_S):
        read(dataset, **options)
    (report,) = reports
    assert report.dataset == str(remote)
    assert (report.node, report.rank) == (0, 0)
    assert report.totals["samples"] == report.amounts["samples"] == SAMPLES
    assert report.samples_per_s == pytest.approx(SAMPLES / report.seconds)
    assert report.fetched_bytes_per_s > 0
    assert 0 < report.starved <= 1
    assert sum(report.stages.values()) == pytest.approx(1)


def test_each_report_tells_what_is_new(remote: Path, tmp_path: Path) -> None:
    dataset = dataset_of(remote, tmp_path)
    reports: queue.Queue[Report] = queue.Queue()
    seen: list[Report] = []
    with Reporter(dataset, reports.put, every_s=0.01):
        for epoch in (1, 2):
            read(dataset)
            while sum(each.amounts["samples"] for each in seen) < epoch * SAMPLES:
                seen.append(reports.get(timeout=LIMIT_S))
    assert seen[-1].totals["samples"] == 2 * SAMPLES
    assert len(seen) > 1


def test_a_callback_that_fails_does_not_end_the_run(
    remote: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset, called = dataset_of(remote, tmp_path), threading.Semaphore(0)

    def failing(report: Report) -> None:
        called.release()
        raise RuntimeError("no room for figures")

    with Reporter(dataset, failing, every_s=0.01):
        for _ in range(2):
            assert called.acquire(timeout=LIMIT_S)
        read(dataset)
    assert "no room for figures" in caplog.text


def test_the_log(remote: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = dataset_of(remote, tmp_path)
    with caplog.at_level(logging.INFO, "streaming"), Reporter(dataset, every_s=LATER_S):
        read(dataset)
    (line,) = (line for line in caplog.messages if "samples/s" in line)
    assert line.startswith(f"Rank 0, {remote}: ")
    assert "the trainer waited" in line


def test_it_ends_once_and_no_thread_is_left(remote: Path, tmp_path: Path) -> None:
    reports: list[Report] = []
    reporter = Reporter(dataset_of(remote, tmp_path), reports.append, every_s=LATER_S)
    reporter.close()
    reporter.close()
    assert len(reports) == 1
    assert reports[0].stages == {}
    assert "streaming-reporter" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("every_s", [0, -1, float("nan")])
def test_times_that_make_no_sense(remote: Path, tmp_path: Path, every_s: float) -> None:
    with pytest.raises(ValueError, match="every_s"):
        Reporter(dataset_of(remote, tmp_path), every_s=every_s)


def test_a_callback_may_close_its_reporter(remote: Path, tmp_path: Path, caplog: Any) -> None:
    closed = threading.Event()

    def close(report: Report) -> None:
        reporter.close()
        closed.set()

    reporter = Reporter(dataset_of(remote, tmp_path), close, every_s=0.01)
    assert closed.wait(LIMIT_S)
    reporter._thread.join(LIMIT_S)
    assert not reporter._thread.is_alive()
    assert not [record for record in caplog.records if record.exc_info]
