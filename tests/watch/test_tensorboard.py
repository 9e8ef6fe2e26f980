"""Reports as curves of TensorBoard."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from streaming import StreamingDataLoader, StreamingDataset
from streaming.format.errors import MissingExtraError
from streaming.watch import Report, Reporter, TensorBoardReports
from tests.data import write_numbers

SAMPLES = 60


@pytest.fixture
def dataset(tmp_path: Path) -> StreamingDataset:
    remote = write_numbers(tmp_path / "remote", SAMPLES)
    return StreamingDataset(remote=str(remote), local=str(tmp_path / "local"), batch_size=4)


def curves(folder: Path) -> Any:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def test_curves_of_a_run(dataset: StreamingDataset, tmp_path: Path) -> None:
    reports: list[Report] = []
    write = TensorBoardReports(tmp_path / "runs")

    def both(report: Report) -> None:
        reports.append(report)
        write(report)

    with Reporter(dataset, both, every_s=3600):
        for _ in StreamingDataLoader(dataset, batch_size=4):
            pass
    events = curves(tmp_path / "runs")
    (point,) = events.Scalars("data/samples_per_s")
    assert point.step == SAMPLES
    assert point.value == pytest.approx(reports[-1].samples_per_s, rel=1e-5)
    (waits,) = events.Scalars("data/trainer_waits")
    assert waits.value == pytest.approx(reports[-1].starved, rel=1e-5)
    assert {"data/workers/reading", "data/workers/downloads"} <= set(events.Tags()["scalars"])
    shares = [events.Scalars(f"data/workers/{stage}")[0].value for stage in reports[-1].stages]
    assert sum(shares) == pytest.approx(1, rel=1e-4)


def test_a_writer_a_step_and_a_prefix_of_ones_own(tmp_path: Path) -> None:
    amounts = {"samples": 10, "bytes_fetched": 5_000_000, "bytes_fetched_by_range": 0}
    amounts |= {"starved_s": 5.0, "training_s": 5.0, "wait_s": 5.0}
    report = Report("s3://data", 0, 1, 10.0, amounts, amounts, "rank 1 waits")
    steps = iter([100, 200])
    with SummaryWriter(str(tmp_path)) as writer:
        write = TensorBoardReports(writer, step=lambda: next(steps), prefix="eval")
        write(report)
        write(report)
    events = curves(tmp_path)
    assert [(each.step, each.value) for each in events.Scalars("eval/fetched_MB_per_s")] == [
        (100, 0.5),
        (200, 0.5),
    ]
    assert events.Scalars("eval/trainer_waits")[0].value == 0.5
    assert events.Scalars("eval/workers/downloads")[0].value == 1
    (said, _) = events.Tensors("eval/diagnosis/text_summary")
    assert said.tensor_proto.string_val[0] == b"rank 1 waits"


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'shardstream\[tensorboard\]'"):
        TensorBoardReports(tmp_path)
