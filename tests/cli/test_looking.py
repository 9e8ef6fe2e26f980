"""`info`, `head`, `cat`, `ls` and `state`: looking at what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset, XSVWriter
from tests.cli.conftest import Cli
from tests.conformance_data import CONFORMANCE
from tests.data import text_of, write_numbers
from tests.servers.fixtures import Bucket

FORMATS = CONFORMANCE / "formats"


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("numbers") / "data", 35, hashes=["sha1"])


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values of every kind that is shown in a way of its own."""
    out = tmp_path_factory.mktemp("mixed") / "data"
    columns = {
        "array": "ndarray",
        "blob": "bytes",
        "photo": "jpeg",
        "drawing": "png",
        "list": "list[png]",
        "meta": "json",
        "number": "float64",
        "text": "str",
    }
    image = Image.fromarray(np.arange(12 * 8 * 3, dtype=np.uint8).reshape(8, 12, 3))
    with MDSWriter(out=str(out), columns=columns) as writer:
        for i in range(3):
            writer.write(
                {
                    "array": np.full((2, 3), i, np.int16),
                    "blob": bytes(range(100)),
                    "photo": image,
                    "drawing": image,
                    "list": [image, image],
                    "meta": {"nested": [i, None, "x"]},
                    "number": float("nan") if i == 1 else i / 2,
                    "text": "\x1b[31mred\n" if i == 1 else "long " * 1000,
                }
            )
    return out


def test_info(cli: Cli, numbers: Path) -> None:
    found = cli("info", numbers, "--json").json
    assert (found["samples"], found["shards"]) == (35, 4)
    assert found["raw_bytes"] == sum(p.stat().st_size for p in numbers.glob("shard.*"))
    assert found["stored_bytes"] == found["raw_bytes"]
    (schema,) = found["schemas"]
    assert schema["columns"] == [
        {"name": "id", "encoding": "int", "bytes": 8},
        {"name": "text", "encoding": "str", "bytes": None},
    ]
    assert (schema["hashes"], schema["compression"], schema["shards"]) == (["sha1"], None, 4)
    assert found["samples_per_shard"] == {"least": 5, "mean": 8.75, "most": 10}
    out = cli("info", f"{numbers}/index.json").out
    assert "sha1" in out
    assert "varies" in out


@pytest.mark.parametrize("name", sorted(path.parent.name for path in FORMATS.glob("*/index.json")))
def test_info_of_every_format(cli: Cli, name: str) -> None:
    found = cli("info", FORMATS / name, "--json").json
    assert found["shards"] == sum(schema["shards"] for schema in found["schemas"])
    assert found["samples"] == sum(schema["samples"] for schema in found["schemas"])
    assert all(schema["columns"] for schema in found["schemas"])
    assert str(FORMATS / name) in cli("info", FORMATS / name).out


def test_info_of_merged_data_sets_is_a_tree(cli: Cli, tmp_path: Path) -> None:
    for part in ("a/0", "a/1", "b"):
        write_numbers(tmp_path / part, 20)
    cli("merge", tmp_path)
    tree = cli("info", tmp_path, "--json").json["tree"]
    assert [(f["name"], f["samples"]) for f in tree["folders"]] == [("a", 40), ("b", 20)]
    assert [f["name"] for f in tree["folders"][0]["folders"]] == ["0", "1"]
    assert "── b: 2 shards, 20 samples" in cli("info", tmp_path).out


def test_head(cli: Cli, numbers: Path) -> None:
    lines = cli("head", numbers, "-n", 12, "--json").lines
    assert [line["id"] for line in lines] == list(range(12))
    assert lines[11]["sample"] == {"id": 11, "text": text_of(11)}
    assert len(cli("head", numbers, "--json").lines) == 5
    assert len(cli("head", numbers, "-n", 1000, "--json").lines) == 35
    assert text_of(0) in cli("head", numbers, "-n", 1).out


def test_cat(cli: Cli, numbers: Path) -> None:
    def ids(*chosen: str) -> list[int]:
        return [line["sample"]["id"] for line in cli("cat", numbers, *chosen, "--json").lines]

    assert ids() == list(range(35))
    assert ids("7", "-1", "3:6", "::20", "7") == [7, 34, 3, 4, 5, 0, 20, 7]
    only = cli("cat", numbers, "3", "-c", "id", "--json").lines
    assert only == [{"id": 3, "sample": {"id": 3}}]
    assert "there is no sample 35" in cli("cat", numbers, "35", status=2).err
    assert "there is no column 'x'" in cli("cat", numbers, "3", "-c", "x", status=2).err
    assert "'seven' is no sample" in cli("cat", numbers, "seven", status=2).err
    assert "no option --colum" in cli("cat", numbers, "--colum", "3", status=2).err


@pytest.mark.parametrize(
    "name",
    sorted({path.parent.name for path in FORMATS.glob("*/index.json")} - {"mds_pkl"}),
)
def test_cat_of_every_format(cli: Cli, name: str) -> None:
    lines = cli("cat", FORMATS / name, "--json").lines
    assert len(lines) == cli("info", FORMATS / name, "--json").json["samples"]


def test_values_of_every_kind(cli: Cli, mixed: Path, tmp_path: Path) -> None:
    samples = [line["sample"] for line in cli("cat", mixed, "--json").lines]
    array = {"ndarray": "int16", "shape": [2, 3], "min": 1, "max": 1, "mean": 1.0}
    assert samples[1]["array"] == array
    assert samples[1]["number"] == "nan"
    assert samples[0]["meta"] == {"nested": [0, None, "x"]}
    assert samples[0]["blob"] == {"bytes": 100, "hex": bytes(range(32)).hex()}
    assert samples[0]["text"] == {"str": 5000, "begin": ("long " * 100)}
    assert samples[0]["photo"] == {"image": "JPEG", "mode": "RGB", "size": [12, 8]}
    full = cli("cat", mixed, "0", "--full", "--json").lines[0]["sample"]
    assert full["text"] == "long " * 1000
    assert full["array"]["values"] == [[0, 0, 0], [0, 0, 0]]
    out = cli("cat", mixed, "1").out
    assert "\x1b" not in out
    assert "\\x1b[31mred\\n" in out
    assert "ndarray int16 2x3, min 1, max 1, mean 1" in out


def test_images_are_saved(cli: Cli, mixed: Path, tmp_path: Path) -> None:
    lines = cli("head", mixed, "-n", 2, "--save-images", tmp_path / "out", "--json").lines
    names = {path.name for path in (tmp_path / "out").iterdir()}
    kinds = ("photo.jpg", "drawing.png", "list.png", "list.1.png")
    assert names == {f"{number:08}.{kind}" for number in (0, 1) for kind in kinds}
    assert Image.open(lines[1]["sample"]["drawing"]["saved"]).size == (12, 8)


def test_pkl_is_refused_unless_allowed(cli: Cli) -> None:
    assert "--allow-unsafe-types" in cli("head", FORMATS / "mds_pkl", status=2).err
    assert cli("head", FORMATS / "mds_pkl", "--allow-unsafe-types").out


@pytest.mark.parametrize("kind", ["mds", "xsv"])
def test_a_few_samples_of_a_remote_shard_are_read_by_ranges(
    cli: Cli, bucket: Bucket, kind: str
) -> None:
    columns = {"id": "int", "text": "str"}
    if kind == "mds":
        out: Any = MDSWriter(out=bucket.url, columns=columns)
    else:
        out = XSVWriter(out=bucket.url, columns=columns, separator="|")
    with out:
        for number in range(100):
            out.write({"id": number, "text": text_of(number)})
    bucket.proxy.seen.clear()
    lines = cli("cat", bucket.url, "3", "99", "--json").lines
    assert [line["sample"] for line in lines] == [
        {"id": number, "text": text_of(number)} for number in (3, 99)
    ]
    asked = bucket.proxy.matching(r"shard\.", "GET")
    assert len(asked) == 3, "the table of offsets, and each sample"


def test_ls(cli: Cli, tmp_path: Path) -> None:
    write_numbers(tmp_path / "sets" / "one", 20)
    write_numbers(tmp_path / "sets" / "two", 20)
    (tmp_path / "notes.txt").write_text("hello")
    entries = cli("ls", tmp_path, "--json").json["entries"]
    assert entries == [
        {"name": "notes.txt", "kind": "file", "bytes": None, "files": 1},
        {"name": "sets/", "kind": "folder", "bytes": None, "files": 6},
    ]
    found = cli("ls", tmp_path / "sets", "-l", "--json").json
    size = sum(p.stat().st_size for p in (tmp_path / "sets" / "one").iterdir())
    assert found["entries"][0] == {"name": "one/", "kind": "dataset", "bytes": size, "files": 3}
    inside = cli("ls", tmp_path / "sets" / "one", "--json").json
    assert inside["is_dataset"]
    assert [entry["name"] for entry in inside["entries"]][:2] == ["index.json", "shard.00000.mds"]
    names = {entry["name"] for entry in cli("ls", tmp_path, "-r", "--json").json["entries"]}
    assert "sets/two/shard.00001.mds" in names
    assert "dataset" in cli("ls", tmp_path / "sets").out
    assert "there is no such folder" in cli("ls", tmp_path / "absent", status=2).err
    (tmp_path / "empty").mkdir()
    assert "there is nothing" in cli("ls", tmp_path / "empty", status=2).err


def states(tmp_path: Path, numbers: Path) -> dict[str, Any]:
    dataset = StreamingDataset(local=str(numbers), batch_size=5)
    loader = StreamingDataLoader(dataset, batch_size=5)
    for _, _ in zip(range(3), loader, strict=False):
        pass
    state = loader.state_dict()
    assert state is not None
    return {"step": 3, "nested": {"loaders": [state]}}


def test_state_in_json(cli: Cli, numbers: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    content = states(tmp_path, numbers)
    path.write_text(json.dumps(content))
    found = cli("state", path, "--json").json
    assert found["kind"] == "json"
    (state,) = found["datasets"]
    assert state["where"] == "nested.loaders[0]"
    assert state["values"] == content["nested"]["loaders"][0]
    assert state["values"]["sample_in_epoch"] == 15
    assert "sample_in_epoch" in cli("state", path).out


def test_state_in_a_torch_file(cli: Cli, numbers: Path, tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    model = torch.nn.Linear(2, 3).state_dict()
    torch.save({"model": model, "data": states(tmp_path, numbers)}, path)
    found = cli("state", path, "--json").json
    assert found["kind"] == "torch"
    assert found["datasets"][0]["where"] == "data.nested.loaders[0]"
    assert {entry["name"] for entry in found["entries"]} == {"model", "data"}


class Evil:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('code of the file was run')",))


def test_state_runs_no_code(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "evil.pt"
    torch.save({"x": Evil()}, path)
    assert "neither JSON nor a file of torch.save" in cli("state", path, status=2).err


def test_states_that_cannot_be_loaded(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"loader": {"epoch": 1, "sample_in_epoch": -3}}))
    found = cli("state", path, "--json", status=1).json
    assert "num_canonical_nodes" in found["datasets"][0]["problem"]
    path.write_text('{"model": [1, 2]}')
    assert "holds no state" in cli("state", path, status=1).out
    path.write_text('{"model": [1, 2]')
    assert "is not JSON" in cli("state", path, status=2).err
    assert "no such file" in cli("state", tmp_path / "absent", status=2).err.lower()
