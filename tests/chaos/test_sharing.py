"""Many processes, datasets and users at once, and what they leave: nothing."""

import errno
import fcntl
import gc
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader, StreamingDataset
from streaming.cache.claims import Claim
from tests.chaos.conftest import SAMPLES
from tests.chaos.ranks import Job, Patient, context, running, serving

pytestmark = pytest.mark.timeout(120)

ALL = list(range(SAMPLES))
OTHER_USER = 12345


def ids(loader: Any) -> list[int]:
    return sorted(int(i) for batch in loader for i in batch["id"])


# One fetch.


@pytest.mark.parametrize("workers", [0, 1])
def test_a_node_fetches_each_shard_once(remote: Path, tmp_path: Path, workers: int) -> None:
    """Eight ranks at the same moment, and others later."""
    local = str(tmp_path / "local")
    shuffled = {"shuffle": True, "num_canonical_nodes": 2, "shuffle_block_size": 50}
    with serving(remote) as proxy:
        loader = {"persistent_workers": True} if workers else {}
        options = {"dataset": shuffled, "loader": loader, "kind": Patient, "stays": True}
        jobs = [Job(proxy.url, local, rank, 8, workers=workers, **options) for rank in range(8)]
        for _ in range(2):
            with running(*jobs) as ranks:
                seen = [i for rank in ranks for i in rank.wait_for("epoch")]
                stats = [rank.wait_for("stats") for rank in ranks]
            assert sorted(set(seen)) == ALL
        shards = [path.name for path in remote.glob("shard.*")]
        assert {name: proxy.count(name) for name in shards} == dict.fromkeys(shards, 1)
        # This server tells no versions: those that come later look whether it is still the same.
        assert proxy.bytes("index.json") < 16 * (remote / "index.json").stat().st_size
        assert sum(s["shards_fetched"] for s in stats) == 0
        assert sum(s["samples"] for s in stats) == len(seen)


def no_lock(*args: Any) -> Any:
    raise OSError(errno.ENOLCK, "No locks available")


class WithoutLocks(StreamingDataset):
    """A dataset on a file system that has no locks, as far as its process can tell."""

    def __init__(self, **kwargs: Any) -> None:
        fcntl.fcntl = fcntl.flock = no_lock
        super().__init__(**kwargs)
        with Claim(Path(kwargs["local"], "index.json"), 0) as claim:
            assert not claim.is_real


@pytest.mark.parametrize("limit", [None, "limit"])
def test_a_directory_without_locks_is_read_right(
    remote: Path, tmp_path: Path, limit: str | None
) -> None:
    """Shards may be fetched more than once; each rank checks each of its samples."""
    local = tmp_path / "local"
    largest = max(path.stat().st_size for path in remote.glob("shard.*"))
    index = (remote / "index.json").stat().st_size
    options = {"cache_limit": index + 6 * largest} if limit else {}
    jobs = [
        Job(str(remote), str(local), rank, 4, kind=WithoutLocks, dataset=options, epochs=2)
        for rank in range(4)
    ]
    with running(*jobs) as ranks:
        for _ in range(2):
            seen = [i for rank in ranks for i in rank.wait_for("epoch")]
            assert sorted(set(seen)) == ALL
        assert [rank.join() for rank in ranks] == [0] * 4


# Opening and iterating.


def _open_often(remote: str, local: str, times: int, pipe: Any) -> None:
    try:
        for _ in range(times):
            dataset = StreamingDataset(remote=remote, local=local, batch_size=4)
            assert dataset[5]["id"] == 5
        pipe.send(None)
    except Exception as error:
        pipe.send(error)


def test_four_processes_open_a_data_set_two_hundred_times(remote: Path, tmp_path: Path) -> None:
    openers = []
    for _ in range(4):
        pipe, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_open_often, args=(str(remote), str(tmp_path / "local"), 200, theirs)
        )
        process.start()
        openers.append((process, pipe))
    for process, pipe in openers:
        assert pipe.poll(60)
        assert pipe.recv() is None
        process.join(30)


@pytest.mark.parametrize(
    "methods",
    [
        ("main", "fork", "main", "fork"),
        pytest.param(("main", "spawn", "fork", "forkserver", "main"), marks=pytest.mark.long),
        pytest.param(("forkserver", "fork", "main", "spawn"), marks=pytest.mark.long),
    ],
)
def test_workers_of_every_kind_in_any_order(remote: Path, methods: tuple[str, ...]) -> None:
    dataset = StreamingDataset(local=str(remote), batch_size=4)
    for epoch, method in enumerate(methods):
        assert dataset.next_epoch == epoch
        workers: dict[str, Any] = (
            {} if method == "main" else {"num_workers": 2, "multiprocessing_context": method}
        )
        assert ids(DataLoader(dataset, batch_size=4, **workers)) == ALL


def test_several_datasets_of_one_directory_in_one_process(remote: Path, tmp_path: Path) -> None:
    local = str(tmp_path / "local")
    size = sum(path.stat().st_size for path in remote.iterdir())
    datasets = [
        StreamingDataset(remote=str(remote), local=local, batch_size=4, **kwargs)
        for kwargs in ({}, {"shuffle": True}, {"cache_limit": size // 2, "shuffle": True})
    ]
    loaders = [
        DataLoader(dataset, batch_size=4, num_workers=i) for i, dataset in enumerate(datasets)
    ]
    for _ in range(2):
        together = zip(*loaders, strict=True)
        seen: list[list[int]] = [[], [], []]
        for batches in together:
            for own, batch in zip(seen, batches, strict=True):
                own += batch["id"].tolist()
        assert [sorted(own) for own in seen] == [ALL] * 3
        assert datasets[2].cache_usage <= size


def test_an_epoch_is_counted_however_workers_come_and_go(remote: Path) -> None:
    dataset = StreamingDataset(local=str(remote), batch_size=4, shuffle=True)
    expected = StreamingDataset(local=str(remote), batch_size=4, shuffle=True)
    persistent = DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=True)
    for epoch, loader in enumerate(
        (
            persistent,
            DataLoader(dataset, batch_size=4, num_workers=3),
            DataLoader(dataset, batch_size=4),
            persistent,
            DataLoader(dataset, batch_size=4, num_workers=1),
            persistent,
        )
    ):
        expected.next_epoch = epoch
        batches = [batch["id"].tolist() for batch in loader]
        assert sorted(i for batch in batches for i in batch) == ALL
        if loader.num_workers < 2:
            assert [i for batch in batches for i in batch] == [s["id"] for s in expected]
        assert dataset.next_epoch == epoch + 1


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [DataLoader, StreamingDataLoader])
def test_a_hundred_abandoned_iterations(remote: Path, workers: int, kind: Any) -> None:
    dataset = StreamingDataset(local=str(remote), batch_size=4, shuffle=True)
    persistent = {"persistent_workers": True} if workers else {}
    loader = kind(dataset, batch_size=4, num_workers=workers, **persistent)
    for epoch in range(100):
        assert dataset.next_epoch == epoch
        next(iter(loader))
    expected = StreamingDataset(local=str(remote), batch_size=4, shuffle=True)
    expected.next_epoch = 100
    assert [i for batch in loader for i in batch["id"].tolist()] == [s["id"] for s in expected]


# Nothing grows.


def _open_and_iterate(remote: str, local: str, workers: int) -> None:
    dataset = StreamingDataset(remote=remote, local=local, batch_size=4, shuffle=True)
    fork: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=workers, **fork)
    for _, batch in zip(range(3), loader, strict=False):
        assert len(batch["id"]) == 4


def _measure() -> list[int]:
    # Threads that are told to end, but that nobody waits for, keep their dataset until they do.
    for thread in threading.enumerate():
        if thread.name.startswith("streaming-fetch"):
            thread.join(10)
    gc.collect()
    me = psutil.Process()
    return [me.num_fds(), me.num_threads(), len(me.children(True)), me.memory_info().rss]


def _measure_growth(remote: str, local: str, times: int, pipe: Any) -> None:
    for i in range(100):
        _open_and_iterate(remote, local, workers=int(i % 50 == 0))
    before = _measure()
    for i in range(times):
        _open_and_iterate(remote, local, workers=int(i % 100 == 0))
    pipe.send((before, _measure()))


@pytest.mark.parametrize("times", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_datasets_and_loaders_leave_nothing(remote: Path, tmp_path: Path, times: int) -> None:
    pipe, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_measure_growth, args=(str(remote), str(tmp_path / "local"), times, theirs)
    )
    process.start()
    assert pipe.poll(100)
    before, after = pipe.recv()
    process.join(30)
    grown = [late - early for early, late in zip(before, after, strict=True)]
    assert grown[0] <= 3, "descriptors"
    assert grown[1] <= 5, "threads: some are just ending"
    assert grown[2] <= 0, "processes"
    assert grown[3] <= 8 << 20, "memory"


# Users.


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may reach and write to."""
    if not hasattr(os, "geteuid") or os.geteuid():
        pytest.skip("takes root, to become another user")
    with tempfile.TemporaryDirectory(prefix="streaming-test-", dir="/var/tmp") as name:
        path = Path(name)
        path.chmod(0o777)
        yield path


@pytest.fixture
def readable(remote: Path, shared: Path) -> Path:
    """The data set, where every user may read it."""
    import shutil

    copy = shared / "remote"
    shutil.copytree(remote, copy)
    copy.chmod(0o755)
    return copy


@pytest.mark.parametrize("cache_limit", [None, 20_000])
@pytest.mark.parametrize("sticky", [False, True])
def test_two_users_in_one_directory(
    readable: Path, shared: Path, sticky: bool, cache_limit: int | None
) -> None:
    local = shared / "local"
    local.mkdir()
    local.chmod(0o1777 if sticky else 0o777)
    # A limit holds as far as a user may remove what the other has fetched.
    limited = {"cache_limit": cache_limit} if cache_limit and not sticky else {}
    jobs = [
        Job(str(readable), str(local), epochs=2, user=user, workers=1, dataset=limited)
        for user in (None, OTHER_USER)
    ]
    with running(*jobs) as ranks:
        for rank in ranks:
            assert sorted(rank.wait_for("epoch")) == ALL
        assert [rank.join() for rank in ranks] == [0, 0]


def test_a_user_who_may_only_read(readable: Path, shared: Path) -> None:
    local = shared / "local"
    job = Job(str(readable), str(local), user=OTHER_USER, workers=2)
    with running(Job(str(readable), str(local))) as (first,):
        assert first.wait_for("epoch") == ALL
        assert first.join() == 0
    local.chmod(0o755)
    before = {path.name: path.stat().st_mtime_ns for path in local.iterdir()}
    with running(job) as (complete,):
        assert sorted(complete.wait_for("epoch")) == ALL
        assert complete.join() == 0
    assert {path.name: path.stat().st_mtime_ns for path in local.iterdir()} == before
    (local / "shard.00003.mds").unlink()
    with running(job) as (incomplete,):
        with pytest.raises(PermissionError, match=r"Shard 3 is missing from .* let this user"):
            incomplete.wait_for("epoch")
        assert incomplete.join() == 1


def _open_by_default(user: int, remote: str, temporary: str, pipe: Any) -> None:
    os.setgid(user)
    os.setuid(user)
    tempfile.tempdir = temporary
    try:
        dataset = StreamingDataset(remote=remote, batch_size=4)
        path = dataset.streams[0].local
        pipe.send((path, [sample["id"] for sample in dataset]))
    except Exception as error:
        pipe.send(("error", error))


def open_by_default(user: int, remote: Path, temporary: Path) -> tuple[str, Any]:
    pipe, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_open_by_default, args=(user, str(remote), str(temporary), theirs)
    )
    process.start()
    assert pipe.poll(60)
    answer: tuple[str, Any] = pipe.recv()
    process.join(30)
    return answer


def test_nobody_reads_the_default_directory_of_another(
    readable: Path, shared: Path, tmp_path: Path
) -> None:
    from tests.data import write_numbers

    temporary = shared / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    first, seen = open_by_default(OTHER_USER, readable, temporary)
    assert seen == ALL
    assert stat.S_IMODE(os.stat(first).st_mode) & 0o022 == 0
    second, seen = open_by_default(OTHER_USER + 1, readable, temporary)
    assert seen == ALL
    assert second != first

    # Somebody has laid out data of their own where the next user will look.
    victim = OTHER_USER + 2
    trap = write_numbers(f"{first}-{victim}", 10, start=5000)
    for path in (trap, *trap.iterdir()):
        os.chown(path, OTHER_USER, OTHER_USER)
    error, why = open_by_default(victim, readable, temporary)
    assert error == "error"
    assert isinstance(why, PermissionError)
    assert "belongs to another user" in str(why)


# CUDA.


@pytest.mark.parametrize("workers", [0, 2])
def test_cuda_is_never_touched(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("CUDA was initialised")

    monkeypatch.setattr(torch.cuda, "init", never)
    monkeypatch.setattr(torch.cuda, "_lazy_init", never)
    monkeypatch.setattr(torch._C, "_cuda_init", never, raising=False)
    dataset = StreamingDataset(remote=str(remote), local=str(tmp_path / "local"), batch_size=4)
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=workers)
    assert ids(loader) == ALL
    assert loader.state_dict() is not None
    assert "torch.cuda" in sys.modules
