"""The benchmark of cold reading: its network, and one small run of it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.storage import StoreError, Throttled, store_for
from tests.servers import nginx
from tests.servers.nginx import Nginx
from tests.storage.provider_contract import BIG, get

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="it splices, as only Linux can"
    ),
]


@pytest.fixture(scope="module", autouse=True)
def _nginx_is_there() -> None:
    try:
        nginx.program()
    except RuntimeError as error:
        pytest.skip(str(error))


@contextlib.contextmanager
def network(folder: Path, *options: str) -> Iterator[str]:
    """A bucket with the object `big` behind such a network; gives its URL."""
    (folder / "root" / "bucket").mkdir(parents=True)
    (folder / "root" / "bucket" / "big").write_bytes(BIG)
    with Nginx(folder / "nginx", folder / "root") as server:
        port = server.url.rpartition(":")[2]
        command = [sys.executable, str(BENCHMARKS / "cold_proxy.py"), port, str(folder / "log")]
        process = subprocess.Popen(
            [*command, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/bucket"
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(30)


def test_what_comes_through_is_the_same(tmp_path: Path) -> None:
    with network(tmp_path) as url:
        store = store_for(url)
        assert get(store, "big") == BIG
        assert store.get_range("big", 1000, 900_000) == BIG[1000:900_000]
        assert store.size("big") == len(BIG)
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == [
        f"GET /bucket/big 200 {len(BIG)}",
        "GET /bucket/big 206 899000",
        "HEAD /bucket/big 200 0",
    ]


def test_rate_and_delay(tmp_path: Path) -> None:
    with network(tmp_path, "--rate", "2", "--delay", "0.2") as url:
        store = store_for(url)
        began = time.monotonic()
        store.get_range("big", 0, 1)
        assert time.monotonic() - began >= 0.2
        assert get(store, "big") == BIG
        assert time.monotonic() - began >= 0.4 + 0.9 * len(BIG) / 2e6


def test_refusals(tmp_path: Path) -> None:
    with network(tmp_path, "--fail", "1") as url, pytest.raises(Throttled):
        get(store_for(url), "big")


def test_cuts_and_stalls(tmp_path: Path) -> None:
    with network(tmp_path / "1", "--cut", "1") as url, pytest.raises(StoreError, match="cut"):
        get(store_for(url), "big")
    with network(tmp_path / "2", "--stall", "1") as url, pytest.raises(StoreError, match="in time"):
        get(store_for(url, timeout_s=0.5), "big")


def test_a_small_run(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "cold.py"), "--readers", "shardstream"]
    command += ["--shards", "1", "--rounds", "1", "--workers", "2", "--order", "shuffled"]
    command += ["--json", str(tmp_path / "results.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results) == [
        f"{network}, shuffled, 2 workers"
        for network in ("limited", "unlimited", "faulty", "sparse")
    ]
    for by_reader in results.values():
        for runs in by_reader.values():
            assert [(run["is_whole"], run.get("wrong", 0)) for run in runs] == [(True, 0)]
            assert runs[0]["first_batch_s"] < runs[0]["seconds"]
    assert "MB/s" in done.stdout
