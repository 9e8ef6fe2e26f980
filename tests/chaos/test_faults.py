"""What follows when processes die, stop or misbehave, disks fill up and servers fall silent."""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from streaming import StreamingDataset
from streaming.cache import CacheFullError
from tests.chaos.conftest import SAMPLES
from tests.chaos.ranks import Job, Patient, parts, running, serving, wait_for_end, wait_until
from tests.servers.proxy import Fault

pytestmark = pytest.mark.timeout(120)

ALL = list(range(SAMPLES))


@pytest.mark.parametrize("victim", ["worker", "rank"])
def test_another_takes_over_what_was_being_fetched(
    remote: Path, tmp_path: Path, victim: str
) -> None:
    local = tmp_path / "local"
    with serving(remote) as proxy:
        stall = proxy.add(Fault(key="shard.00000", stall_after=100, times=1))
        job = Job(proxy.url, str(local), workers=1, kind=Patient)
        other = Job(proxy.url, str(local))
        with running(job) as (first,):
            proxy.wait_for(lambda: any(s.fault is stall and s.sent for s in proxy.seen))
            with running(other) as (second,):
                # It has fetched the rest, and waits for what the first one is at.
                wait_until(lambda: len(list(local.glob("shard.*"))) > 10)
                (worker,) = wait_for_workers(first.pid, 1)
                started = time.monotonic()
                os.kill(worker.pid if victim == "worker" else first.pid, signal.SIGKILL)
                if victim == "rank":
                    worker.kill()  # by itself it would see in some seconds that its rank is gone
                second.wait_for("batch")
                assert time.monotonic() - started < 1.0
                assert sorted(second.wait_for("epoch")) == ALL
                assert second.join() == 0
            if victim == "worker":
                assert first.join(30) == 1
        assert proxy.count("shard.00000") == 2
        with running(other) as (next_run,):
            assert sorted(next_run.wait_for("epoch")) == ALL
    assert not parts(local)


def wait_for_workers(pid: int, count: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    wait_until(lambda: len(process.children()) >= count)
    return process.children()


@pytest.mark.parametrize("whole_node", [False, True])
def test_a_killed_job_starts_again_at_once(remote: Path, tmp_path: Path, whole_node: bool) -> None:
    local = tmp_path / "local"
    with serving(remote) as proxy:
        slow = proxy.add(Fault(key=r"shard\.0001", bandwidth=20))  # a minute and more for each
        jobs = [Job(proxy.url, str(local), rank, 2, workers=1, kind=Patient) for rank in range(2)]
        with running(*jobs) as ranks:
            for rank in ranks:
                rank.wait_for("batch")
            wait_until(lambda: bool(parts(local)))
            workers = [w for rank in ranks for w in wait_for_workers(rank.pid, 1)]
            for process in (*[psutil.Process(r.pid) for r in ranks], *workers):
                if whole_node or process.pid == ranks[0].pid:
                    process.kill()
            ranks[0].join()
            cached = {path.name for path in local.glob("shard.*")}
            slow.bandwidth = 1e9
            proxy.clear()
            with running(*jobs) as again:
                seen = [i for rank in again for i in rank.wait_for("epoch")]
                assert [rank.join() for rank in again] == [0, 0]
            for rank in ranks:
                rank.kill()
        assert sorted(seen) == ALL
        assert not [name for name in cached if proxy.count(name)]
        wait_for_end(workers)
    with running(Job(str(remote), str(local))) as (last,):
        assert last.wait_for("epoch") == ALL
    assert not parts(local)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("how", ["deleted", "replaced", "replaced by rubbish", "all"])
def test_shards_that_change_while_they_are_read(
    remote: Path, tmp_path: Path, how: str, workers: int
) -> None:
    local = tmp_path / "local"
    with running(Job(str(remote), str(local), epochs=3, workers=workers)) as (rank,):
        for epoch in range(3):
            for path in sorted(local.glob("shard.*")):
                if how == "deleted":
                    path.unlink(missing_ok=True)
                elif how == "all":
                    os.rename(local, tmp_path / f"gone{epoch}")
                    break
                else:
                    data = (remote / path.name).read_bytes()
                    aside = tmp_path / "aside"
                    aside.write_bytes(data if how == "replaced" else data[:-5])
                    os.replace(aside, path)
            assert sorted(rank.wait_for("epoch")) == ALL
        assert rank.join() == 0


class RaisesOnRank1(StreamingDataset):
    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        if os.environ["RANK"] == "1" and sample["id"] > 20:
            raise ArithmeticError("not a number I like")
        return sample


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_users_on_one_rank(remote: Path, tmp_path: Path, workers: int) -> None:
    jobs = [
        Job(str(remote), str(tmp_path / "local"), rank, 2, workers=workers, kind=RaisesOnRank1)
        for rank in range(2)
    ]
    with running(*jobs) as (good, bad):
        with pytest.raises(ArithmeticError, match="not a number I like"):
            bad.wait_for("epoch")
        assert len(good.wait_for("epoch")) == SAMPLES // 2
        assert (good.join(), bad.join()) == (0, 1)


# Disks.


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A disk of 64 KiB, made of memory."""
    import subprocess

    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("takes root and the right to mount; the same with a quota is in tests/cache")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(disk: Path) -> None:
    """Leave no room on a disk."""
    with open(disk / "filler", "ab", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(1 << 10))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_disk_too_small_for_all(remote: Path, small_disk: Path, workers: int) -> None:
    jobs = [Job(str(remote), str(small_disk), rank, 2, workers=workers) for rank in range(2)]
    filler = small_disk / "filler"
    filler.write_bytes(bytes(36 << 10))
    with running(*jobs) as ranks:
        seen = [i for rank in ranks for i in rank.wait_for("epoch")]
        stats = [rank.wait_for("stats") for rank in ranks]
    assert sorted(seen) == ALL
    assert sum(s["evictions"] for s in stats) > 0
    assert filler.exists()


def test_a_disk_too_small_for_one(remote: Path, small_disk: Path) -> None:
    dataset = StreamingDataset(remote=str(remote), local=str(small_disk), batch_size=4)
    fill(small_disk)
    with pytest.raises(CacheFullError, match=r"needs [\d,]+ bytes, [\d,]+ are free"):
        list(dataset)
    assert not parts(small_disk)


# The end of the main process.


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "Ctrl-C"])
@pytest.mark.parametrize("stalled", [False, True])
def test_the_main_process_is_told_to_end(
    remote: Path, tmp_path: Path, how: str, stalled: bool
) -> None:
    log = tmp_path / "log"
    with serving(remote) as proxy:
        if stalled:
            proxy.add(Fault(key="shard.0000[3-9]", stall_after=10))
        job = Job(proxy.url, str(tmp_path / "local"), epochs=None, workers=2, log=str(log))
        with running(job) as (rank,):
            rank.wait_for("batch")
            workers = wait_for_workers(rank.pid, 2)
            if stalled:
                proxy.wait_for(lambda: any(s.fault and s.sent for s in proxy.seen))
            started = time.monotonic()
            os.kill(rank.pid, signal.SIGTERM if how == "SIGTERM" else signal.SIGINT)
            for worker in workers if how == "Ctrl-C" else ():
                worker.send_signal(signal.SIGINT)  # which a terminal sends to the whole group
            rank.process.join(30)
            assert rank.process.exitcode is not None
            gone_s = time.monotonic() - started
            wait_for_end(workers, 30)
            workers_s = time.monotonic() - started
    assert gone_s < 2.0, (gone_s, workers_s)
    assert workers_s < 6.5, (gone_s, workers_s)  # some for the machine the tests run on
    assert log.read_text().count("Traceback") <= 2, log.read_text()


# Stalls.


@pytest.mark.long
def test_a_stopped_process_is_waited_for_and_named(remote: Path, tmp_path: Path) -> None:
    local, log = tmp_path / "local", tmp_path / "log"
    with serving(remote) as proxy:
        proxy.add(Fault(key="shard.00000", stall_after=100, times=1))
        with running(Job(proxy.url, str(local), workers=0)) as (first,):
            proxy.wait_for(lambda: any(s.fault and s.sent for s in proxy.seen))
            os.kill(first.pid, signal.SIGSTOP)
            with running(Job(proxy.url, str(local), log=str(log))) as (second,):
                wait_until(lambda: log.exists() and log.read_text().count("Waiting for") > 1, 30)
                os.kill(first.pid, signal.SIGKILL)
                assert sorted(second.wait_for("epoch")) == ALL
    assert f"Waiting for shard 0 of {local}, which another is fetching: 5 s now" in log.read_text()


@pytest.mark.long
def test_a_silent_server_is_waited_for_and_named(remote: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(remote) as proxy:
        # Each is given up for another request, after a second at least, and then twice as long.
        proxy.add(Fault(key="shard.00000", stall_after=100, times=3))
        job = Job(proxy.url, str(tmp_path / "local"), log=str(log))
        with running(job) as (rank,):
            assert sorted(rank.wait_for("epoch")) == ALL
    assert f"Waiting for shard 0 of {proxy.url}" in log.read_text()
