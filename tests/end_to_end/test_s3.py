"""A data set written to a bucket and streamed from it, while the way there misbehaves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader, StreamingDataset
from streaming.storage import AccessDenied, NotFound, StoreError
from tests.data import text_of, write_numbers
from tests.servers.fixtures import Bucket
from tests.servers.proxy import Fault

SAMPLES = 60


def open_dataset(bucket: Bucket, local: Path, **kwargs: Any) -> StreamingDataset:
    kwargs = {"batch_size": 4, "shuffle": True, "download_retry": 4, **kwargs}
    return StreamingDataset(remote=f"{bucket.url}/v1", local=str(local), **kwargs)


def read(dataset: StreamingDataset, workers: int = 2) -> list[int]:
    ids = []
    for batch in DataLoader(dataset, batch_size=4, num_workers=workers):
        assert batch["text"] == [text_of(i) for i in batch["id"].tolist()]
        ids += batch["id"].tolist()
    return sorted(ids)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_there_and_back(bucket: Bucket, tmp_path: Path, compression: str | None) -> None:
    write_numbers(f"{bucket.url}/v1", SAMPLES, compression=compression, hashes=["sha1"])
    dataset = open_dataset(bucket, tmp_path / "cache", validate_hash="sha1")
    assert read(dataset) == list(range(SAMPLES))
    shards = bucket.proxy.matching(r"shard\.", "GET")
    assert len(shards) == dataset.num_shards, "each shard should be asked for once"
    assert read(dataset) == list(range(SAMPLES))
    assert len(bucket.proxy.matching(r"shard\.", "GET")) == len(shards)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=503, retry_after="0", times=5),
        Fault(status=500, times=3),
        Fault(cut_after=100, times=3),
        Fault(short_by=50, times=3),
    ],
    ids=["503", "500", "cut", "short"],
)
def test_passing_faults_are_overcome(bucket: Bucket, tmp_path: Path, fault: Fault) -> None:
    write_numbers(f"{bucket.url}/v1", SAMPLES)
    fault = replace(fault, key=r"shard\.", method="GET")
    bucket.proxy.add(fault)
    dataset = open_dataset(bucket, tmp_path / "cache")
    assert read(dataset) == list(range(SAMPLES))
    assert dataset.stats()["retries"] == fault.applied > 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFound), (403, AccessDenied), (500, StoreError)]
)
def test_lasting_faults_are_errors(
    bucket: Bucket, tmp_path: Path, status: int, kind: type[Exception], workers: int
) -> None:
    write_numbers(f"{bucket.url}/v1", SAMPLES)
    dataset = open_dataset(bucket, tmp_path / "cache", download_retry=1)
    bucket.proxy.add(Fault(status=status, key=r"shard\.00003"))
    with pytest.raises(kind, match=r"shard 3 of s3://.*shard\.00003\.mds"):
        read(dataset, workers)


def test_a_missing_data_set_is_an_error_at_once(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"index\.json"):
        open_dataset(bucket, tmp_path / "cache")


def test_a_checkpoint_goes_from_one_cache_to_another(bucket: Bucket, tmp_path: Path) -> None:
    write_numbers(f"{bucket.url}/v1", SAMPLES)
    loader = StreamingDataLoader(open_dataset(bucket, tmp_path / "a"), batch_size=4, num_workers=2)
    batches = []
    state = None
    for batch in loader:
        batches.append(batch["id"].tolist())
        if len(batches) == 6:
            state = loader.state_dict()
    assert state is not None
    other = StreamingDataLoader(open_dataset(bucket, tmp_path / "b"), batch_size=4, num_workers=2)
    other.load_state_dict(state)
    assert [batch["id"].tolist() for batch in other] == batches[6:]
