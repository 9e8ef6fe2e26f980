"""Samples whose shards are not here: which bytes travel for them, and whether they are right."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from streaming import (
    CSVWriter,
    JSONWriter,
    MDSWriter,
    StreamingDataLoader,
    StreamingDataset,
    TSVWriter,
)
from streaming.cache import prefetch, ranges
from streaming.cache.ranges import is_sparse
from streaming.storage import ObjectChanged, StoreError
from tests.servers.files import Files
from tests.servers.proxy import Fault, FaultProxy

WIDTH = 2048
SAMPLES = 2048
SHARD_BYTES = 2 << 20


def tokens_of(number: int) -> "np.ndarray[Any, np.dtype[np.int32]]":
    return np.arange(number, number + WIDTH, dtype=np.int32)


def write_tokens(out: Path, start: int = 0) -> None:
    with MDSWriter(
        out=str(out), columns={"tokens": f"ndarray:int32:{WIDTH}"}, size_limit=SHARD_BYTES
    ) as writer:
        for number in range(start, start + SAMPLES):
            writer.write({"tokens": tokens_of(number)})


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 MiB of samples of 8 KiB."""
    root = tmp_path_factory.mktemp("ranges")
    write_tokens(root / "tokens")
    rows = [{"id": number, "text": f"sample {number} " * (number % 7)} for number in range(3000)]
    for name, writer, extra in (
        ("mds", MDSWriter, {}),
        ("csv", CSVWriter, {}),
        ("tsv", TSVWriter, {}),
        ("json", JSONWriter, {}),
    ):
        columns = {"id": "int", "text": "str"}
        with writer(out=str(root / name), columns=columns, size_limit=30_000, **extra) as out:
            for row in rows:
                out.write(row)
    return root


@pytest.fixture
def proxy(remote: Path) -> Iterator[FaultProxy]:
    with Files(remote) as files, FaultProxy(files.url) as proxy:
        yield proxy


def total(remote: Path, name: str = "tokens") -> int:
    return sum(path.stat().st_size for path in (remote / name).iterdir())


def open_tokens(proxy: FaultProxy, local: Path, **kwargs: Any) -> StreamingDataset:
    kwargs = {"batch_size": 8, "download_retry": 1, **kwargs}
    return StreamingDataset(remote=f"{proxy.url}/tokens", local=str(local), **kwargs)


def test_when_ranges_are_cheaper() -> None:
    assert is_sparse(0.01, 0.0, 8192)
    assert not is_sparse(0.1, 0.0, 8192)
    assert is_sparse(0.5, 0.0, 1 << 20)
    assert not is_sparse(0.01, 0.0, 100)
    assert not is_sparse(0.01, 1.0, 8192)


@pytest.mark.usefixtures("patience")
def test_one_sample_takes_one_sample(proxy: FaultProxy, tmp_path: Path) -> None:
    dataset = open_tokens(proxy, tmp_path / "local")
    proxy.clear()
    for number in (5, 700, 1000):
        assert np.array_equal(dataset[number]["tokens"], tokens_of(number))
    assert proxy.count() == 3
    assert proxy.bytes() == 3 * 4 * WIDTH
    stats = dataset.stats()
    assert stats["bytes_fetched_by_range"] == stats["bytes_read"] == 3 * 4 * WIDTH
    assert stats["bytes_fetched"] == stats["shards_fetched"] == 0


def test_many_samples_take_the_shard(proxy: FaultProxy, tmp_path: Path) -> None:
    dataset = open_tokens(proxy, tmp_path / "local")
    for number in range(100):
        assert np.array_equal(dataset[number]["tokens"], tokens_of(number))
    stats = dataset.stats()
    assert stats["shards_fetched"] == 1
    assert stats["bytes_fetched_by_range"] <= SHARD_BYTES // 16 + 4 * WIDTH
    assert stats["bytes_read"] == 100 * 4 * WIDTH


@pytest.mark.parametrize("name", ["mds", "csv", "tsv", "json"])
@pytest.mark.parametrize("table_bytes", [0, 1 << 19])
def test_samples_of_every_format_and_size(
    proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    table_bytes: int,
) -> None:
    from streaming.format import ranges as format_ranges

    monkeypatch.setattr(ranges, "SMALL_BYTES", 0)
    monkeypatch.setattr(ranges, "COST", 0.001)
    monkeypatch.setattr(ranges, "COPIED", 0.001)
    monkeypatch.setattr(format_ranges, "TABLE_BYTES", table_bytes)
    dataset = StreamingDataset(remote=f"{proxy.url}/{name}", local=str(tmp_path), batch_size=8)
    for number in (0, 7, 2999, 1500, 1501, 8):
        sample = dataset[number]
        assert int(sample["id"]) == number
        assert sample["text"] == f"sample {number} " * (number % 7)
    assert dataset.stats()["shards_fetched"] == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loader", [DataLoader, StreamingDataLoader])
def test_a_hundredth_of_the_samples_takes_few_bytes(
    proxy: FaultProxy, remote: Path, tmp_path: Path, workers: int, loader: Any
) -> None:
    dataset = open_tokens(proxy, tmp_path / "local", epoch_size=SAMPLES // 100, shuffle=True)
    seen = []
    for batch in loader(dataset, batch_size=8, num_workers=workers):
        for row in batch["tokens"].numpy():
            assert np.array_equal(row, tokens_of(row[0]))
            seen.append(int(row[0]))
    assert len(seen) >= SAMPLES // 100
    assert proxy.bytes() < 0.05 * total(remote)
    assert not list((tmp_path / "local").glob("*.mds"))
    assert dataset.stats()["shards_fetched"] == 0


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_first_batch_does_not_wait_for_shards(
    proxy: FaultProxy, tmp_path: Path, shuffle: bool
) -> None:
    # Whole shards, and parts of them, do not come at all; samples do.
    dataset = open_tokens(proxy, tmp_path / "local", shuffle=shuffle)
    stuck = proxy.add(Fault(key="shard", stall_after=300_000))
    batches = iter(StreamingDataLoader(dataset, batch_size=8))
    for row in next(batches)["tokens"].numpy():
        assert np.array_equal(row, tokens_of(row[0]))
    assert dataset.stats()["bytes_fetched_by_range"] >= 8 * 4 * WIDTH
    proxy._faults.remove(stuck)
    count = 1 + sum(1 for _ in batches)
    assert count == SAMPLES // 8


def test_hashes_take_whole_shards(tmp_path: Path, remote: Path) -> None:
    root = tmp_path / "remote"
    with MDSWriter(
        out=str(root / "hashed"),
        columns={"tokens": f"ndarray:int32:{WIDTH}"},
        size_limit=SHARD_BYTES,
        hashes=["sha1"],
    ) as writer:
        for number in range(300):
            writer.write({"tokens": tokens_of(number)})
    with Files(root) as files:
        dataset = StreamingDataset(
            remote=f"{files.url}/hashed",
            local=str(tmp_path / "local"),
            batch_size=8,
            validate_hash="sha1",
        )
        assert np.array_equal(dataset[5]["tokens"], tokens_of(5))
        assert dataset.stats()["bytes_fetched_by_range"] == 0
        assert dataset.stats()["shards_fetched"] == 1


def test_a_rewritten_remote_is_never_mixed_with_the_old_one(
    proxy: FaultProxy, remote: Path, tmp_path: Path
) -> None:
    root = tmp_path / "remote"
    shutil.copytree(remote / "tokens", root / "tokens")
    with Files(root) as files:
        dataset = StreamingDataset(
            remote=f"{files.url}/tokens", local=str(tmp_path / "local"), batch_size=8
        )
        assert np.array_equal(dataset[0]["tokens"], tokens_of(0))
        shard = root / "tokens" / "shard.00000.mds"
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1  # the same size, another version
        shard.write_bytes(data)
        with pytest.raises(ObjectChanged, match=r"shard\.00000"):
            dataset[1]
        shard.write_bytes(shard.read_bytes()[: -4 * WIDTH])
        with pytest.raises(StoreError):
            dataset[2]
        fresh = StreamingDataset(
            remote=f"{files.url}/tokens", local=str(tmp_path / "fresh"), batch_size=8
        )
        with pytest.raises(StoreError, match="the index says"):
            fresh[2]


def test_a_damaged_table_is_an_error(
    proxy: FaultProxy, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "SMALL_BYTES", 0)
    monkeypatch.setattr(ranges, "COST", 0.001)
    root = tmp_path / "remote"
    shutil.copytree(remote / "mds", root)
    shard = root / "shard.00000.mds"
    shard.write_bytes(b"\xff" * 400 + shard.read_bytes()[400:])
    with Files(root) as files:
        dataset = StreamingDataset(remote=files.url, local=str(tmp_path / "local"), batch_size=8)
        with pytest.raises(Exception, match=r"shard\.00000"):
            dataset[3]


def test_sparse_streams_beside_others(proxy: FaultProxy, remote: Path, tmp_path: Path) -> None:
    from streaming import Stream

    shards = json.loads((remote / "tokens" / "index.json").read_text())["shards"]
    streams = [
        Stream(remote=f"{proxy.url}/tokens", local=str(tmp_path / "a"), choose=20),
        Stream(remote=f"{proxy.url}/tokens/", local=str(tmp_path / "b"), repeat=1),
    ]
    dataset = StreamingDataset(streams=streams, batch_size=8, shuffle=True)
    seen = [int(sample["tokens"][0]) for sample in dataset]
    assert sorted(set(seen)) == list(range(SAMPLES))
    assert len(seen) >= SAMPLES + 20
    assert dataset.stats()["shards_fetched"] == len(shards)
    assert not list((tmp_path / "a").glob("*.mds"))


def test_small_shards_come_whole(proxy: FaultProxy, tmp_path: Path) -> None:
    assert prefetch.SMALL_BYTES >= 30_000
    dataset = StreamingDataset(remote=f"{proxy.url}/mds", local=str(tmp_path), batch_size=8)
    assert dataset[3]["id"] == 3
    assert dataset.stats()["shards_fetched"] == 1
    assert dataset.stats()["bytes_fetched_by_range"] == 0
