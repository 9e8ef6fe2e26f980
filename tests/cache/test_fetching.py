"""A node's processes fetch together: each shard once, whatever happens to one of them."""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.cache import landing, transfer
from streaming.cache.claims import Claim
from streaming.storage import NotFound, StoreError
from tests.data import write_numbers
from tests.helpers import LIMIT_S
from tests.servers.files import Files
from tests.servers.proxy import Fault, FaultProxy
from tests.servers.rest import Answer, Request

SHARDS, PER_SHARD = 14, 10
SAMPLES = SHARDS * PER_SHARD


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = write_numbers(tmp_path_factory.mktemp("fetching") / "remote", SAMPLES, PER_SHARD)
    assert len(list(out.glob("shard.*"))) == SHARDS
    return out


class Gate(Files):
    """Lets nobody have a shard until it is opened."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.open = threading.Event()
        self.asked = threading.Event()
        self.changed = threading.Condition()

    def answer(self, request: Request) -> Answer:
        if "shard" in request.path:
            self.asked.set()
            self.open.wait(LIMIT_S)
            with self.changed:
                self.changed.notify_all()
        return super().answer(request)

    def shards(self) -> Counter[str]:
        with self.lock:
            found = [re.search(r"shard\.(\d+)", one.path) for one in self.seen]
        return Counter(match[1] for match in found if match)

    def wait_for(self, shards: set[str]) -> None:
        with self.changed:
            self.changed.wait_for(lambda: shards <= set(self.shards()), 2 * LIMIT_S)
        assert shards <= set(self.shards())


def stop(pid: int) -> None:
    """Stop a process, and wait until all of its threads stand still."""
    os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + LIMIT_S
    while not all(
        task.read_text().rpartition(")")[2].split()[0] in "Tt"
        for task in Path(f"/proc/{pid}/task").glob("*/stat")
    ):
        assert time.monotonic() < until


def claimed_in(local: Path) -> set[str]:
    """The shards that others have claimed."""
    claimed = set()
    for shard in range(SHARDS):
        claim = Claim(local / "index.json", shard)
        if claim.try_acquire():
            claim.release()
        else:
            claimed.add(f"{shard:05}")
    return claimed


def read_rank(url: str, local: str, rank: int, results: Any, done: Any) -> None:
    # A server that does not answer is asked again after a while, which is not what is counted here.
    transfer.FLOOR_S = 60.0
    dataset = StreamingDataset(
        remote=url,
        local=local,
        batch_size=2,
        shuffle=True,
        rank=rank,
        world_size=8,
        local_world_size=8,
    )
    results.put([sample["id"] for sample in dataset])
    done.wait(2 * LIMIT_S)  # what it still fetches for others when it ends, they would fetch again


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=pytest.mark.long)])
def test_eight_processes_fetch_each_shard_once(remote: Path, tmp_path: Path, stopped: bool) -> None:
    context = multiprocessing.get_context("forkserver")
    results, done = context.Queue(), context.Event()
    with Gate(remote) as gate:
        processes = [
            context.Process(
                target=read_rank, args=(gate.url, str(tmp_path / "local"), rank, results, done)
            )
            for rank in range(8)
        ]
        try:
            processes[0].start()
            assert gate.asked.wait(LIMIT_S)
            claimed: set[str] = set()
            if stopped:
                # It stands still in the midst of its first shards.
                stop(processes[0].pid or 0)
                claimed = claimed_in(tmp_path / "local")
                assert claimed
            gate.open.set()
            for process in processes[1:]:
                process.start()
            if stopped:
                # The others go on with all that it has not claimed.
                gate.wait_for({f"{shard:05}" for shard in range(SHARDS)} - claimed)
                os.kill(processes[0].pid or 0, signal.SIGCONT)
            seen = [number for _ in processes for number in results.get(timeout=LIMIT_S)]
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join()
        assert set(seen) == set(range(SAMPLES))
        assert gate.shards() == {f"{shard:05}": 1 for shard in range(SHARDS)}


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("workers", [0, 1, 2, 8])
def test_one_missing_shard_of_fourteen_raises(remote: Path, tmp_path: Path, workers: int) -> None:
    with Files(remote) as files, FaultProxy(files.url) as proxy:
        proxy.add(Fault(key=r"shard\.00009", status=404))
        dataset = StreamingDataset(
            remote=proxy.url, local=str(tmp_path / "local"), batch_size=2, shuffle=True
        )
        with pytest.raises(NotFound, match=r"shard 9 of .*shard\.00009"):
            for _ in DataLoader(dataset, batch_size=2, num_workers=workers):
                pass
        # It is not there: nobody asks again, neither who fetches ahead nor who needs it.
        assert proxy.count("00009") <= 2 * max(1, workers)


@pytest.mark.long
@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("workers", [0, 1, 2, 8])
@pytest.mark.parametrize("fault", [Fault(status=500), Fault(short_by=40)])
def test_one_shard_that_stays_damaged_raises(
    remote: Path, tmp_path: Path, workers: int, fault: Fault
) -> None:
    """After its retries, in one worker or in each that comes to it before the loader ends."""
    fault.key = r"shard\.00009"
    with Files(remote) as files, FaultProxy(files.url) as proxy:
        proxy.add(fault)
        dataset = StreamingDataset(
            remote=proxy.url,
            local=str(tmp_path / "local"),
            batch_size=2,
            shuffle=True,
            download_retry=1,
        )
        with pytest.raises(StoreError, match=r"shard 9 of .*shard\.00009"):
            for _ in DataLoader(dataset, batch_size=2, num_workers=workers):
                pass
        # Twice by who fetches ahead, twice by who needs it, and no more.
        assert proxy.count("00009") <= 4 * max(1, workers)


@pytest.mark.parametrize("fault", [Fault(status=404), Fault(status=500), Fault(short_by=40)])
def test_it_raises_in_every_worker_that_needs_it(
    remote: Path, tmp_path: Path, fault: Fault
) -> None:
    fault.key = r"shard\.00009"
    with Files(remote) as files, FaultProxy(files.url) as proxy:
        proxy.add(fault)
        for rank in range(4):  # samples of a shard go to all of them in turn
            dataset = StreamingDataset(
                remote=proxy.url,
                local=str(tmp_path / "local"),
                batch_size=1,
                download_retry=1,
                rank=rank,
                world_size=4,
                local_world_size=4,
            )
            with pytest.raises(StoreError, match=r"shard 9 of .*shard\.00009") as error:
                list(dataset)
            assert fault.status == 404 or "attempt 2" in str(error.value)


WIDTH = 2048


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[FaultProxy]:
    columns = {"tokens": f"ndarray:int32:{WIDTH}"}
    with MDSWriter(out=str(tmp_path / "remote"), columns=columns, size_limit=2 << 20) as writer:
        for number in range(1024):
            writer.write({"tokens": np.arange(number, number + WIDTH, dtype=np.int32)})
    with Files(tmp_path / "remote") as files, FaultProxy(files.url, seed=3) as proxy:
        yield proxy


@pytest.mark.long
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_goes_through_with_faults(
    tokens: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shuffle: bool,
    workers: int,
) -> None:
    monkeypatch.setattr(landing, "PART_BYTES", 1 << 17)
    monkeypatch.setattr(transfer, "FLOOR_S", 0.2)
    tokens.add(Fault(key="shard", status=503, retry_after="0", share=0.05))
    tokens.add(Fault(key="shard", cut_after=50_000, share=0.02))
    tokens.add(Fault(key="shard", stall_after=5_000, share=0.02))
    dataset = StreamingDataset(
        remote=tokens.url, local=str(tmp_path / "local"), batch_size=8, shuffle=shuffle
    )
    seen = []
    for batch in StreamingDataLoader(dataset, batch_size=8, num_workers=workers):
        for row in batch["tokens"].numpy():
            assert np.array_equal(row, np.arange(row[0], row[0] + WIDTH))
            seen.append(int(row[0]))
    assert sorted(seen) == list(range(1024))
    assert tokens.spoiled


@pytest.mark.usefixtures("patience")
def test_parts_of_a_shard_come_once_each(
    tokens: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "PART_BYTES", 1 << 18)
    dataset = StreamingDataset(
        remote=tokens.url,
        local=str(tmp_path / "local"),
        batch_size=8,
        shuffle=True,
        max_connections=8,
    )
    for _ in StreamingDataLoader(dataset, batch_size=8, num_workers=2):
        pass
    stats = dataset.stats()
    assert stats["shards_fetched"] == dataset.num_shards
    whole = sum(path.stat().st_size for path in (tmp_path / "remote").glob("shard.*"))
    assert stats["bytes_fetched"] == whole
    index = (tmp_path / "remote" / "index.json").stat().st_size
    assert tokens.bytes() == whole + index + stats["bytes_fetched_by_range"]
    ranges = Counter(
        (seen.path, seen.headers["range"])
        for seen in tokens.matching("shard", "GET")
        if "range" in seen.headers and seen.sent >= 1 << 18
    )
    assert set(ranges.values()) == {1}


def test_max_connections_is_checked(tmp_path: Path, remote: Path) -> None:
    with pytest.raises(ValueError, match="max_connections"):
        StreamingDataset(local=str(remote), batch_size=1, max_connections=0)


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_connections_than_allowed(tokens: FaultProxy, tmp_path: Path, most: int) -> None:
    dataset = StreamingDataset(
        remote=tokens.url,
        local=str(tmp_path / "local"),
        batch_size=8,
        shuffle=True,
        max_connections=most,
    )
    before = tokens.connections  # the index came over one
    assert sum(1 for _ in dataset) == 1024
    assert tokens.connections <= before + most
