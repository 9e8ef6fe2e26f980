"""Large indexes are parsed once on a node; other processes map what was kept."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming import Stream, StreamingDataset, indexes
from streaming.cache import Directory
from streaming.format.errors import FormatError
from streaming.format.index import Index
from streaming.indexes import parse_index, read_index
from tests.format.test_index_regular import check_same, shard_of, text_of


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(indexes, "LARGE", 1)
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "keep"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "index.json"
    path.write_bytes(text_of([shard_of(at) for at in range(500)]))
    return path


def test_what_is_kept_is_what_was_parsed(path: Path, monkeypatch: Any) -> None:
    expected = Index.parse(path.read_bytes(), str(path))
    check_same(read_index(str(path)), expected)
    monkeypatch.setattr(Index, "parse", None)
    found = read_index(str(path))
    check_same(found, expected)
    assert found.source == str(path)
    assert not found.samples.flags.writeable


def test_the_digest_of_samples_is_kept(path: Path) -> None:
    parsed = Index.parse(path.read_bytes(), str(path))
    read_index(str(path))
    found = read_index(str(path))
    assert found._samples_digest is not None
    assert found.samples_digest == parsed.samples_digest
    assert len(found.samples_digest) == 16
    path.write_bytes(text_of([shard_of(at) for at in range(499)]))
    assert read_index(str(path)).samples_digest != parsed.samples_digest


def test_irregular_indexes_are_kept(path: Path, monkeypatch: Any) -> None:
    shards = [shard_of(at, zipped=at % 2 == 0, hashed=at % 3 == 0) for at in range(30)]
    shards[5]["raw_data"]["basename"] = "else/where"
    path.write_bytes(text_of(shards))
    expected = Index.parse(path.read_bytes(), str(path))
    read_index(str(path))
    monkeypatch.setattr(Index, "parse", None)
    check_same(read_index(str(path)), expected)


def test_the_file_need_not_be_read_again(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(indexes, "_SETTLED_S", -1.0)
    monkeypatch.setattr(indexes, "_TICK_S", -1.0)
    expected = read_index(str(path))

    monkeypatch.setattr(indexes, "_digest_file", None)
    check_same(read_index(str(path)), expected)


def test_a_file_that_changes_is_read_anew(path: Path) -> None:
    before = read_index(str(path))
    shards = [shard_of(at) for at in range(500)]
    shards[7]["samples"] = 105
    path.write_bytes(text_of(shards))
    assert (before.samples[7], read_index(str(path)).samples[7]) == (101, 105)


def test_a_worker_is_sent_no_index(path: Path) -> None:
    index = read_index(str(path))
    pickled = pickle.dumps(index)
    assert len(pickled) < 400
    check_same(pickle.loads(pickled), index)
    program = "import pickle, sys; print(len(pickle.load(sys.stdin.buffer)))"
    done = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True)
    assert done.stdout == b"500\n"


def test_a_dataset_is_sent_without_anything_for_each_shard(path: Path, tmp_path: Path) -> None:
    path.write_bytes(text_of([shard_of(at) for at in range(3000)]))
    dataset = StreamingDataset(
        remote=str(path.parent), local=str(tmp_path / "local"), batch_size=4, shuffle=True
    )
    expected = dataset.samples_per_shard, dataset.sample_offset_per_shard, dataset.stream_per_shard
    assert dataset.spanner.num_samples == dataset.num_samples
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 20_000
    found = pickle.loads(pickled)
    for name, array in zip(
        ("samples_per_shard", "sample_offset_per_shard", "stream_per_shard"), expected, strict=True
    ):
        assert np.array_equal(getattr(found, name), array)
    assert found.spanner[12_345] == dataset.spanner[12_345]
    assert (len(found.shards), len(found)) == (3000, len(dataset))


def test_many_small_indexes_are_sent_by_name(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(indexes, "LARGE", 1 << 20)
    monkeypatch.setattr(indexes, "_MANY", 100)
    streams = []
    for number in range(5):
        remote = tmp_path / f"remote-{number}"
        remote.mkdir()
        shards = [shard_of(at, hashed=number % 2 == 0) for at in range(30 + number)]
        (remote / "index.json").write_bytes(text_of(shards))
        streams.append(Stream(remote=str(remote), local=str(tmp_path / f"local-{number}")))
    dataset = StreamingDataset(streams=streams, batch_size=4)
    one = pickle.dumps(dataset._directories[0].index)
    pickled = pickle.dumps(dataset)
    assert len(pickle.dumps(dataset._directories[0].index)) < 500 < len(one)
    expected = [directory.index for directory in dataset._directories]
    for _ in range(2):
        indexes._open_together.cache_clear()
        found = pickle.loads(pickled)
        for directory, index in zip(found._directories, expected, strict=True):
            check_same(directory.index, index)
        # What was kept may be gone; then the files are read.
        for kept in (tmp_path / "keep").glob("*.keep"):
            kept.unlink()
    assert pickle.loads(pickled).samples_per_shard.tolist() == dataset.samples_per_shard.tolist()


def test_it_is_parsed_again_if_what_was_kept_is_gone(path: Path) -> None:
    index = read_index(str(path))
    pickled = pickle.dumps(index)
    for kept in (path.parent / "keep").glob("*.keep"):
        kept.unlink()
    check_same(pickle.loads(pickled), index)


def test_a_fetched_index(path: Path) -> None:
    index = parse_index(path.read_bytes(), "s3://bucket/index.json", str(path))
    assert index.source == "s3://bucket/index.json"
    pickled = pickle.dumps(index)
    for kept in (path.parent / "keep").glob("*.keep"):
        kept.unlink()
    assert np.array_equal(pickle.loads(pickled).samples, index.samples)


def test_whether_raw_shards_are_here_is_told_by_a_listing(path: Path, monkeypatch: Any) -> None:
    path.write_bytes(text_of([shard_of(at, zipped=True) for at in range(50)]))
    stream = Stream(local=str(path.parent))
    index = read_index(str(path))
    assert stream._lacks_raw(index)
    for at in range(50):
        raw = index.files(at)[0][0]
        with open(path.parent / raw.basename, "wb") as file:
            file.truncate(raw.bytes)
    asked: list[int] = []
    is_present = Directory.is_present

    def count(directory: Directory, shard: int) -> bool:
        asked.append(shard)
        return is_present(directory, shard)

    monkeypatch.setattr(Directory, "is_present", count)
    assert not stream._lacks_raw(index)
    assert asked == [0]
    (path.parent / index.files(37)[0][0].basename).unlink()
    assert stream._lacks_raw(index)


def test_without_a_folder(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("STREAMING_CACHE_DIR", "")
    index = read_index(str(path))
    check_same(pickle.loads(pickle.dumps(index)), index)


def test_errors(path: Path) -> None:
    path.write_bytes(b'{"version": 2}')
    for _ in range(2):
        with pytest.raises(FormatError, match="shards must be a list"):
            read_index(str(path))
    with pytest.raises(FileNotFoundError):
        read_index(str(path) + ".other")
