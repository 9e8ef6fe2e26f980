"""Every command as a process of its own, on folders, on S3 and on Google Cloud Storage."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streaming.storage import store_for
from tests.cli.conftest import Ran, run_process
from tests.data import text_of, write_numbers
from tests.servers.gcs import gcs_server, make_bucket
from tests.servers.moto import ENVIRONMENT, botocore_client, server_process

SAMPLES = 40


@dataclass(frozen=True)
class Where:
    """A store with a data set in it, and room for more."""

    url: str
    data: str
    """The data set: 40 numbers in 4 shards, with hashes."""
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def new(self) -> str:
        return f"{self.url}/{uuid.uuid4().hex}"

    def run(self, *arguments: object, status: int = 0) -> Ran:
        return run_process(*arguments, status=status, **self.environment)

    def put(self, path: Path, url: str, key: str) -> None:
        store_for(url, **self.options).put(path, key)


def _fill(where: Where) -> Where:
    write_numbers(where.data, SAMPLES, hashes=["sha1"], storage_options=where.options or None)
    return where


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Where:
    root = tmp_path_factory.mktemp("store")
    return _fill(Where(str(root), str(root / "data")))


@pytest.fixture(scope="module")
def s3() -> Iterator[Where]:
    with server_process() as server:
        botocore_client(server).create_bucket(Bucket="tests")
        options = {
            "endpoint_url": server,
            "access_key_id": ENVIRONMENT["AWS_ACCESS_KEY_ID"],
            "secret_access_key": ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
        }
        environment = {**ENVIRONMENT, "S3_ENDPOINT_URL": server}
        yield _fill(Where("s3://tests", "s3://tests/data", options, environment))


@pytest.fixture(scope="module")
def gcs() -> Iterator[Where]:
    with gcs_server() as server:
        make_bucket(server, "tests")
        options = {"endpoint_url": server, "anonymous": True}
        environment = {"STORAGE_EMULATOR_HOST": server, "NO_GCE_CHECK": "true"}
        yield _fill(Where("gs://tests", "gs://tests/data", options, environment))


def info(where: Where, tmp_path: Path) -> None:
    assert where.run("info", where.data, "--json").json["samples"] == SAMPLES


def head(where: Where, tmp_path: Path) -> None:
    lines = where.run("head", where.data, "-n", 2, "--json").lines
    assert [line["sample"]["text"] for line in lines] == [text_of(0), text_of(1)]


def cat(where: Where, tmp_path: Path) -> None:
    (line,) = where.run("cat", where.data, "-1", "--json").lines
    assert line == {"id": 39, "sample": {"id": 39, "text": text_of(39)}}


def verify(where: Where, tmp_path: Path) -> None:
    found = where.run("verify", where.data, "--decode", "all", "--json").json
    assert (found["ok"], found["decoded"]) == (True, SAMPLES)
    copy = write_numbers(tmp_path / "copy", SAMPLES, hashes=["sha1"])
    (copy / "shard.00002.mds").write_bytes(b"damaged")
    broken = where.new()
    for path in copy.iterdir():
        where.put(path, broken, path.name)
    assert "DAMAGED" in where.run("verify", broken, status=1).out


def repair(where: Where, tmp_path: Path) -> None:
    copy = write_numbers(tmp_path / "copy", SAMPLES, hashes=["sha1"])
    whole = (copy / "shard.00001.mds").read_bytes()
    (copy / "shard.00001.mds").write_bytes(whole[:-1])
    (copy / "shard.00002.mds").unlink()
    done = where.run("repair", copy, where.data, "--json").json
    assert done["ok"]
    assert done["replaced"] == ["shard.00001.mds", "shard.00002.mds"]
    assert (copy / "shard.00001.mds").read_bytes() == whole


def merge(where: Where, tmp_path: Path) -> None:
    out = where.new()
    for part in ("a", "b"):
        write_numbers(f"{out}/{part}", 10, storage_options=where.options or None)
    assert where.run("merge", out, "--json").json["samples"] == 20


def reshard(where: Where, tmp_path: Path) -> None:
    out = where.new()
    options = ("--size-limit", "1kb", "--compression", "zstd", "--shuffle", "--seed", "5")
    done = where.run("reshard", where.data, out, *options, "--json").json
    assert done["samples"] == SAMPLES
    assert done["shards"] > done["shards_before"]


def cp(where: Where, tmp_path: Path) -> None:
    assert where.run("cp", where.data, where.new(), "--json").json["files"] == 5
    assert where.run("cp", where.data, tmp_path / "here", "--json").json["files"] == 5


def ls(where: Where, tmp_path: Path) -> None:
    entries = where.run("ls", where.url, "--json").json["entries"]
    assert {"name": "data/", "kind": "dataset", "bytes": None, "files": 5} in entries


def diff(where: Where, tmp_path: Path) -> None:
    other = write_numbers(tmp_path / "other", SAMPLES - 3)
    assert where.run("diff", where.data, where.data, "--json").json["ok"]
    found = where.run("diff", where.data, other, "--json", status=1).json
    assert found["only_ids"] == [[37, 38, 39], []]


def state(where: Where, tmp_path: Path) -> None:
    place = {"epoch": 1, "sample_in_epoch": 64, "num_canonical_nodes": 2, "shuffle_seed": 7}
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"loader": place}))
    where.put(path, where.url, "state.json")
    found = where.run("state", f"{where.url}/state.json", "--json").json
    assert found["datasets"][0]["values"] == place


def doctor(where: Where, tmp_path: Path) -> None:
    assert where.run("doctor", where.data, "--shards", 2, "--json").json["link"]["shards"] == 2


def bench(where: Where, tmp_path: Path) -> None:
    found = where.run("bench", where.data, "--workers", 1, "--json").json
    assert [rate["samples"] for rate in found["rates"]] == [SAMPLES] * 3


def convert(where: Where, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,name\n" + "".join(f"{at},n{at}\n" for at in range(30)))
    where.put(path, where.url, "rows/rows.csv")
    out = where.new()
    options = ("--part-size", 100, "--hash", "sha1", "-c", "id=uint16", "--workers", 2)
    done = where.run("convert", f"{where.url}/rows/*.csv", out, *options, "--json").json
    assert (done["samples"], done["columns"]) == (30, {"id": "uint16", "name": "str"})
    assert done["parts"] > 1
    assert where.run("verify", out, "--json").json["ok"]


def append(where: Where, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id\n1\n2\n")
    out = where.new()
    where.run("convert", path, out)
    done = where.run("append", path, out, "--json").json
    assert (done["samples"], done["total_samples"], done["version"]) == (2, 4, "index-v1.json")


def plan(where: Where, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(f"remote: {where.data}\nnodes: 1\nranks: 1\nworkers: 1\nstep_s: 0.01\n")
    done = where.run("plan", path, "--json", "--no-suggestions").json
    assert sum(epoch["samples"] for epoch in done["epochs"]) == 2 * SAMPLES


COMMANDS: dict[str, Callable[[Where, Path], None]] = {
    command.__name__: command
    for command in (
        *(info, head, cat, verify, repair, merge, reshard, cp, ls, diff, state, doctor, bench),
        *(convert, append, plan),
    )
}


@pytest.mark.parametrize("name", COMMANDS)
def test_on_a_folder(folder: Where, tmp_path: Path, name: str) -> None:
    COMMANDS[name](folder, tmp_path)


# Those in which the store makes a difference of its own; the others read as these do.
QUICK = {"verify", "repair", "cp", "ls"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.long]) for n in COMMANDS],
)
def test_on_s3(s3: Where, tmp_path: Path, name: str) -> None:
    COMMANDS[name](s3, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_on_gcs(gcs: Where, tmp_path: Path, name: str) -> None:
    COMMANDS[name](gcs, tmp_path)


def test_the_script_is_installed() -> None:
    import subprocess
    import sys

    script = shutil.which("shardstream", path=os.path.dirname(sys.executable))
    assert script is not None, "install the project again: pip install -e ."
    done = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert "verify" in done.stdout
