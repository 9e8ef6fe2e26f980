"""The counters of runs as Prometheus sees them."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streaming import StreamingDataLoader, StreamingDataset
from streaming.watch import PrometheusCollector
from streaming.watch.board import IN_RANK, RunBoard
from streaming.watch.machine import RunningDataset
from tests.data import write_numbers

SAMPLES = 120


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("data") / "remote", SAMPLES)


def dataset_of(remote: Path, local: Path) -> StreamingDataset:
    return StreamingDataset(remote=str(remote), local=str(local), batch_size=4)


def collected(collector: Any) -> list[Any]:
    """The samples that a server of metrics would be told."""
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    return [each for family in text_string_to_metric_families(text) for each in family.samples]


def total(samples: list[Any], name: str, **labels: str) -> float:
    found = [
        each.value
        for each in samples
        if each.name == f"shardstream_{name}" and labels.items() <= each.labels.items()
    ]
    assert found, (name, labels)
    return sum(found)


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"}]
)
def test_a_dataset(remote: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    dataset = dataset_of(remote, tmp_path / "local")
    for epoch in range(2):
        for _ in StreamingDataLoader(dataset, batch_size=4, **options):
            pass
        samples = collected(PrometheusCollector(dataset))
        assert total(samples, "samples_total", dataset=str(remote)) == SAMPLES * (epoch + 1)
    stats = dataset.stats()
    assert total(samples, "fetched_shards_total") == stats["shards_fetched"] > 0
    assert total(samples, "fetched_bytes_total") == stats["bytes_fetched"]
    assert total(samples, "read_bytes_total") == stats["bytes_read"]
    for stage, counter in {"downloads": "wait_s", "reading": "reading_s"}.items():
        seconds = total(samples, "worker_seconds_total", stage=stage)
        assert seconds == pytest.approx(stats[counter])
    waiting = total(samples, "trainer_seconds_total", state="waiting")
    assert waiting == pytest.approx(stats["starved_s"])
    workers = {each.labels["worker"] for each in samples if each.name.endswith("samples_total")}
    assert workers == ({"", "0", "1"} if options else {""})
    epochs = {each.value for each in samples if each.name == "shardstream_epoch"}
    assert epochs == {1}
    assert total(samples, "waiting_seconds") == 0


def test_every_name_and_label_is_one_of_prometheus(remote: Path, tmp_path: Path) -> None:
    dataset = dataset_of(remote, tmp_path / "local")
    list(dataset)
    for each in collected(PrometheusCollector(dataset)):
        assert re.fullmatch("shardstream_[a-z_]+", each.name)
        assert {"dataset", "started", "pid", "node", "rank", "worker"} <= set(each.labels)


def test_ranks_that_have_not_begun_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their boards may have been made at the same moment, and both say that they are rank 0."""
    boards = [RunBoard("s3://bucket/data") for _ in range(2)]
    for owner, board in enumerate(boards, 1):
        board.add(owner, IN_RANK, {0: owner})
    runs = [RunningDataset(n, each.dataset, 7.0, each.rows()) for n, each in enumerate(boards)]
    monkeypatch.setattr("streaming.watch.prometheus.running_datasets", lambda: runs)
    samples = [each for each in collected(PrometheusCollector()) if "samples" in each.name]
    assert sorted(each.value for each in samples) == [1, 2]
    assert len({tuple(sorted(each.labels.items())) for each in samples}) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="runs are found on Linux only")
def test_all_that_runs_here(remote: Path, tmp_path: Path) -> None:
    """Two datasets of the same data are told apart."""
    before, own = PrometheusCollector(), str(remote)
    datasets = [dataset_of(remote, tmp_path / name) for name in "ab"]
    for dataset in datasets:
        list(dataset)
        dataset.stats()
    seen = [
        each
        for each in collected(before)
        if each.name == "shardstream_samples_total" and each.labels["dataset"] == own
    ]
    here = {f"{dataset._counters.run.started_s:.6f}" for dataset in datasets}
    values = [each.value for each in seen if each.labels["started"] in here]
    assert values == [SAMPLES, SAMPLES]


@pytest.mark.skipif(sys.platform == "linux", reason="Linux tells what runs")
def test_where_the_system_does_not_tell_what_runs() -> None:
    with pytest.raises(OSError, match="on Linux only"):
        PrometheusCollector()


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from streaming.format.errors import MissingExtraError

    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    monkeypatch.delitem(sys.modules, "streaming.watch.prometheus")
    with pytest.raises(MissingExtraError, match=r"pip install 'shardstream\[metrics\]'"):
        import streaming.watch.prometheus  # noqa: F401
