"""Where the time of a run goes, as `stats()` tells it."""

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from torch import distributed
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader, StreamingDataset
from streaming.epochs import EpochBoard
from streaming.stats import Counters
from streaming.stopwatch import Demand
from tests.chaos.ranks import serving
from tests.data import write_numbers
from tests.servers.proxy import Fault

SAMPLES = 120
PAUSE_S = 0.005


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("data") / "remote", SAMPLES, compression="zstd")


class Pausing(StreamingDataset):
    """A dataset whose own code takes a while for each sample."""

    def __getitem__(self, at: Any) -> Any:
        time.sleep(PAUSE_S)
        return super().__getitem__(at)


def pausing(batch: Any) -> Any:
    time.sleep(4 * PAUSE_S)
    return batch


def run(loader: Any) -> dict[str, float]:
    assert sum(len(batch["id"]) for batch in loader) == SAMPLES
    return loader.dataset.stats()  # type: ignore[no-any-return]


WORKERS = [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"}]


@pytest.mark.parametrize("workers", WORKERS)
def test_own_code_of_samples(remote: Path, tmp_path: Path, workers: dict[str, Any]) -> None:
    dataset = Pausing(remote=str(remote), local=str(tmp_path), batch_size=4)
    stats = run(StreamingDataLoader(dataset, batch_size=4, **workers))
    assert stats["user_code_s"] >= SAMPLES * PAUSE_S
    assert stats["user_code_s"] > stats["reading_s"] > 0
    assert stats["decoding_s"] > 0
    assert stats["collating_s"] > 0
    assert stats["planning_s"] > 0
    assert stats["decompressing_s"] > 0
    assert stats["starved_s"] > SAMPLES * PAUSE_S / 2 - PAUSE_S * 8


def test_the_rest_goes_by_the_sample_that_was_timed_last(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.stopwatch.PROBE_NS", 10**15)
    dataset = Pausing(remote=str(remote), local=str(tmp_path), batch_size=4)
    assert run(DataLoader(dataset, batch_size=4))["user_code_s"] >= SAMPLES * PAUSE_S


def test_an_iteration_that_is_left_waits_for_no_trainer(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.stopwatch.PROBE_NS", 10**15)
    dataset = StreamingDataset(remote=str(remote), local=str(tmp_path), batch_size=4)
    samples: Any = iter(dataset)
    for _ in range(9):
        next(samples)
    left_s = 40 * PAUSE_S
    time.sleep(left_s)
    samples.close()
    stats = dataset.stats()
    assert stats["reading_s"] > 0
    assert stats["trainer_s"] < left_s


def test_an_iteration_that_is_left_takes_nothing_from_the_next() -> None:
    counters = Counters(EpochBoard())
    demand = Demand(counters, workers=0)
    demand.waited(1_000_000, 9_000_000)
    demand.waited(10_000_000, 11_000_000)
    demand.restart()
    demand.waited(2_000_000_000, 2_001_000_000)
    demand.hand_over()
    totals = counters.totals()
    assert totals["starved_s"] == pytest.approx(0.010)
    assert totals["training_s"] == pytest.approx(0.001)


@pytest.mark.parametrize("workers", WORKERS)
def test_own_code_of_batches(remote: Path, tmp_path: Path, workers: dict[str, Any]) -> None:
    dataset = StreamingDataset(remote=str(remote), local=str(tmp_path), batch_size=4)
    loader = StreamingDataLoader(dataset, batch_size=4, batch_transform=pausing, **workers)
    stats = run(loader)
    assert stats["user_code_s"] >= SAMPLES * PAUSE_S
    assert stats["collating_s"] > 0
    assert stats["reading_s"] > 0


def test_a_plain_loader_tells_of_its_samples(remote: Path, tmp_path: Path) -> None:
    dataset = Pausing(remote=str(remote), local=str(tmp_path), batch_size=4)
    stats = run(DataLoader(dataset, batch_size=4))
    assert stats["user_code_s"] >= SAMPLES * PAUSE_S
    assert stats["starved_s"] == stats["training_s"] == 0


@pytest.mark.parametrize("kind", [StreamingDataset, Pausing])
def test_a_slow_trainer_is_waited_for(remote: Path, tmp_path: Path, kind: Any) -> None:
    dataset = kind(remote=str(remote), local=str(tmp_path), batch_size=4)
    loader = StreamingDataLoader(dataset, batch_size=4)
    for _ in loader:
        time.sleep(4 * PAUSE_S)
    stats = dataset.stats()
    least = (SAMPLES / 4 - 1) * 4 * PAUSE_S
    assert stats["training_s"] >= least
    assert stats["trainer_s"] >= 0.7 * least


def test_waits_for_downloads(remote: Path, tmp_path: Path) -> None:
    with serving(remote) as proxy:
        proxy.add(Fault(key="shard", delay_s=0.1))
        dataset = StreamingDataset(remote=proxy.url, local=str(tmp_path), batch_size=4)
        stats = run(StreamingDataLoader(dataset, batch_size=4))
    assert stats["wait_s"] >= 0.1
    assert stats["reading_s"] < stats["wait_s"]


def test_each_worker_tells_its_own(remote: Path, tmp_path: Path) -> None:
    dataset = StreamingDataset(remote=str(remote), local=str(tmp_path), batch_size=4)
    run(StreamingDataLoader(dataset, batch_size=4, num_workers=2))
    own, *workers = dataset.stats(by="worker")
    assert own["worker"] == -1
    assert own["starved_s"] > 0
    assert [each["worker"] for each in workers] == [0, 1]
    assert [each["samples"] for each in workers] == [SAMPLES / 2] * 2
    assert len({each["pid"] for each in (own, *workers)}) == 3
    assert all(each["waits_for"] == "" for each in workers)


def test_ranks_and_nodes(remote: Path, tmp_path: Path) -> None:
    dataset = StreamingDataset(local=str(remote), batch_size=4)
    assert len(list(dataset)) == SAMPLES
    for by in ("rank", "node"):
        (alone,) = dataset.stats(by=by)
        assert alone["samples"] == SAMPLES
    distributed.init_process_group("gloo", f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        (rank,) = dataset.stats(by="rank")
        (node,) = dataset.stats(by="node")
    finally:
        distributed.destroy_process_group()
    assert (rank["node"], rank["rank"], rank["samples"]) == (0, 0, SAMPLES)
    assert (node["node"], node["samples"]) == (0, SAMPLES)
    with pytest.raises(ValueError, match=r"'worker', 'rank' or 'node'"):
        dataset.stats(by="cluster")


def test_a_starved_trainer_is_told_why(
    remote: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("streaming.stopwatch.FIRST_LOOK_S", 0.1)
    loader = StreamingDataLoader(Pausing(local=str(remote), batch_size=4), batch_size=4)
    with caplog.at_level(logging.WARNING, "streaming"):
        run(loader)
    line = next(line for line in caplog.messages if "starved" in line)
    assert "rank 0 waits for your own code" in line
    assert "num_workers" in line
