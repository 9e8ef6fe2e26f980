"""`cp`, `merge`, `reshard` and `diff`: data sets made of data sets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from streaming import CSVWriter, JSONWriter, LocalDataset, MDSWriter, StreamingDataset, XSVWriter
from tests.cli.conftest import Cli
from tests.data import text_of, write_numbers
from tests.servers.fixtures import Bucket
from tests.servers.proxy import Fault


def ids(folder: Path) -> list[int]:
    dataset = LocalDataset(str(folder))
    samples = [dataset[i] for i in range(len(dataset))]
    assert all(sample["text"] == text_of(sample["id"]) for sample in samples)
    return [sample["id"] for sample in samples]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_numbers(tmp_path / "source", 45, compression="zstd", hashes=["sha1"])


# cp


def test_cp_to_a_bucket_and_back(cli: Cli, bucket: Bucket, source: Path, tmp_path: Path) -> None:
    done = cli("cp", source, f"{bucket.url}/v1", "--json").json
    assert done["files"] == 6
    puts = [seen.path.rpartition("/")[2] for seen in bucket.proxy.matching("", "PUT")]
    assert puts[-1] == "index.json"
    cli("cp", f"{bucket.url}/v1", tmp_path / "back")
    assert files(tmp_path / "back") == files(source)
    cli("cp", f"{bucket.url}/v1", f"{bucket.url}/v2")
    assert cli("verify", f"{bucket.url}/v2", "--json").json["ok"]


def test_cp_does_not_replace_unless_told(cli: Cli, source: Path, tmp_path: Path) -> None:
    other = write_numbers(tmp_path / "other", 5)
    assert "--force replaces it" in cli("cp", source, other, status=2).err
    assert ids(other) == list(range(5))
    cli("cp", source, other, "--force")
    assert ids(other) == list(range(45))
    assert "is both" in cli("cp", source, f"{source}/", status=2).err


def test_cp_of_a_damaged_data_set_publishes_nothing(cli: Cli, source: Path, tmp_path: Path) -> None:
    path = source / "shard.00002.mds.zstd"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert "its sha1 is" in cli("cp", source, tmp_path / "out", status=2).err
    assert not (tmp_path / "out" / "index.json").exists()
    path.unlink()
    assert "shard.00002.mds.zstd" in cli("cp", source, tmp_path / "out", status=2).err


def test_cp_goes_on_where_it_was(cli: Cli, bucket: Bucket, source: Path) -> None:
    bucket.proxy.add(Fault(status=403, key=r"shard\.00003", method="PUT", times=1))
    cli("cp", source, bucket.url, status=2)
    assert "index.json" not in set(bucket.keys())
    bucket.put("shard.00000.mds.zstd", b"rubbish")
    done = cli("cp", source, bucket.url, "--resume", "--workers", 1, "--json").json
    assert done["kept"] >= 1
    assert done["kept"] + done["files"] == 6
    assert cli("verify", bucket.url, "--json").json["ok"]


# merge


def test_merge(cli: Cli, tmp_path: Path) -> None:
    for number, part in enumerate(("b", "a", "c")):
        write_numbers(tmp_path / "all" / part, 10, start=10 * number)
    done = cli("merge", tmp_path / "all", "--json").json
    assert (done["samples"], done["shards"]) == (30, 3)
    assert ids(tmp_path / "all") == [*range(10, 20), *range(10), *range(20, 30)]
    parts = [tmp_path / "all" / part for part in ("b", "a")]
    cli("merge", tmp_path / "all", *parts)
    assert ids(tmp_path / "all") == list(range(20))


def test_merge_of_parts_that_are_elsewhere(cli: Cli, tmp_path: Path) -> None:
    near = write_numbers(tmp_path / "all" / "near", 10)
    far = write_numbers(tmp_path / "far", 10, start=10)
    assert "--copy brings it there" in cli("merge", tmp_path / "all", near, far, status=2).err
    done = cli("merge", tmp_path / "all", near, far, "--copy", "--json").json
    assert done["copied"] == [str(far)]
    assert ids(tmp_path / "all") == list(range(20))
    assert cli("verify", tmp_path / "all", "--json").json["ok"]


def test_merge_of_nothing(cli: Cli, tmp_path: Path) -> None:
    assert "nothing to merge" in cli("merge", tmp_path, status=2).err


# reshard


def test_reshard(cli: Cli, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--size-limit", "2kb", "--compression", "none", "--hash", "xxh64", "--hash", "md5")
    done = cli("reshard", source, out, *options, "--json").json
    assert done["samples"] == 45
    assert done["shards"] == len(list(out.glob("shard.*.mds")))
    assert ids(out) == list(range(45))
    (schema,) = cli("info", out, "--json").json["schemas"]
    assert (schema["compression"], schema["hashes"]) == (None, ["md5", "xxh64"])
    assert schema["size_limit"] == 2048
    assert cli("verify", out, "--decode", "all", "--json").json["ok"]
    cli("reshard", out, tmp_path / "same", "--compression", "zstd:5", "--hash", "none")
    (schema,) = cli("info", tmp_path / "same", "--json").json["schemas"]
    assert (schema["compression"], schema["hashes"]) == ("zstd:5", [])
    assert "not empty" in cli("reshard", source, out, status=2).err


def test_reshard_keeps_what_is_not_said(cli: Cli, source: Path, tmp_path: Path) -> None:
    cli("reshard", source, tmp_path / "out")
    assert files(tmp_path / "out") == files(source)


def test_reshard_shuffles_by_a_seed(cli: Cli, source: Path, tmp_path: Path) -> None:
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        cli("reshard", source, tmp_path / name, "--shuffle", "--seed", seed)
        orders.append(ids(tmp_path / name))
    assert orders[0] == orders[1] != orders[2]
    assert all(sorted(order) == list(range(45)) != order for order in orders)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_reshard_from_a_bucket_to_a_bucket(cli: Cli, bucket: Bucket, source: Path) -> None:
    cli("cp", source, f"{bucket.url}/v1")
    cli("reshard", f"{bucket.url}/v1", f"{bucket.url}/v2", "--size-limit", "3kb", "--shuffle")
    found = cli("diff", f"{bucket.url}/v1", f"{bucket.url}/v2", "--json", status=1).json
    assert found["only"] == [0, 0]
    assert found["moved"] > 30


@pytest.mark.parametrize("kind", [CSVWriter, JSONWriter, XSVWriter])
def test_reshard_of_text(cli: Cli, tmp_path: Path, kind: Any) -> None:
    more = {"separator": " | "} if kind is XSVWriter else {}
    columns = {"n": "int", "word": "str"}
    with kind(out=str(tmp_path / "a"), columns=columns, size_limit=200, **more) as out:
        for number in range(50):
            out.write({"n": number, "word": f"word {number}"})
    cli("reshard", tmp_path / "a", tmp_path / "b", "--size-limit", "400", "--hash", "sha1")
    assert cli("verify", tmp_path / "b", "--decode", "all", "--json").json["ok"]
    found = cli("diff", tmp_path / "a", tmp_path / "b", "--json").json
    assert found["ok"]
    assert found["shards"][0] > found["shards"][1]


def test_reshard_does_not_touch_images(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with MDSWriter(out=str(tmp_path / "a"), columns={"x": "jpeg"}) as out:
        for _ in range(4):
            out.write({"x": Image.fromarray(rng.integers(0, 255, (9, 9, 3), np.uint8))})
    cli("reshard", tmp_path / "a", tmp_path / "b", "--compression", "gz")
    cli("diff", tmp_path / "a", tmp_path / "b")


def test_reshard_does_not_launder_damage(cli: Cli, tmp_path: Path) -> None:
    source = write_numbers(tmp_path / "source", 20, hashes=["sha1"])
    data = bytearray((source / "shard.00001.mds").read_bytes())
    data[-3] ^= 1
    (source / "shard.00001.mds").write_bytes(data)
    for more in ([], ["--shuffle"]):
        assert "its sha1 is" in cli("reshard", source, tmp_path / "out", *more, status=2).err
        assert not (tmp_path / "out" / "index.json").exists()


def test_what_can_be_resharded_can_be_streamed(cli: Cli, source: Path, tmp_path: Path) -> None:
    cli("reshard", source, tmp_path / "out", "--size-limit", "3kb")
    dataset = StreamingDataset(
        remote=str(tmp_path / "out"), local=str(tmp_path / "cache"), batch_size=4
    )
    assert sorted(sample["id"] for sample in dataset) == list(range(45))


def test_reshard_of_a_cache_that_keeps_compressed_shards_raw(
    cli: Cli, bucket: Bucket, source: Path, tmp_path: Path
) -> None:
    dataset = StreamingDataset(remote=str(source), local=str(tmp_path / "cache"), batch_size=1)
    assert len(list(dataset)) == 45
    assert "cache of a compressed" in cli("cp", tmp_path / "cache", tmp_path / "x", status=2).err
    cli("reshard", tmp_path / "cache", tmp_path / "out")
    assert files(tmp_path / "out") == files(source)
    for path in (tmp_path / "cache").iterdir():
        bucket.put(path.name, path.read_bytes())
    assert cli("diff", bucket.url, source, "--json").json["ok"]


# diff


def test_diff_of_the_same(cli: Cli, source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "copy")
    found = cli("diff", source, tmp_path / "copy", "--json").json
    assert found["ok"]
    assert "the same samples in the same order" in cli("diff", source, tmp_path / "copy").out


def test_diff_says_which_samples(cli: Cli, tmp_path: Path) -> None:
    def write(name: str, numbers: list[int]) -> Path:
        with MDSWriter(out=str(tmp_path / name), columns={"n": "int"}, size_limit=300) as out:
            for number in numbers:
                out.write({"n": number})
        return tmp_path / name

    one = write("one", [0, 1, 2, 3, 4, 4, 5])
    other = write("other", [0, 1, 9, 3, 5, 4])
    found = cli("diff", one, other, "--json", status=1).json
    assert found["samples"] == [7, 6]
    assert found["only"] == [2, 1]
    assert found["only_ids"] == [[2, 5], [2]]
    assert found["changed"] == [2, 4, 5][:2]
    assert found["moved"] == 1
    out = cli("diff", one, other, status=1).out
    assert "DIFFERENT" in out
    assert f"only in {other}: 2 (1 in all)" in out


def test_diff_of_schemas(cli: Cli, tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path / "mds"), columns={"n": "int32", "word": "str"}) as out:
        for number in range(5):
            out.write({"n": number, "word": f"w{number}"})
    with JSONWriter(out=str(tmp_path / "json"), columns={"word": "str", "m": "int"}) as out:
        for number in range(5):
            out.write({"m": number, "word": f"w{number}"})
    found = cli("diff", tmp_path / "mds", tmp_path / "json", "--json", status=1).json
    assert found["formats"] == [["mds"], ["json"]]
    assert [[c["name"] for c in side] for side in found["columns_only"]] == [["n"], ["m"]]
    assert found["compared"] == ["word"]
    assert found["only"] == [0, 0]
