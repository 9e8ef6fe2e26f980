"""`top`: the datasets that other processes have open, and who waits for what."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streaming.cli.top import looks
from streaming.watch.board import RunBoard
from streaming.watch.machine import running_datasets
from tests.chaos.ranks import serving
from tests.cli.conftest import Cli
from tests.data import write_numbers
from tests.servers.proxy import Fault

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="top finds runs on Linux only")

LIMIT_S = 60

SCRIPT = """
import sys
from streaming import StreamingDataLoader, StreamingDataset

if __name__ == "__main__":
    remote, local, workers = sys.argv[1:]
    dataset = StreamingDataset(remote=remote, local=local, batch_size=4)
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=int(workers))
    batches = iter(loader)
    print(next(batches), flush=True)
    sys.stdin.readline()
    for batch in batches:
        pass
"""


@contextmanager
def training(remote: str, local: Path, workers: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SCRIPT, remote, str(local), str(workers)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def when(holds: Callable[[Any], bool], url: str) -> Any:
    """What is seen of a dataset, or None if it is not open, as soon as something holds of that."""
    until = time.monotonic() + LIMIT_S
    for look in looks(0.05):
        run = next((run for run in look.datasets if run.dataset == url), None)
        if holds(run):
            return run
        assert time.monotonic() < until, look
    raise AssertionError("looks come without end")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_numbers(tmp_path / "data", 120)


@pytest.mark.parametrize("workers", [0, 2])
def test_who_waits_for_what(data: Path, tmp_path: Path, workers: int) -> None:
    with serving(data) as proxy:
        with training(proxy.url, tmp_path / "cache", workers) as process:
            seen = when(lambda run: run and run.samples >= 4 * workers, proxy.url)
            ranks = [worker for worker in seen.workers if worker.worker is None]
            assert {worker.pid for worker in ranks} <= {process.pid}
            assert len(seen.workers) - len(ranks) == workers
        when(lambda run: run is None, proxy.url)


def test_a_wait_is_seen_while_it_lasts(data: Path, tmp_path: Path) -> None:
    with serving(data) as proxy:
        proxy.add(Fault(key="shard.00005", delay_s=2 * LIMIT_S))
        with training(proxy.url, tmp_path / "cache", 0) as process:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            seen = when(lambda run: run and "shard 5" in str(run.workers[0].waits_for), proxy.url)
            (worker,) = seen.workers
            assert worker.waits_s >= 0
            assert worker.spends["downloads"] > 0


def test_the_command(cli: Cli, data: Path, tmp_path: Path) -> None:
    with training(str(data), tmp_path / "cache", 2):
        out = cli("top", "--once", "--every", 0.1).out
        assert str(data) in out
        assert "waits for" in out
        found = cli("top", "--once", "--every", 0.1, "--json").json
        (run,) = (run for run in found["datasets"] if run["dataset"] == str(data))
        assert run["samples"] >= 4
        assert {worker["worker"] for worker in run["workers"]} >= {0, 1}


def _can_be_interrupted() -> None:
    """In case the tests run in a shell's background, where that is turned off."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_it_goes_on_until_it_is_interrupted(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streaming.cli", "top", "--every", "0.1", "--json"]
    with (
        training(str(data), tmp_path / "cache", 0),
        subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, preexec_fn=_can_be_interrupted
        ) as top,
    ):
        assert top.stdout is not None
        for _ in range(3):
            assert json.loads(top.stdout.readline())["datasets"]
        top.send_signal(signal.SIGINT)
        top.communicate(timeout=LIMIT_S)
        assert top.returncode == 0


def test_what_is_no_board_is_passed_over(cli: Cli) -> None:
    board = RunBoard("\x1b[31mred")
    fakes = [os.memfd_create("streaming-run") for _ in range(3)]
    try:
        os.ftruncate(fakes[1], 100)
        os.ftruncate(fakes[2], os.fstat(board._ints._fd).st_size)
        names = [run.dataset for run in running_datasets()]
        assert names.count(board.dataset) == 1
        assert "" not in names
        assert "\x1b[31m" not in cli("top", "--once", "--every", 0.1).out
    finally:
        for fake in fakes:
            os.close(fake)


def test_a_time_that_makes_no_sense(cli: Cli) -> None:
    assert "--every" in cli("top", "--every", 0, status=2).err
