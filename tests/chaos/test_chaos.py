"""Eight ranks on one small cache; random ones are killed and started again, for as long as told.

A minute in `make test-all`, an hour in `make soak`: SOAK_S tells how many seconds.
"""

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from streaming import StreamingDataset
from tests.chaos.conftest import SAMPLES
from tests.chaos.ranks import Job, Rank, parts, running, serving, wait_until
from tests.servers.proxy import Fault

SOAK_S = float(os.environ.get("SOAK_S", "60"))
RANKS = 8
HANG_S = 60.0
"""A rank that tells of no batch for so long is taken to hang."""


class Crew:
    """The ranks, with when each last made progress."""

    def __init__(self, jobs: list[Job]) -> None:
        self.ranks = [Rank(job) for job in jobs]
        self.moved_s = [time.monotonic()] * len(jobs)
        self.batches = self.epochs = self.kills = 0

    def listen(self) -> None:
        """Take in what they tell; an error of any is an error here."""
        for at, rank in enumerate(self.ranks):
            for kind, what in rank.has_told():
                if kind == "error":
                    raise what
                self.moved_s[at] = time.monotonic()
                self.batches += kind == "batch"
                if kind == "epoch":
                    self.epochs += 1
                    assert len(what) == SAMPLES // RANKS
            assert time.monotonic() - self.moved_s[at] < HANG_S, f"rank {at} hangs"

    def replace(self, at: int) -> None:
        """Kill a rank, and its workers a while later, and start another in its place."""
        self.ranks[at].kill()
        self.ranks[at] = Rank(self.ranks[at].job)
        self.moved_s[at] = time.monotonic()
        self.kills += 1

    def end(self) -> None:
        for rank in self.ranks:
            rank.kill()


@pytest.mark.long
@pytest.mark.timeout(SOAK_S + 240)
@pytest.mark.parametrize("by_http", [False, True])
def test_chaos(remote: Path, tmp_path: Path, by_http: bool) -> None:
    local = tmp_path / "local"
    index = (remote / "index.json").stat().st_size
    shard = max(path.stat().st_size for path in remote.glob("shard.*"))
    limit = index + 10 * shard
    kwargs: dict[str, Any] = {"cache_limit": limit, "shuffle": True, "download_retry": 10}
    draw = random.Random(1)
    with serving(remote) as proxy:
        proxy.add(Fault(key="shard", cut_after=300, share=0.05))
        proxy.add(Fault(key="shard", status=503, retry_after="0", share=0.05))
        proxy.add(Fault(key="shard", bandwidth=50_000, share=0.3))
        source = proxy.url if by_http else str(remote)
        jobs = [
            Job(source, str(local), rank, RANKS, epochs=None, workers=rank % 2, dataset=kwargs)
            for rank in range(RANKS)
        ]
        crew = Crew(jobs)
        try:
            watcher = StreamingDataset(remote=source, local=str(local), batch_size=1)
            until = time.monotonic() + SOAK_S / 2
            next_kill_s = time.monotonic() + 2.0
            while time.monotonic() < until:
                crew.listen()
                assert watcher.cache_usage <= limit
                if time.monotonic() > next_kill_s:
                    next_kill_s += draw.uniform(0.05, 1.0)
                    for at in draw.sample(range(RANKS), draw.choice([1, 1, 1, 2, RANKS])):
                        crew.replace(at)
            assert crew.kills > SOAK_S / 4
            assert crew.batches > RANKS
            # All of them get on once nobody is killed any more.
            before, epochs = list(crew.moved_s), crew.epochs
            deadline = time.monotonic() + HANG_S
            while crew.epochs < epochs + RANKS or crew.moved_s == before:
                crew.listen()
                assert watcher.cache_usage <= limit
                assert time.monotonic() < deadline
        finally:
            crew.end()
        # Orphans are gone within six seconds. Then the next run removes what was half-written.
        wait_until(lambda: not _at_work(local), 20)
        proxy.clear()
        with running(Job(source, str(local), dataset=kwargs)) as (last,):
            assert sorted(last.wait_for("epoch")) == list(range(SAMPLES))
            assert last.join() == 0
    assert not parts(local)
    names = {path.name for path in local.iterdir()}
    assert names <= {path.name for path in remote.iterdir()}


def _at_work(local: Path) -> bool:
    """Whether any process has a file of the directory open, or mapped."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            names = [os.readlink(fd) for fd in (process / "fd").iterdir()]
        except OSError:
            continue
        if process.name != str(os.getpid()) and any(str(local) in name for name in names):
            return True
    return False
