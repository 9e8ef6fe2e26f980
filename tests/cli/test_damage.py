"""Damage of many kinds: `verify` finds it and says what it is, `repair` mends it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming import CSVWriter, MDSWriter
from tests.cli.conftest import Cli
from tests.data import write_numbers
from tests.servers.fixtures import Bucket
from tests.servers.proxy import Fault

HASHES = ["sha1", "xxh64"]
FIRST_SAMPLE = 4 * 12
"""Where the header ends the table of offsets in a shard of 10 samples."""


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def change_index(folder: Path, change: Callable[[list[Any]], None]) -> None:
    path = folder / "index.json"
    index = json.loads(path.read_text())
    change(index["shards"])
    path.write_text(json.dumps(index))


def swap(one: Path, other: Path) -> None:
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def shard(folder: Path, number: int = 1, suffix: str = "") -> Path:
    return folder / f"shard.{number:05}.mds{suffix}"


def claim_samples(shards: list[Any]) -> None:
    shards[1]["samples"] -= 1


MDS: dict[str, tuple[Callable[[Path], Any], set[str]]] = {
    "truncated": (lambda d: shard(d).write_bytes(shard(d).read_bytes()[:-7]), {"size"}),
    "emptied": (lambda d: shard(d).write_bytes(b""), {"size"}),
    "longer": (lambda d: shard(d).write_bytes(shard(d).read_bytes() + b"x"), {"size"}),
    "payload": (lambda d: flip(shard(d), -5), {"hash"}),
    "number of samples": (lambda d: flip(shard(d), 0), {"hash", "offsets"}),
    "offsets": (lambda d: flip(shard(d), 9), {"hash", "offsets"}),
    "header": (lambda d: flip(shard(d), FIRST_SAMPLE + 30), {"hash", "header"}),
    "missing shard": (lambda d: shard(d).unlink(), {"missing"}),
    "swapped shards": (lambda d: swap(shard(d, 1), shard(d, 2)), {"hash"}),
    "sample count in the index": (lambda d: change_index(d, claim_samples), {"offsets"}),
    "index cut off": (lambda d: (d / "index.json").write_text('{"version": 2, "sh'), {"index"}),
    "missing index": (lambda d: (d / "index.json").unlink(), {"missing"}),
    "shards named twice": (
        lambda d: change_index(d, lambda s: s[2].update(raw_data=s[1]["raw_data"])),
        {"index"},
    ),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("whole") / "data", 50, hashes=HASHES)


def copy_of(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check_and_mend(cli: Cli, whole: Path, copy: Path, kinds: set[str], *more: str) -> Any:
    """See that exactly such damage is found, and none is left after mending."""
    found = cli("verify", copy, "--json", *more, status=1).json
    assert not found["ok"]
    assert {problem["kind"] for problem in found["problems"]} == kinds, found["problems"]
    mended = cli("repair", copy, whole, "--json", *more).json
    assert mended["ok"]
    assert mended["problems"]
    assert mended["replaced"]
    assert cli("verify", copy, "--json", *more).json["ok"]
    return found["problems"]


@pytest.mark.parametrize("name", MDS)
def test_damage_is_found_and_mended(cli: Cli, whole: Path, tmp_path: Path, name: str) -> None:
    copy = copy_of(whole, tmp_path)
    damage, kinds = MDS[name]
    damage(copy)
    problems = check_and_mend(cli, whole, copy, kinds)
    assert files(copy) == files(whole)
    if "index" not in name and "twice" not in name:
        assert {p["shard"] for p in problems} <= {1, 2}
        assert all(p["file"].startswith("shard.0000") for p in problems)


def test_a_whole_data_set_is_whole(cli: Cli, whole: Path) -> None:
    found = cli("verify", whole, "--decode", "all", "--json").json
    assert found["ok"]
    assert (found["shards"], found["samples"], found["decoded"]) == (5, 50, 50)
    assert found["bytes"] == sum(p.stat().st_size for p in whole.glob("shard.*"))
    assert cli("verify", whole, "--decode", "10%", "--json").json["decoded"] == 5
    assert cli("verify", whole, "--decode", "none", "--json").json["decoded"] == 0
    assert "whole" in cli("verify", whole).out
    mended = cli("repair", whole, f"file://{whole.parent}/./data", status=2)
    assert "from itself" in mended.err


def test_repair_leaves_what_is_whole_alone(cli: Cli, whole: Path, tmp_path: Path) -> None:
    copy = copy_of(whole, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in copy.iterdir()}
    assert cli("repair", copy, whole, "--json").json["replaced"] == []
    flip(shard(copy, 3), -1)
    assert cli("repair", copy, whole, "--json").json["replaced"] == ["shard.00003.mds"]
    changed = {p.name for p, at in before.items() if p.stat().st_mtime_ns != at}
    assert changed - {"shard.00003.mds"} == set()


def test_damage_without_hashes(cli: Cli, tmp_path: Path) -> None:
    whole = write_numbers(tmp_path / "whole", 30)
    note = "has no hash of 3 files"
    assert note in cli("verify", whole).out
    for at, kind, decode in (
        (9, "offsets", "none"),
        (FIRST_SAMPLE + 30, "header", "none"),
        (-50, "sample", "all"),
    ):
        copy = Path(shutil.copytree(whole, tmp_path / f"{kind}"))
        flip(shard(copy), at)
        problems = check_and_mend(cli, whole, copy, {kind}, "--decode", decode)
        assert files(copy) == files(whole)
        if kind == "sample":
            assert [p["sample"] for p in problems] == [19]
            assert "'text'" in problems[0]["message"]


ZIP: dict[str, tuple[Callable[[Path], Any], set[str]]] = {
    "zip truncated": (
        lambda d: shard(d, 1, ".zstd").write_bytes(shard(d, 1, ".zstd").read_bytes()[:-3]),
        {"size"},
    ),
    "zip damaged": (lambda d: flip(shard(d, 1, ".zstd"), 0), {"hash", "compression"}),
    "zip of another shard": (
        lambda d: swap(shard(d, 1, ".zstd"), shard(d, 2, ".zstd")),
        {"hash", "size", "compression"},
    ),
    "zip missing": (lambda d: shard(d, 1, ".zstd").unlink(), {"missing"}),
}


@pytest.mark.parametrize("name", ZIP)
def test_damage_of_compressed_shards(cli: Cli, tmp_path: Path, name: str) -> None:
    whole = write_numbers(tmp_path / "whole", 50, compression="zstd", hashes=HASHES)
    copy = copy_of(whole, tmp_path)
    damage, kinds = ZIP[name]
    damage(copy)
    found = cli("verify", copy, "--json", status=1).json
    got = {problem["kind"] for problem in found["problems"]}
    assert got, name
    assert got <= kinds
    assert cli("repair", copy, whole, "--json").json["ok"]
    assert files(copy) == files(whole)


def test_a_cache_of_compressed_shards_is_mended_raw(cli: Cli, tmp_path: Path) -> None:
    from streaming import StreamingDataset

    whole = write_numbers(tmp_path / "whole", 50, compression="zstd", hashes=HASHES)
    cache = tmp_path / "cache"
    dataset = StreamingDataset(remote=str(whole), local=str(cache), batch_size=1)
    for number in (0, 15, 25):
        dataset[number]
    del dataset
    found = cli("verify", cache, "--json", status=1).json
    assert {p["kind"] for p in found["problems"]} == {"missing"}
    found = cli("verify", cache, "--present", "--json").json
    assert found["absent"] == 2
    before = files(cache)
    flip(shard(cache), -5)
    shard(cache, 2).write_bytes(b"short")
    assert cli("repair", cache, whole, "--present", "--json").json["replaced"] == [
        "shard.00001.mds",
        "shard.00002.mds",
    ]
    assert files(cache) == before
    cli("repair", cache, whole)
    assert sorted(p.name for p in cache.glob("shard.*")) == [f"shard.0000{i}.mds" for i in range(5)]


def test_damage_of_text_shards(cli: Cli, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    with CSVWriter(
        out=str(whole), columns={"a": "str", "n": "int"}, size_limit=100, hashes=["md5"]
    ) as out:
        for number in range(30):
            out.write({"a": f"text {number}", "n": number})
    meta = "shard.00001.csv.meta"
    for name, damage, kinds in (
        ("no meta", lambda d: (d / meta).unlink(), {"missing"}),
        ("offsets", lambda d: flip(d / meta, 5), {"hash", "offsets"}),
        ("header", lambda d: flip(d / meta, -3), {"hash", "header"}),
        ("text", lambda d: flip(d / "shard.00001.csv", 8), {"hash", "sample"}),
    ):
        copy = Path(shutil.copytree(whole, tmp_path / name))
        damage(copy)
        check_and_mend(cli, whole, copy, kinds, "--decode", "all")
        assert files(copy) == files(whole)


def test_pkl_columns_are_not_decoded_unless_allowed(cli: Cli, tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path / "d"), columns={"x": "pkl"}) as out:
        out.write({"x": {1, 2}})
    found = cli("verify", tmp_path / "d", "--decode", "all", "--json").json
    assert found["decoded"] == 0
    assert "runs code" in found["notes"][0]
    allowed = ("--decode", "all", "--allow-unsafe-types", "--json")
    assert cli("verify", tmp_path / "d", *allowed).json["decoded"] == 1


def test_remote_damage(cli: Cli, bucket: Bucket, whole: Path, tmp_path: Path) -> None:
    for path in whole.iterdir():
        bucket.put(f"v1/{path.name}", path.read_bytes())
    assert cli("verify", f"{bucket.url}/v1", "--decode", "all", "--json").json["decoded"] == 50
    bucket.put("v1/shard.00001.mds", shard(whole).read_bytes()[:-1])
    bucket.direct.delete_object(Bucket=bucket.name, Key="v1/shard.00002.mds")
    found = cli("verify", f"{bucket.url}/v1", "--json", status=1).json
    assert [(p["kind"], p["shard"]) for p in found["problems"]] == [("size", 1), ("missing", 2)]
    # A bucket is mended from a folder as well.
    assert cli("repair", f"{bucket.url}/v1", whole, "--json").json["ok"]
    assert bucket.read("v1/shard.00001.mds") == shard(whole).read_bytes()


def test_what_cannot_be_read_is_a_problem(cli: Cli, bucket: Bucket, whole: Path) -> None:
    for path in whole.iterdir():
        bucket.put(f"v1/{path.name}", path.read_bytes())
    bucket.proxy.add(Fault(status=403, key=r"shard\.00003"))
    found = cli("verify", f"{bucket.url}/v1", "--json", status=1).json
    assert [(p["kind"], p["shard"]) for p in found["problems"]] == [("unreadable", 3)]


def test_repair_from_a_damaged_remote_says_so(cli: Cli, whole: Path, tmp_path: Path) -> None:
    source, copy = copy_of(whole, tmp_path), tmp_path / "other"
    shutil.copytree(whole, copy)
    flip(shard(source), -1)
    shard(copy).unlink()
    assert "its sha1 is" in cli("repair", copy, source, status=2).err
    assert not shard(copy).exists()
