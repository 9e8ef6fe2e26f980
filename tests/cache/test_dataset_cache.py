"""Bounded caches, damaged and missing shards, originals that nobody touches: through the
dataset.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader, StreamingDataset
from streaming.cache import CacheFullError, Directory, MissingShardError, ShardCache
from streaming.format.errors import CorruptShardError, FormatError
from streaming.format.reader import Reader
from streaming.storage import NotFound, StoreError
from tests.data import write_numbers

SAMPLES = 200


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(
        tmp_path_factory.mktemp("data") / "remote", SAMPLES, hashes=["sha1", "xxh64"]
    )


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "zipped"
    return write_numbers(out, SAMPLES, hashes=["sha1"], compression="zstd")


def usage(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def smallest_limit(remote: Path) -> int:
    """The index, and the largest shard in both forms."""
    shards: dict[str, int] = {}
    for file in remote.glob("shard.*"):
        shards[file.name[:11]] = shards.get(file.name[:11], 0) + file.stat().st_size
    return max(shards.values()) + (remote / "index.json").stat().st_size


def open_dataset(remote: Path, local: Path, **kwargs: Any) -> StreamingDataset:
    kwargs = {"batch_size": 4, "download_retry": 1, **kwargs}
    return StreamingDataset(remote=str(remote), local=str(local), **kwargs)


def ids_of(loader: Any) -> list[int]:
    return sorted(int(i) for batch in loader for i in batch["id"])


def test_a_cold_epoch_fetches_each_shard_once(remote: Path, tmp_path: Path) -> None:
    dataset = open_dataset(remote, tmp_path / "local", shuffle=True)
    assert sorted(sample["id"] for sample in dataset) == list(range(SAMPLES))
    stats = dataset.stats()
    assert stats["samples"] == SAMPLES
    assert stats["shards_fetched"] == dataset.num_shards
    assert stats["bytes_fetched"] == sum(f.stat().st_size for f in remote.glob("shard.*"))
    assert usage(tmp_path / "local") == usage(remote) == dataset.cache_usage


@pytest.mark.parametrize("workers", [0, 2, 4])
def test_workers_fetch_each_shard_once_together(remote: Path, tmp_path: Path, workers: int) -> None:
    dataset = open_dataset(remote, tmp_path / "local", shuffle=True)
    assert ids_of(DataLoader(dataset, batch_size=4, num_workers=workers)) == list(range(SAMPLES))
    assert dataset.stats()["shards_fetched"] == dataset.num_shards


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("predownload", [None, 0, 1, 1000])
@pytest.mark.parametrize("spare_shards", [0, 1, 3])
@pytest.mark.parametrize("keep_zip", [False, True])
def test_every_limit_finishes_its_epoch(
    zipped: Path,
    tmp_path: Path,
    workers: int,
    predownload: int | None,
    spare_shards: int,
    keep_zip: bool,
) -> None:
    smallest = smallest_limit_zipped(zipped)
    index = (zipped / "index.json").stat().st_size
    limit = smallest + spare_shards * (smallest - index)
    dataset = open_dataset(
        zipped,
        tmp_path / "local",
        shuffle=True,
        cache_limit=limit,
        predownload=predownload,
        keep_zip=keep_zip,
    )
    highest = 0
    seen = []
    for batch in DataLoader(dataset, batch_size=4, num_workers=workers):
        seen += batch["id"].tolist()
        highest = max(highest, dataset.cache_usage)
    assert sorted(seen) == list(range(SAMPLES))
    assert highest <= limit
    assert dataset.stats()["evictions"] > 0


def smallest_limit_zipped(zipped: Path) -> int:
    dataset = StreamingDataset(local=str(zipped), batch_size=1)
    sizes = [
        sum(info.bytes for info in pair if info is not None)
        for shard in dataset.shards
        for pair in shard.file_pairs
    ]
    return max(sizes) + (zipped / "index.json").stat().st_size


def test_the_smallest_limit_is_named(remote: Path, tmp_path: Path) -> None:
    smallest = smallest_limit(remote)
    open_dataset(remote, tmp_path / "a", cache_limit=smallest)
    with pytest.raises(ValueError, match=f"{smallest:,} bytes"):
        open_dataset(remote, tmp_path / "b", cache_limit=smallest - 1)


def test_the_least_recently_used_goes_first(remote: Path, tmp_path: Path) -> None:
    index = (remote / "index.json").stat().st_size
    shard = smallest_limit(remote) - index
    dataset = open_dataset(remote, tmp_path / "local", cache_limit=index + 3 * shard)
    local = tmp_path / "local"
    starts = dataset.sample_offset_per_shard.tolist()
    for at, number in enumerate((0, 1, 2)):
        dataset[starts[number]]
        os.utime(local / f"shard.{number:05}.mds", (1000 + at, 1000 + at))
    os.utime(local / "shard.00000.mds", (2000, 2000))  # used again
    dataset[starts[3]]
    names = sorted(path.name for path in local.glob("shard.*"))
    assert names == ["shard.00000.mds", "shard.00002.mds", "shard.00003.mds"]


def test_a_shard_in_use_is_read_on_when_it_is_evicted(remote: Path, tmp_path: Path) -> None:
    dataset = open_dataset(remote, tmp_path / "local")
    assert dataset[0]["id"] == 0
    (tmp_path / "local" / "shard.00000.mds").unlink()
    assert dataset[1]["id"] == 1
    dataset.evict_shard(1)
    assert dataset[2]["id"] == 2


def test_each_of_two_datasets_in_a_directory_keeps_to_its_own_limit(
    remote: Path, tmp_path: Path
) -> None:
    index = (remote / "index.json").stat().st_size
    shard = smallest_limit(remote) - index
    small = open_dataset(remote, tmp_path / "local", cache_limit=index + 2 * shard)
    large = open_dataset(remote, tmp_path / "local", cache_limit=index + 8 * shard)
    for _ in large:
        assert large.cache_usage <= index + 8 * shard
    for i in range(0, SAMPLES, 10):
        small[i]
        assert small.cache_usage <= index + 2 * shard


@pytest.mark.parametrize("damage", ["truncated", "longer", "empty"])
def test_a_cached_file_of_the_wrong_size_is_fetched_again(
    remote: Path, tmp_path: Path, damage: str
) -> None:
    local = tmp_path / "local"
    shutil.copytree(remote, local)
    shard = local / "shard.00003.mds"
    data = shard.read_bytes()
    shard.write_bytes({"truncated": data[:-7], "longer": data + b"x", "empty": b""}[damage])
    dataset = open_dataset(remote, local)
    assert sorted(sample["id"] for sample in dataset) == list(range(SAMPLES))
    assert dataset.stats()["shards_fetched"] == 1
    assert shard.read_bytes() == data


def test_a_cached_file_is_checked_for_its_hash_if_asked(remote: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    shutil.copytree(remote, local)
    shard = local / "shard.00003.mds"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    dataset = open_dataset(remote, local, validate_hash="sha1")
    assert sorted(sample["id"] for sample in dataset) == list(range(SAMPLES))
    assert dataset.stats()["shards_fetched"] == 1


def test_a_cached_file_with_a_damaged_table_is_fetched_again(remote: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    shutil.copytree(remote, local)
    shard = local / "shard.00003.mds"
    data = shard.read_bytes()
    shard.write_bytes(b"\xff" * 40 + data[40:])
    dataset = open_dataset(remote, local)
    assert sorted(sample["id"] for sample in dataset) == list(range(SAMPLES))
    assert shard.read_bytes() == data


def test_an_unknown_hash_and_one_that_was_not_written_are_errors(
    remote: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="sha1"):
        open_dataset(remote, tmp_path / "a", validate_hash="sha7")
    with pytest.raises(ValueError, match="was written with sha1, xxh64"):
        open_dataset(remote, tmp_path / "b", validate_hash="md5")


def damage_remote(remote: Path, to: Path, how: str) -> Path:
    shutil.copytree(remote, to)
    shard = to / "shard.00003.mds"
    data = shard.read_bytes()
    if how == "missing":
        shard.unlink()
    else:
        shard.write_bytes({"truncated": data[:50], "longer": data * 2, "wrong": data[::-1]}[how])
    return to


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("how", ["missing", "truncated", "longer", "wrong"])
def test_a_shard_that_can_not_be_had_raises(
    remote: Path, tmp_path: Path, how: str, workers: int
) -> None:
    broken = damage_remote(remote, tmp_path / "remote", how)
    dataset = open_dataset(broken, tmp_path / "local", validate_hash="sha1")
    kind = NotFound if how == "missing" else StoreError
    with pytest.raises(kind, match=r"shard 3 of .*remote") as error:
        ids_of(DataLoader(dataset, batch_size=4, num_workers=workers))
    assert "shard.00003.mds" in str(error.value)
    if how != "missing":
        assert "attempt 2" in str(error.value)
    if not workers:  # a worker that is ended at its work leaves a part, for the next one to remove
        assert not list((tmp_path / "local").glob(".part-3-*"))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_missing_local_shard_raises(remote: Path, tmp_path: Path, workers: int) -> None:
    broken = damage_remote(remote, tmp_path / "local", "missing")
    dataset = StreamingDataset(local=str(broken), batch_size=4)
    with pytest.raises(FileNotFoundError, match=r"Shard 3 is missing.*`remote`"):
        ids_of(DataLoader(dataset, batch_size=4, num_workers=workers))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_truncated_local_shard_raises(remote: Path, tmp_path: Path, workers: int) -> None:
    broken = damage_remote(remote, tmp_path / "local", "truncated")
    dataset = StreamingDataset(local=str(broken), batch_size=4)
    with pytest.raises(CorruptShardError, match=r"shard\.00003"):
        ids_of(DataLoader(dataset, batch_size=4, num_workers=workers))


def test_originals_are_never_changed(zipped: Path, tmp_path: Path) -> None:
    original = tmp_path / "original"
    shutil.copytree(zipped, original)
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(original.iterdir())}
    dataset = StreamingDataset(local=str(original), batch_size=4, cache_limit="1mb", shuffle=True)
    assert sorted(sample["id"] for sample in dataset) == list(range(SAMPLES))
    for shard in range(dataset.num_shards):
        dataset.evict_shard(shard)
    dataset.evict_coldest_shard()
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(original.iterdir())} == before
    assert sorted(sample["id"] for sample in dataset) == list(range(SAMPLES))
    shutil.rmtree(dataset._directories[0].path)


def test_raw_originals_need_no_cache(remote: Path) -> None:
    dataset = StreamingDataset(local=str(remote), batch_size=4, cache_limit=10**6)
    before = {p.name: p.stat().st_mtime_ns for p in remote.iterdir()}
    assert [sample["id"] for sample in dataset] == list(range(SAMPLES))
    dataset.evict_shard(0)
    dataset.evict_coldest_shard()
    assert dataset.cache_usage == 0
    assert {p.name: p.stat().st_mtime_ns for p in remote.iterdir()} == before


def test_a_damaged_cached_index_is_fetched_again(remote: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    (local / "index.json").write_text('{"version": 2, "shards": [{"samp')
    assert len(open_dataset(remote, local)) == SAMPLES
    assert (local / "index.json").read_bytes() == (remote / "index.json").read_bytes()


def test_a_damaged_remote_index_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    (remote / "index.json").write_text("<html>")
    with pytest.raises(StoreError, match=r"index\.json"):
        open_dataset(remote, tmp_path / "local")
    assert not list((tmp_path / "local").iterdir())
    with pytest.raises(FormatError, match=r"index\.json"):
        StreamingDataset(local=str(remote), batch_size=1)


def test_no_data_set_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"index\.json"):
        open_dataset(tmp_path / "nowhere", tmp_path / "local")
    with pytest.raises(FileNotFoundError, match="Check `local`"):
        StreamingDataset(local=str(tmp_path / "nowhere"), batch_size=1)


def test_rubbish_of_a_killed_writer_is_removed(remote: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    rubbish = local / ".part-3-0123abcd-shard.00003.mds"
    rubbish.write_bytes(b"half a shard")
    open_dataset(remote, local)[5]
    assert not rubbish.exists()


def test_rubbish_in_a_complete_cache_is_removed(remote: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    list(open_dataset(remote, local))
    rubbish = local / ".part-3-0123abcd-shard.00003.mds"
    rubbish.write_bytes(b"half a shard, of a process that was killed while another fetched it")
    list(open_dataset(remote, local))
    assert not rubbish.exists()


def test_foreign_files_that_leave_no_room_are_named(remote: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    dataset = open_dataset(remote, local, cache_limit=smallest_limit(remote))
    (local / "notes.txt").write_text("not ours")
    with pytest.raises(CacheFullError, match="other files"):
        dataset[0]


def test_a_full_disk_evicts_the_least_recently_used(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import streaming.cache.space as space

    real = space._allocate
    local = tmp_path / "local"
    dataset = open_dataset(remote, local)
    capacity = 3

    def allocate(path: str, size: int) -> bool:
        if len(list(local.glob("shard.*"))) >= capacity:
            open(path, "wb").close()
            return False
        return real(path, size)

    monkeypatch.setattr(space, "_allocate", allocate)
    for sample in range(0, SAMPLES, 10):
        assert dataset[sample]["id"] == sample
    assert len(list(local.glob("shard.*"))) <= capacity
    capacity = 0
    for shard in range(dataset.num_shards):
        dataset.evict_shard(shard)
    with pytest.raises(CacheFullError, match=r"needs [\d,]+ bytes"):
        dataset[0]


@pytest.mark.parametrize("data_set", ["remote", "zipped"])
@pytest.mark.parametrize("times", [1, 10, 1000])
def test_a_shard_that_goes_before_it_is_open_is_fetched_again(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    data_set: str,
    times: int,
) -> None:
    """Others evict it where there are no locks; but it has to stay at last."""
    gone = 0

    def mark(directory: Directory, shard: int, opened: bool) -> None:
        nonlocal gone
        if not opened and gone < times:
            gone += 1
            directory.remove(shard)

    monkeypatch.setattr(Directory, "mark", mark)
    dataset = open_dataset(request.getfixturevalue(data_set), tmp_path / "local")
    if times > 100:
        with pytest.raises(FileNotFoundError, match="shard"):
            dataset[5]
    else:
        assert dataset[5]["id"] == 5
        assert gone == times
        assert dataset.stats()["shards_fetched"] == times + 1


@pytest.mark.parametrize("column_wise", [False, True])
def test_a_shard_that_goes_between_opening_and_reading_is_fetched_again(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column_wise: bool
) -> None:
    """A thread of ours that fetches ahead closes what others have evicted."""
    real = ShardCache.reader_of_samples
    closed = []

    def reader_of_samples(cache: ShardCache, shard: int) -> Reader:
        reader = real(cache, shard)
        if shard not in closed:
            closed.append(shard)
            at, local = cache.locate(shard)
            cache.directories[at].remove(local)
            cache.refresh()
            cache._close_evicted()
            assert not reader.is_open
        return reader

    monkeypatch.setattr(ShardCache, "reader_of_samples", reader_of_samples)
    dataset = open_dataset(remote, tmp_path / "local")
    loader = (StreamingDataLoader if column_wise else DataLoader)(dataset, batch_size=4)
    assert ids_of(loader) == list(range(SAMPLES))
    assert sorted(closed) == list(range(dataset.num_shards))


def test_an_original_that_goes_while_it_is_read_is_missing(remote: Path, tmp_path: Path) -> None:
    local = shutil.copytree(remote, tmp_path / "own")
    dataset = StreamingDataset(local=str(local), batch_size=4)
    assert dataset[5]["id"] == 5
    for shard in local.glob("shard.*"):
        shard.unlink()
    assert dataset[5]["id"] == 5  # it is open
    with pytest.raises(MissingShardError, match="no `remote`"):
        dataset[SAMPLES - 1]


def test_waiting_for_a_full_disk_lets_go_of_what_others_evicted(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import streaming.cache.space as space

    real = space._allocate
    local = tmp_path / "local"
    dataset = open_dataset(remote, local)
    for sample in (0, 10, 20):
        assert dataset[sample]["id"] == sample

    def is_held() -> bool:
        maps = Path("/proc/self/maps").read_text().splitlines()
        return any(str(local) in line and line.endswith("(deleted)") for line in maps)

    def allocate(path: str, size: int) -> bool:
        if is_held():  # the room of an evicted shard comes free with its last reader
            open(path, "wb").close()
            return False
        return real(path, size)

    monkeypatch.setattr(space, "_allocate", allocate)
    for shard in local.glob("shard.*"):
        shard.unlink()
    if not is_held():
        pytest.skip("takes Linux, which tells what is mapped")
    assert dataset[50]["id"] == 50
    assert not is_held()


def test_a_read_only_complete_directory_works(remote: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    shutil.copytree(remote, local)
    for path in local.iterdir():
        path.chmod(0o444)
    local.chmod(0o555)
    try:
        dataset = open_dataset(remote, local)
        assert ids_of(DataLoader(dataset, batch_size=4, num_workers=2)) == list(range(SAMPLES))
    finally:
        local.chmod(0o755)
