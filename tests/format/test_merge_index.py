"""One index of several."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from streaming.format.errors import FormatError
from streaming.format.merge import merge_index
from streaming.format.writer_mds import MDSWriter
from streaming.format.writer_xsv import CSVWriter
from streaming.storage import NotFound, StoreError
from tests.conformance_data import CONFORMANCE
from tests.format.writing import Remote, names, read_all, serve

MERGED = CONFORMANCE / "formats/merged"


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return serve(tmp_path / "remote")


@pytest.fixture(autouse=True)
def _temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr("streaming.storage.retry.RetryPolicy.wait_s", lambda *args: 0.0)


def make(root: Path, *parts: str, writer: Any = MDSWriter, **kwargs: Any) -> Path:
    """Parts of a data set: part i holds 10 i, 10 i + 1, 10 i + 2."""
    for i, part in enumerate(parts):
        with writer(columns={"a": "int"}, out=root / part, **kwargs) as out:
            for j in range(3):
                out.write({"a": 10 * i + j})
    return root


def merged(root: Path) -> list[str]:
    shards = json.loads((root / "index.json").read_text())["shards"]
    return [shard["raw_data"]["basename"] for shard in shards]


def values(root: Path) -> list[int]:
    return [sample["a"] for sample in read_all(root)]


def mds(*parts: str) -> list[str]:
    return [f"{part}/shard.00000.mds" for part in parts]


# As recorded.


def test_the_recorded_data_set(tmp_path: Path) -> None:
    root = shutil.copytree(MERGED, tmp_path / "root")
    (root / "index.json").unlink()
    merge_index(str(root))
    assert (root / "index.json").read_bytes() == (MERGED / "index.json").read_bytes()
    (root / "index.json").unlink()
    merge_index([str(root / f"0000{i}/index.json") for i in range(3)], str(root))
    assert (root / "index.json").read_bytes() == (MERGED / "index.json").read_bytes()


def test_parts_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    make(tmp_path / "x", "10", "9", "8")
    merge_index(str(tmp_path / "x"))
    assert merged(tmp_path / "x") == mds("10", "8", "9")
    make(tmp_path / "y", "a", "a-b", "a.b", "A", "z")
    merge_index(str(tmp_path / "y"))
    assert merged(tmp_path / "y") == mds("A", "a-b", "a.b", "a", "z")


def test_a_list_is_merged_in_its_order(tmp_path: Path) -> None:
    make(tmp_path, "0", "1")
    merge_index([f"{tmp_path}/1/index.json", f"{tmp_path}/0/index.json"], str(tmp_path))
    assert merged(tmp_path) == mds("1", "0")
    assert values(tmp_path) == [10, 11, 12, 0, 1, 2]


def test_the_same_part_twice_counts_once(tmp_path: Path) -> None:
    make(tmp_path, "0", "1")
    merge_index([f"{tmp_path}/0/index.json"] * 2, str(tmp_path))
    assert merged(tmp_path) == mds("0")


def test_parts_elsewhere_are_named_by_their_folder(tmp_path: Path) -> None:
    make(tmp_path / "parts", "0", "1")
    merge_index([f"{tmp_path}/parts/{i}/index.json" for i in range(2)], str(tmp_path / "out"))
    assert merged(tmp_path / "out") == mds("0", "1")
    assert names(tmp_path / "out") == ["index.json"]


def test_compressed_split_shards(tmp_path: Path) -> None:
    make(tmp_path, "0", "1", writer=CSVWriter, compression="zstd", hashes=["md5"])
    merge_index(str(tmp_path))
    shard = json.loads((tmp_path / "index.json").read_text())["shards"][1]
    found = {key: shard[key]["basename"] for key in shard if key[:4] in ("raw_", "zip_")}
    assert found == {
        "raw_data": "1/shard.00000.csv",
        "raw_meta": "1/shard.00000.csv.meta",
        "zip_data": "1/shard.00000.csv.zstd",
        "zip_meta": "1/shard.00000.csv.meta.zstd",
    }
    assert values(tmp_path) == [0, 1, 2, 10, 11, 12]


# Forms.


@pytest.mark.parametrize("suffix", ["", "/", "/index.json"])
def test_folders_or_files(suffix: str, tmp_path: Path) -> None:
    make(tmp_path, "0", "1")
    merge_index([f"{tmp_path}/{i}{suffix}" for i in range(2)], tmp_path)
    assert merged(tmp_path) == mds("0", "1")


def test_forms_of_the_same_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "0", "1")
    monkeypatch.chdir(tmp_path)
    forms: list[Any] = [".", tmp_path, f"{tmp_path}/", f"file://{tmp_path}", (str(tmp_path), "")]
    for form in forms:
        merge_index(form)
        assert merged(tmp_path) == mds("0", "1")
        (tmp_path / "index.json").unlink()
    for parts in (["0", "1/index.json"], [f"file://{tmp_path}/0/index.json", tmp_path / "1"]):
        merge_index(parts, ".", True, 60)
        assert merged(tmp_path) == mds("0", "1")
        (tmp_path / "index.json").unlink()
    monkeypatch.chdir(tmp_path / "0")
    merge_index(["index.json"], "..")
    assert merged(tmp_path) == mds("0")
    with pytest.raises(FormatError, match=r"the index of \. itself"):
        merge_index(["./index.json"], ".")


def test_arguments_by_name(tmp_path: Path) -> None:
    make(tmp_path, "0", "1")
    merge_index(out=str(tmp_path), keep_local=True)
    assert merged(tmp_path) == mds("0", "1")
    merge_index(
        index_file_urls=[f"{tmp_path}/1"], out=str(tmp_path), keep_local=True, download_timeout=9
    )
    assert merged(tmp_path) == mds("1")
    merge_index([f"{tmp_path}/0"], out=str(tmp_path))
    assert merged(tmp_path) == mds("0")


def test_parts_at_any_depth(tmp_path: Path) -> None:
    make(tmp_path, "a/x", "a/y", "b")
    merge_index(str(tmp_path))
    assert merged(tmp_path) == mds("a/x", "a/y", "b")
    assert values(tmp_path) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_a_merged_part_and_its_own_parts_are_one(tmp_path: Path) -> None:
    # The index of m comes after that of m/a, and before that of m/k.
    make(tmp_path, "m/a", "m/k", "n")
    merge_index(str(tmp_path / "m"))
    merge_index(str(tmp_path))
    assert merged(tmp_path) == mds("m/a", "m/k", "n")
    (tmp_path / "m/k/index.json").unlink()
    merge_index(str(tmp_path))
    assert merged(tmp_path) == mds("m/a", "m/k", "n")


def test_merging_again(tmp_path: Path) -> None:
    make(tmp_path, "0", "1")
    merge_index(str(tmp_path))
    make(tmp_path, "2")
    shutil.rmtree(tmp_path / "0")
    merge_index(str(tmp_path))
    assert merged(tmp_path) == mds("1", "2")


def test_unfinished_data_sets_are_passed_over(tmp_path: Path) -> None:
    make(tmp_path, "0", "1")
    writer = MDSWriter(columns={"a": "int"}, out=tmp_path / "0", exist_ok=True)
    writer.write({"a": 99})
    writer.flush_shard()
    writer._pipeline.drain()
    aside = writer._destination.folder
    (aside / "index.json").write_bytes((tmp_path / "0/index.json").read_bytes())
    merge_index(str(tmp_path))
    assert merged(tmp_path) == mds("0", "1")


def test_without_keep_local_no_data_is_lost(tmp_path: Path) -> None:
    """There, it removes the whole folder."""
    make(tmp_path, "0", "1")
    merge_index(str(tmp_path), keep_local=False)
    assert values(tmp_path) == [0, 1, 2, 10, 11, 12]


# Remote.


def test_a_remote_root(remote: Remote) -> None:
    make(remote.root, "0", "a/1")
    merge_index(Remote.url)
    assert merged(remote.root) == mds("0", "a/1")
    assert remote.log == ["put index.json"]
    assert values(remote.root) == [0, 1, 2, 10, 11, 12]


def test_a_list_of_remote_urls(remote: Remote) -> None:
    make(remote.root, "0", "1")
    merge_index([f"{Remote.url}/1/index.json", f"{Remote.url}/0"], Remote.url, storage_options={})
    assert merged(remote.root) == mds("1", "0")


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("local_parts", ["all", "some", "none"])
@pytest.mark.parametrize("as_list", [True, False])
def test_pairs(keep: bool, local_parts: str, as_list: bool, remote: Remote, tmp_path: Path) -> None:
    make(remote.root, "0", "1")
    local = tmp_path / "local"
    make(local, *{"all": ["0", "1"], "some": ["0"], "none": []}[local_parts])
    local.mkdir(exist_ok=True)
    (local / "index.json").write_text('{"version": 2, "shards": []}')
    before = names(local)
    out = (str(local), Remote.url)
    if as_list:
        parts = [(f"{local}/{i}/index.json", f"{Remote.url}/{i}/index.json") for i in range(2)]
        merge_index(parts, out, keep_local=keep)
    else:
        merge_index(out, keep_local=keep)
    assert merged(remote.root) == mds("0", "1")
    assert names(local) == (before if keep else [name for name in before if name != "index.json"])
    if keep:
        assert (local / "index.json").read_bytes() == (remote.root / "index.json").read_bytes()
    read = {name for name in remote.attempts if name.startswith("get ") and "0" in name}
    assert not read or local_parts == "none"


def test_parts_of_a_pair_without_a_local_one(remote: Remote, tmp_path: Path) -> None:
    make(remote.root, "0", "1")
    merge_index([("", f"{Remote.url}/{i}") for i in range(2)], ("", Remote.url))
    assert merged(remote.root) == mds("0", "1")


def test_hiccups_are_no_harm(remote: Remote) -> None:
    make(remote.root, "0", "1")
    remote.fail = lambda what, key: (
        StoreError("held: hiccup", retryable=True)
        if remote.attempts.count(f"{what} {key}") == 1 and what != "list"
        else None
    )
    merge_index(Remote.url)
    assert merged(remote.root) == mds("0", "1")


# Errors.


def test_nothing_to_merge(remote: Remote, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to merge"):
        merge_index([], str(tmp_path))
    for place in (str(tmp_path / "absent"), str(tmp_path), Remote.url, (tmp_path, Remote.url)):
        with pytest.raises(FileNotFoundError, match="nothing to merge"):
            merge_index(place)
    assert remote.log == []


def test_a_part_that_is_not_there(remote: Remote, tmp_path: Path) -> None:
    make(tmp_path, "0")
    with pytest.raises(FileNotFoundError, match=r"7/index\.json"):
        merge_index([str(tmp_path / "0"), str(tmp_path / "7")], str(tmp_path))
    with pytest.raises(NotFound, match=r"held://bucket/data/7/index\.json"):
        merge_index([f"{Remote.url}/7"], Remote.url)
    assert not (tmp_path / "index.json").exists()


def test_a_store_that_fails(remote: Remote) -> None:
    make(remote.root, "0", "1")
    for operation in ("get", "put"):
        remote.fail = lambda what, key, bad=operation: (  # type: ignore[misc]
            StoreError(f"held://bucket/data/{key}: out of order") if what == bad else None
        )
        with pytest.raises(StoreError, match=r"index\.json: out of order"):
            merge_index(Remote.url)
    assert "index.json" not in remote.objects()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not an index"),
        ("{}", "is not an index: KeyError"),
        ("[]", "is not an index"),
        ('{"version": 2, "shards": 3}', "is not an index"),
        ('{"version": 2, "shards": [{"raw_data": {}}]}', "is not an index"),
        ('{"version": 2, "shards": [{"raw_data": {"basename": 3}}]}', "has no name"),
        ('{"version": 3, "shards": []}', "its version is 3"),
    ],
)
def test_a_part_that_is_damaged(content: str, message: str, tmp_path: Path) -> None:
    make(tmp_path, "0", "1")
    (tmp_path / "1/index.json").write_text(content)
    with pytest.raises(FormatError, match=rf"1/index\.json.*{message}"):
        merge_index(str(tmp_path))
    assert not (tmp_path / "index.json").exists()


def test_names_that_clash(tmp_path: Path) -> None:
    make(tmp_path, "x/0", "y/0")
    with pytest.raises(FormatError, match=r"x/0/.*y/0/.* would both be 0/shard\.00000\.mds"):
        merge_index([f"{tmp_path}/x/0", f"{tmp_path}/y/0"], str(tmp_path / "out"))
    merge_index([f"{tmp_path}/x/0", f"{tmp_path}/y/0"], str(tmp_path))
    assert merged(tmp_path) == mds("x/0", "y/0")


def test_a_data_set_of_its_own_is_not_lost(remote: Remote, tmp_path: Path) -> None:
    for root, place in ((tmp_path / "root", str(tmp_path / "root")), (remote.root, Remote.url)):
        make(root, "", "0", exist_ok=True)
        before = (root / "index.json").read_bytes()
        with pytest.raises(FormatError, match="would lose it"):
            merge_index(place)
        assert (root / "index.json").read_bytes() == before
        with pytest.raises(FormatError, match=r"the index of .* itself"):
            merge_index([f"{place}/index.json"], place)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((), {}, TypeError, "merge_index: missing a required argument: 'out'"),
        ((["a"],), {}, TypeError, "merge_index: missing a required argument: 'out'"),
        (("a",), {"foo": 3}, TypeError, "merge_index: got an unexpected keyword argument 'foo'"),
        (("a", True, 60, None, 3), {}, TypeError, "merge_index: too many positional"),
        (("a",), {"download_timeout": 0}, ValueError, "download_timeout is 0"),
        ((["a"], 3), {}, TypeError, "out is 3"),
        ((["a", 3], "b"), {}, TypeError, "3"),
    ],
)
def test_wrong_arguments(
    args: Any, kwargs: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        merge_index(*args, **kwargs)
