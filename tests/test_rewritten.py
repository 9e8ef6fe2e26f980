"""Remotes that are rewritten between two runs over one cache, and in the middle of one."""

import gc
import logging
import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import streaming.remote_index
from streaming import MDSWriter, Stream, StreamingDataset
from streaming.storage import ObjectChanged, StoreError
from tests.data import write_numbers
from tests.servers.fixtures import Bucket, bucket, clean_environment, moto_url  # noqa: F401

OLD, NEW = range(100), range(1000, 1060)


@pytest.fixture(autouse=True)
def notes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(streaming.remote_index, "_unreachable", {})


def write(remote: Path, samples: range, **kwargs: Any) -> None:
    kwargs = {"exist_ok": True, **kwargs}
    write_numbers(remote, len(samples), start=samples.start, **kwargs)


def open_dataset(remote: Path | str, local: Path, **kwargs: Any) -> StreamingDataset:
    kwargs = {"batch_size": 4, "download_retry": 1, **kwargs}
    return StreamingDataset(remote=str(remote), local=str(local), **kwargs)


def ids_in(dataset: StreamingDataset) -> list[int]:
    return sorted(int(sample["id"]) for sample in dataset)


@pytest.mark.parametrize(
    "options", [{}, {"hashes": ["sha1"]}, {"compression": "zstd"}], ids=["plain", "hashes", "zstd"]
)
def test_only_new_samples(tmp_path: Path, options: dict[str, Any]) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    write(remote, OLD, **options)
    assert ids_in(open_dataset(remote, local)) == list(OLD)
    sizes = {file.name: file.stat().st_size for file in local.iterdir()}
    write(remote, NEW, **options)
    dataset = open_dataset(remote, local)
    assert ids_in(dataset) == list(NEW)
    after = {file.name: file.stat().st_size for file in local.iterdir()}
    assert after.keys() < sizes.keys()
    if options.get("compression") is None:
        same = {name for name in after if name != "index.json" and after[name] == sizes[name]}
        assert len(same) == len(after) - 1 == dataset.num_shards


def test_shards_stay_whose_hashes_agree(tmp_path: Path) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    write(remote, range(100), hashes=["sha1"])
    assert ids_in(open_dataset(remote, local)) == list(range(100))
    write(remote, range(120), hashes=["sha1"])
    dataset = open_dataset(remote, local)
    assert ids_in(dataset) == list(range(120))
    assert dataset.stats()["shards_fetched"] == 2


def test_equal_sizes_are_no_proof(tmp_path: Path) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    write(remote, range(100))
    assert ids_in(open_dataset(remote, local)) == list(range(100))
    write(remote, range(120))
    dataset = open_dataset(remote, local)
    assert ids_in(dataset) == list(range(120))
    assert dataset.stats()["shards_fetched"] == dataset.num_shards == 12


def test_an_index_that_was_lost_tells_no_lie(tmp_path: Path) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    write(remote, OLD)
    assert ids_in(open_dataset(remote, local)) == list(OLD)
    os.unlink(local / "index.json")
    assert open_dataset(remote, local).stats()["shards_fetched"] == 0
    os.unlink(local / "index.json")
    write(remote, NEW)
    assert ids_in(open_dataset(remote, local)) == list(NEW)


def test_without_a_folder_for_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMING_CACHE_DIR", "")
    remote, local = tmp_path / "remote", tmp_path / "local"
    write(remote, OLD)
    assert ids_in(open_dataset(remote, local)) == list(OLD)
    write(remote, NEW)
    if not os.listxattr(local / "index.json"):
        pytest.skip("this file system has no extended attributes")
    assert ids_in(open_dataset(remote, local)) == list(NEW)


def test_the_same_stream_is_compared_again(tmp_path: Path) -> None:
    stream = Stream(remote=str(tmp_path / "remote"), local=str(tmp_path / "local"))
    write(tmp_path / "remote", OLD)
    assert ids_in(StreamingDataset(streams=[stream], batch_size=4)) == list(OLD)
    write(tmp_path / "remote", NEW)
    assert ids_in(StreamingDataset(streams=[stream], batch_size=4)) == list(NEW)


def test_the_users_own_compressed_shards(tmp_path: Path) -> None:
    write(tmp_path / "own", OLD, compression="zstd")
    assert ids_in(StreamingDataset(local=str(tmp_path / "own"), batch_size=4)) == list(OLD)
    write(tmp_path / "own", NEW, compression="zstd")
    assert ids_in(StreamingDataset(local=str(tmp_path / "own"), batch_size=4)) == list(NEW)


def test_files_that_were_not_fetched_are_never_removed(tmp_path: Path) -> None:
    write(tmp_path / "remote", NEW)
    write(tmp_path / "own", OLD)
    before = {file.name: file.read_bytes() for file in (tmp_path / "own").iterdir()}
    with pytest.raises(ObjectChanged, match="was not filled from there"):
        open_dataset(tmp_path / "remote", tmp_path / "own")
    assert {file.name: file.read_bytes() for file in (tmp_path / "own").iterdir()} == before


def test_a_copy_that_was_put_there_by_hand(tmp_path: Path) -> None:
    write(tmp_path / "remote", OLD)
    shutil.copytree(tmp_path / "remote", tmp_path / "local")
    dataset = open_dataset(tmp_path / "remote", tmp_path / "local")
    assert ids_in(dataset) == list(OLD)
    assert dataset.stats()["shards_fetched"] == 0
    write(tmp_path / "remote", NEW)
    assert ids_in(open_dataset(tmp_path / "remote", tmp_path / "local")) == list(NEW)


def _read_in_child(remote: Path, local: Path, barrier: Any, answers: Any) -> None:
    barrier.wait(60)
    try:
        dataset = open_dataset(remote, local)
        barrier.wait(60)
        answers.put((ids_in(dataset), dataset.stats()["shards_fetched"]))
    except BaseException as error:
        barrier.abort()
        answers.put((repr(error), 0))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_processes_that_open_at_once(tmp_path: Path) -> None:
    remote, local, count = tmp_path / "remote", tmp_path / "local", 4
    write(remote, OLD)
    assert ids_in(open_dataset(remote, local)) == list(OLD)
    write(remote, NEW)
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(count), context.Queue()
    started = [
        context.Process(target=_read_in_child, args=(remote, local, barrier, answers))
        for _ in range(count)
    ]
    for process in started:
        process.start()
    found = [answers.get(timeout=60) for _ in started]
    for process in started:
        process.join(60)
    assert [ids for ids, _ in found] == [list(NEW)] * count
    assert sum(fetched for _, fetched in found) == 6


# In the middle of a run.


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iteration_keeps_its_shards(tmp_path: Path, workers: int) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    write(remote, OLD)
    assert ids_in(open_dataset(remote, local)) == list(OLD)
    dataset = open_dataset(remote, local)
    batches = iter(DataLoader(dataset, batch_size=4, num_workers=workers, prefetch_factor=None))
    seen = next(batches)["id"].tolist()
    write(remote, NEW)
    with pytest.raises(ObjectChanged, match="an iteration that reads the old samples"):
        open_dataset(remote, local)
    for batch in batches:
        seen += batch["id"].tolist()
    assert sorted(seen) == list(OLD)
    del batches
    assert ids_in(open_dataset(remote, local)) == list(NEW)


def test_a_dataset_whose_directory_was_replaced(tmp_path: Path) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    write(remote, OLD)
    dataset = open_dataset(remote, local)
    assert ids_in(dataset) == list(OLD)
    write(remote, NEW)
    assert ids_in(open_dataset(remote, local)) == list(NEW)
    with pytest.raises(ObjectChanged, match="was replaced while this run reads it"):
        ids_in(dataset)
    dataset._cache.close()
    with pytest.raises(ObjectChanged, match="was replaced while this run reads it"):
        dataset[0]


# torch waits 5 s for each worker when one has failed.
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_a_run_that_still_fetches(tmp_path: Path, workers: int) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    write(remote, OLD)
    dataset = open_dataset(remote, local)
    write(remote, NEW)
    with pytest.raises(ObjectChanged, match="was rewritten while this run reads it"):
        list(DataLoader(dataset, batch_size=4, num_workers=workers))
    if workers:
        gc.collect()  # the loader, and with it the other worker
    assert not list(local.glob("shard.*"))
    assert ids_in(open_dataset(remote, local)) == list(NEW)


def test_samples_that_come_by_ranges(tmp_path: Path) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"

    def write_large(fill: bytes) -> None:
        columns = {"data": "bytes"}
        with MDSWriter(
            out=str(remote), columns=columns, size_limit="100mb", exist_ok=True
        ) as writer:
            for _ in range(300):
                writer.write({"data": fill * (1 << 16)})

    write_large(b"a")
    dataset = open_dataset(remote, local)
    assert dataset[3]["data"][:1] == b"a"
    assert not list(local.glob("shard.*"))
    write_large(b"b")
    origin = dataset._directories[0].origin
    assert origin is not None
    origin._checked_s -= 100  # as if that long had passed
    with pytest.raises(ObjectChanged):
        dataset[100]


def test_the_same_index_written_again_is_no_other(tmp_path: Path) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    write(remote, OLD)
    dataset = open_dataset(remote, local)
    write(remote, OLD)
    os.utime(remote / "index.json", ns=(1, 1))
    assert ids_in(dataset) == list(OLD)
    again = open_dataset(remote, local)
    assert ids_in(again) == list(OLD)
    assert again.stats()["shards_fetched"] == 0


# Through a network.


def upload(bucket: Bucket, remote: Path) -> None:  # noqa: F811
    for file in remote.iterdir():
        bucket.put(f"train/{file.name}", file.read_bytes())


@pytest.fixture
def filled(bucket: Bucket, tmp_path: Path) -> Bucket:  # noqa: F811
    """A bucket with a data set, all of which is cached."""
    write(tmp_path / "remote", OLD)
    upload(bucket, tmp_path / "remote")
    assert ids_in(open_dataset(f"{bucket.url}/train", tmp_path / "local")) == list(OLD)
    bucket.proxy.seen.clear()
    return bucket


def test_what_has_not_changed_is_asked_for_by_its_etag(filled: Bucket, tmp_path: Path) -> None:
    assert ids_in(open_dataset(f"{filled.url}/train", tmp_path / "local")) == list(OLD)
    assert [(seen.method, seen.path.rsplit("/", 1)[-1]) for seen in filled.proxy.seen] == [
        ("HEAD", "index.json")
    ]


def test_a_bucket_that_was_rewritten(filled: Bucket, tmp_path: Path) -> None:
    write(tmp_path / "remote", NEW)
    upload(filled, tmp_path / "remote")
    assert ids_in(open_dataset(f"{filled.url}/train", tmp_path / "local")) == list(NEW)


def test_a_bucket_that_cannot_be_reached(
    filled: Bucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled.proxy.__exit__()
    with caplog.at_level(logging.WARNING, "streaming"):
        dataset = open_dataset(f"{filled.url}/train", tmp_path / "local")
    assert "is used as it is" in caplog.text
    assert ids_in(dataset) == list(OLD)
    next((tmp_path / "local").glob("shard.*")).unlink()
    dataset._cache.close()
    with pytest.raises(StoreError, match="Could not fetch shard"):
        ids_in(dataset)


def test_a_bucket_whose_index_is_gone(
    filled: Bucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled.direct.delete_object(Bucket=filled.name, Key="train/index.json")
    with caplog.at_level(logging.WARNING, "streaming"):
        dataset = open_dataset(f"{filled.url}/train", tmp_path / "local")
    assert "is used as it is" in caplog.text
    assert ids_in(dataset) == list(OLD)
    next((tmp_path / "local").glob("shard.*")).unlink()
    dataset._cache.close()
    with pytest.raises(ObjectChanged, match="its index is gone"):
        ids_in(dataset)
