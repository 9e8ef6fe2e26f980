"""What `stats()` counts and the log tells, with ranks and workers."""

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader, StreamingDataset
from tests.chaos.conftest import SAMPLES
from tests.chaos.ranks import Job, running

SAMPLE_BYTES = 4 + 8 + 100
"""The size of the text, the number, the text."""


@pytest.mark.parametrize("kind", [DataLoader, StreamingDataLoader])
@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_counted(remote: Path, tmp_path: Path, workers: int, kind: Any) -> None:
    dataset = StreamingDataset(remote=str(remote), local=str(tmp_path / "local"), batch_size=4)
    assert dataset[0]["id"] == 0
    fetched = sum(path.stat().st_size for path in remote.glob("shard.*"))
    for epoch in (1, 2):
        assert len(list(kind(dataset, batch_size=4, num_workers=workers))) == SAMPLES // 4
        stats = dataset.stats()
        assert stats["samples"] == epoch * SAMPLES
        least = (epoch * SAMPLES + 1) * SAMPLE_BYTES
        if kind is DataLoader:
            assert stats["bytes_read"] == least
        else:  # which looks at a few samples before it makes batches by column
            assert least <= stats["bytes_read"] < 1.2 * least
        assert stats["bytes_fetched"] == fetched
        assert stats["shards_fetched"] == dataset.num_shards
        assert stats["evictions"] == stats["retries"] == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_tell_of_each_epoch_in_two_lines(remote: Path, tmp_path: Path, workers: int) -> None:
    logs = [tmp_path / f"log{rank}" for rank in range(2)]
    jobs = [
        Job(
            *(str(remote), str(tmp_path / "local"), rank, 2),
            epochs=2,
            workers=workers,
            log=str(log),
        )
        for rank, log in enumerate(logs)
    ]
    with running(*jobs) as ranks:
        fetched = [rank.wait_for("stats")["shards_fetched"] for rank in ranks]
        assert [rank.join() for rank in ranks] == [0, 0]
    assert sum(fetched) == len(list(remote.glob("shard.*")))
    for rank, log in enumerate(logs):
        lines = [line for line in log.read_text().splitlines() if line.startswith("INFO:streaming")]
        assert len(lines) == 4
        for epoch in range(2):
            assert lines[2 * epoch] == f"INFO:streaming:Rank {rank} begins epoch {epoch}."
            ended = f"INFO:streaming:Rank {rank} has ended epoch {epoch}: {SAMPLES // 2} samples,"
            assert lines[2 * epoch + 1].startswith(ended)
