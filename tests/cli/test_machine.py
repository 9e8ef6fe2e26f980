"""`doctor` and `bench`: this machine, and the way to a data set."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.cli import machine
from tests.cli.conftest import Cli
from tests.data import write_numbers
from tests.servers.fixtures import Bucket


def test_doctor_of_the_machine(cli: Cli) -> None:
    found = cli("doctor", "--json").json
    names = {check["name"] for check in found["machine"]}
    assert {"python", "torch", "numpy", "cores", "open files", "extras"} <= names
    assert found["link"] is None
    assert "this machine" in cli("doctor").out


def test_doctor_of_a_data_set(cli: Cli, bucket: Bucket) -> None:
    write_numbers(bucket.url, 100)
    found = cli("doctor", bucket.url, "--shards", 4, "--json").json
    link = found["link"]
    assert link["shards"] == 4
    assert link["latency_s"] > 0
    assert link["one_bytes_per_s"] > 0
    assert link["many_bytes_per_s"] > 0
    checks = {check["name"]: check for check in found["dataset"]}
    assert checks["hashes"]["status"] == "warning"
    assert "latency" in cli("doctor", bucket.url).out


def test_doctor_reports_what_is_not_there(cli: Cli, bucket: Bucket, tmp_path: Path) -> None:
    found = cli("doctor", tmp_path, "--json", status=1).json
    assert not found["ok"]
    assert found["dataset"][0]["status"] == "error"
    write_numbers(tmp_path / "data", 20)
    (tmp_path / "data" / "shard.00001.mds").unlink()
    assert "verify" in cli("doctor", tmp_path / "data", status=1).out


@pytest.mark.skipif(not Path("/dev/shm").exists(), reason="there is no /dev/shm here")
def test_little_shared_memory_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_bytes", lambda path: 64 << 20)
    checks = {check.name: check for check in machine.machine()}
    assert checks["/dev/shm"].status == "warning"
    assert "--shm-size" in checks["/dev/shm"].advice
    assert "cache_limit" in next(c.advice for n, c in checks.items() if n.startswith("disk"))


def test_bench(cli: Cli, tmp_path: Path) -> None:
    data = write_numbers(tmp_path / "data", 200, per_shard=50)
    found = cli("bench", data, "--workers", 0, "--batch-size", 8, "--json").json
    assert [rate["samples"] for rate in found["rates"]] == [200] * 3
    assert all(rate["samples_per_s"] > 0 and rate["complete"] for rate in found["rates"])
    assert "of the speed of bare reading" in cli("bench", data, "--workers", 0).out


def test_bench_from_a_bucket_leaves_nothing(
    cli: Cli, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "t"  # short: sockets of workers have their paths in it
    own.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(own))
    write_numbers(bucket.url, 100, compression="zstd")
    found = cli("bench", bucket.url, "--workers", 1, "--json").json
    assert [rate["samples"] for rate in found["rates"]] == [100] * 3
    # A worker of torch's may keep a socket's folder of its own there.
    left = [p.name for p in own.iterdir() if not p.name.startswith("pymp-")]
    assert left == []
