"""The index: what it says in columns, and each way in which a file can be wrong."""

import copy
import json
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.format.checks import check_basename
from streaming.format.columns import Digests, Names
from streaming.format.errors import FormatError
from streaming.format.index import Index, get_index_basename
from streaming.format.json_stream import json_members
from streaming.format.shards import ShardList
from tests.conformance_data import CONFORMANCE

FORMATS = CONFORMANCE / "formats"
NAMES = sorted(path.parent.name for path in FORMATS.glob("*/index.json"))


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FORMATS / name / "index.json").read_text())
    return found


def parse(obj: Any, source: str = "index.json") -> Index:
    return Index.parse(json.dumps(obj).encode(), source)


@pytest.mark.parametrize("name", NAMES)
def test_columns_say_what_the_file_says(name: str) -> None:
    obj = load(name)
    index = parse(obj)
    shards = obj["shards"]
    assert len(index) == len(shards)
    assert [index.config(i) for i in range(len(index))] == shards
    assert index.samples.tolist() == [shard["samples"] for shard in shards]
    assert index.offsets.tolist()[-1] == index.num_samples == sum(index.samples)
    assert index.offsets.dtype == index.samples.dtype == np.int64
    for at, shard in enumerate(shards):
        fields = [field for field in ("raw_meta", "raw_data") if field in shard]
        pairs = index.files(at)
        for (raw, zipped), field in zip(pairs, fields, strict=True):
            about = shard[field]
            assert (raw.basename, raw.bytes, raw.hashes) == tuple(
                about[key] for key in ("basename", "bytes", "hashes")
            )
            about = shard[field.replace("raw", "zip")]
            assert (zipped is None) == (about is None)
            if zipped is not None:
                assert (zipped.basename, zipped.bytes) == (about["basename"], about["bytes"])
        assert index.raw_bytes[at] == sum(raw.bytes for raw, _ in pairs)
        assert index.zip_bytes[at] == sum(zipped.bytes for _, zipped in pairs if zipped)


def test_shards_of_several_formats_in_one_index() -> None:
    parts = [load(name)["shards"] for name in ("csv", "mds_zstd", "jsonl_zstd", "mds_encodings")]
    shards = [part[i] for i in range(2) for part in parts]
    index = parse({"version": 2, "shards": shards})
    assert [index.config(i) for i in range(8)] == shards
    assert len(index.schemas) == 4
    assert (index.zip_bytes > 0).tolist() == [False, True, True, False] * 2


def test_no_shards() -> None:
    index = parse({"version": 2, "shards": []})
    assert (len(index), index.num_samples, index.offsets.tolist()) == (0, 0, [0])
    assert index.raw_bytes.shape == index.zip_bytes.shape == (0,)
    index.validate_safe(False)


def test_keys_that_are_not_ours_are_kept() -> None:
    obj = load("mds_zstd")
    obj["shards"][1]["note"] = {"by": "somebody"}
    obj["note"] = [1, {"shards": []}]
    index = parse(obj)
    assert [index.config(i) for i in range(len(index))] == obj["shards"]


def test_no_such_shard() -> None:
    index = parse(load("mds_zstd"))
    for number in (-1, 4):
        with pytest.raises(IndexError, match="4 shards"):
            index.files(number)


def edit(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(obj: dict[str, Any]) -> None:
        at: Any = obj
        *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))
        for key in parents:
            at = at[key]
        if value is ...:
            del at[last]
        else:
            at[last] = value

    return change


def bad(name: str, path: str, value: Any, *said: str) -> Any:
    shown = "missing" if value is ... else repr(value)[:30]
    return pytest.param(name, edit(path, value), said, id=f"{name}:{path}={shown}")


COUNTS = [-1, 1.0, "5", None, True, [], 2**32, 10**30, ...]
WRONG = [
    *(bad("mds_zstd", "shards.2.samples", value, "shard 2", "samples") for value in COUNTS),
    *(
        bad(name, f"shards.1.{field}.bytes", value, "shard 1", field, "bytes")
        for name, field in (
            *(("mds_zstd", "raw_data"), ("mds_zstd", "zip_data"), ("csv", "raw_data")),
            *(("csv", "raw_meta"), ("jsonl_zstd", "zip_meta")),
        )
        for value in (-1, 1.5, "5", None, True, 2**63, 10**30, ...)
    ),
    *(
        bad("mds_zstd", f"shards.3.{field}.basename", value, "shard 3", field, "basename")
        for field in ("raw_data", "zip_data")
        for value in (
            *("", "/etc/passwd", "../x.mds", "a/../../x.mds", "a/..", ".", "a//b", "a/", "./a"),
            *("..\\x.mds", "C:\\x.mds", "C:/x.mds", "c:x.mds", "a/C:/x", "x\0.mds", "x\n.mds"),
            *("//host/x", "index.json", "a/index.json", 5, None, [], ...),
        )
    ),
    *(
        bad("csv", f"shards.0.{field}", value, "shard 0", field)
        for field in ("raw_data", "raw_meta")
        for value in (None, [], "shard.csv", {}, ...)
    ),
    *(bad("csv", f"shards.0.{field}", ..., "shard 0", field) for field in ("zip_data", "zip_meta")),
    *(
        bad("mds_zstd", "shards.1.raw_data.hashes", value, "shard 1", "raw_data", "hashes")
        for value in (None, [], {"md5": 5}, {"md5": None}, "md5", ...)
    ),
    # Compressed without a compressed file, and the reverse.
    bad("mds_zstd", "shards.1.zip_data", None, "shard 1", "zip_data", "missing"),
    bad("mds_zstd", "shards.1.compression", None, "shard 1", "zip_data", "not compressed"),
    bad("jsonl_zstd", "shards.1.zip_meta", None, "shard 1", "zip_meta", "missing"),
    *(
        bad("mds_zstd", "shards.1.compression", value, "shard 1", "compression")
        for value in ("lz4", "zstd:99", 5, ["zstd"], ...)
    ),
    *(
        bad("mds_zstd", "shards.1.version", value, "shard 1", "version")
        for value in (1, 3, "2", 2.5, None, ...)
    ),
    *(
        bad("mds_zstd", "shards.1.format", value, "shard 1", "format")
        for value in ("parquet", "MDS", None, 5, ["mds"], {}, ...)
    ),
    *(
        bad("mds_zstd", f"shards.1.{field}", value, "shard 1", field)
        for field in ("column_names", "column_encodings", "column_sizes", "hashes")
        for value in (None, {}, "id", ["id"], [1, 2], ...)
        if not (field == "hashes" and value == ["id"])
    ),
    bad("mds_zstd", "shards.1.column_names", ["id", "id"], "shard 1", "column_names", "twice"),
    *(
        bad("mds_zstd", "shards.1.column_sizes", value, "shard 1", "column_sizes")
        for value in ([8.0, None, None], [-8, None], ["8", None], [2**40, None], [True, None])
    ),
    *(
        bad("mds_zstd", "shards.1.size_limit", value, "shard 1", "size_limit")
        for value in (-1, 0, 1.5, "big", 2**70, ...)
    ),
    *(bad("csv", "shards.1.newline", value, "shard 1", "newline") for value in (None, "", 5, ...)),
    *(bad("xsv", "shards.1.separator", value, "shard 1", "separator") for value in ("", 5, ...)),
    *(
        bad("jsonl", "shards.1.columns", value, "shard 1", "columns")
        for value in (None, ["id"], {"id": 5}, ...)
    ),
    bad("mds_zstd", "shards.1.raw_meta", {}, "shard 1", "raw_meta", "no place"),
    # More samples than the file has room to say where they are.
    bad("mds_zstd", "shards.1.samples", 500, "shard 1", "raw_data", "bytes"),
    bad("csv", "shards.1.samples", 500, "shard 1", "raw_meta", "bytes"),
    *(bad("csv", "shards.1", value, "shard 1") for value in (None, [], 5, "x")),
    *(bad("csv", "version", value, "version") for value in (1, 3, "2", None, True, 2.0, ...)),
    *(bad("csv", "shards", value, "shards") for value in (None, {}, 5, "x", ...)),
]


@pytest.mark.parametrize(("name", "change", "said"), WRONG)
def test_what_is_wrong_is_named(
    name: str, change: Callable[[Any], None], said: tuple[str, ...]
) -> None:
    obj = load(name)
    parse(obj)
    change(obj)
    with pytest.raises(FormatError) as caught:
        parse(obj, "s3://bucket/data/index.json")
    for word in ("s3://bucket/data/index.json", *said):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"null", b"[]", b"5", b'"x"', b"{", b"{}x", b"\xff{}", b"\xef\xbb\xbf{}"),
        *(b'{"version": 2, "shards": [', b'{"version": 2, "shards": [}', b'{"version": 2,}'),
        *(b'{"version": 2, "shards": [] ', b'{"version": 2 "shards": []}', b"{5: 1}"),
        *(b'{"version": 2, "shards": [], "x": NaN}', b'{"version": 2, "shards": [Infinity]}'),
        *(b'{"version": 2, "shards": [{"samples": -Infinity}]}', b"[" * 100_000),
        *(b'{"version": 2, "shards": ' + b"[" * 100_000, b'{"version": 2, "shards": [1,]}'),
        b'{"version": 2, "shards": []} {}',
    ],
    ids=lambda text: repr(text[:40]),
)
def test_what_is_no_index(text: bytes) -> None:
    with pytest.raises(FormatError, match=r"data/index\.json"):
        Index.parse(text, "data/index.json")


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_damage_is_an_error_or_another_index(data: st.DataObject) -> None:
    text = bytearray((FORMATS / "csv" / "index.json").read_bytes())
    at = data.draw(st.integers(0, len(text) - 1))
    if data.draw(st.booleans()):
        text[at] = data.draw(st.integers(0, 255))
    else:
        del text[at : at + data.draw(st.integers(1, 30))]
    try:
        index = Index.parse(bytes(text), "x")
    except FormatError:
        return
    for at in range(len(index)):
        for pair in index.files(at):
            for info in pair:
                if info is not None:
                    assert ".." not in info.basename.split("/")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), JSON), st.sampled_from([None, 1]))
@settings(max_examples=100, deadline=None)
def test_streamed_json_is_json(obj: dict[str, Any], indent: int | None) -> None:
    streamed = next(iter(obj), "")
    found = {
        name: list(value) if name == streamed and isinstance(obj[name], list) else value
        for name, value in json_members(json.dumps(obj, indent=indent), streamed)
    }
    assert found == obj


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:123 shardenul').map(str.encode))
@settings(max_examples=300, deadline=None)
def test_what_is_json_is_decided_as_by_python(data: bytes) -> None:
    text = data.decode("latin1")
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    try:
        found = dict(json_members(text, "s"))
    except ValueError:
        found = None
    if isinstance(expected, dict) and isinstance(expected.get("s"), list):
        return  # what its items are is the test above
    assert found == (expected if isinstance(expected, dict) else None)


def test_safe_names_pass() -> None:
    for name in ("a", "shard.00000.mds", "00000/shard.00000.mds.zstd", "a b/ü.mds", "a/.b", "a:b"):
        # A colon behind one letter alone is a drive.
        if name == "a:b":
            with pytest.raises(FormatError):
                check_basename(name)
        else:
            assert check_basename(name) == name
    assert check_basename("2024-01-01T00:00/shard.00000.mds")


COUNTED = st.builds(
    lambda prefix, first, width, suffix, count: [
        f"{prefix}{first + i:0{width}}{suffix}" for i in range(count)
    ],
    st.sampled_from(["shard.", "00001/shard.", "a/1/s", ""]),
    st.sampled_from([0, 7, 99998, 9]),
    st.integers(1, 6),
    st.sampled_from([".mds", ".mds.bz2", "", "-7.x"]),
    st.integers(1, 15),
)


@given(st.lists(COUNTED | st.lists(st.text() | st.none(), max_size=3), max_size=5))
@settings(max_examples=200, deadline=None)
def test_names_are_kept(parts: list[list[str | None]]) -> None:
    names = [name for part in parts for name in part]
    kept = Names(names)
    assert [kept[i] for i in range(len(kept))] == names


def test_counted_names_take_no_room() -> None:
    names = [f"{part:05}/shard.{i:05}.mds.bz2" for part in range(3) for i in range(1000)]
    assert Names(names).num_runs == 3
    assert len(pickle.dumps(Names(names))) < 1000


DIGEST = st.sampled_from(["", "00ff", "abcd", "ABCD", "xyz", "00 ff", "123"])


@given(st.lists(st.dictionaries(st.sampled_from(["md5", "sha1"]), DIGEST), max_size=6))
def test_digests_are_kept(given_digests: list[dict[str, str]]) -> None:
    digests = Digests()
    for each in given_digests:
        digests.append(each)
    digests.pack()
    assert [digests[i] for i in range(len(given_digests))] == given_digests


def test_unsafe_columns() -> None:
    index = Index.parse((FORMATS / "mds_pkl" / "index.json").read_bytes(), "x/index.json")
    index.validate_safe(True)
    with pytest.raises(FormatError, match=r"x/index\.json.*'obj'.*allow_unsafe_types"):
        index.validate_safe(False)
    parse(load("mds_encodings")).validate_safe(False)


def test_a_pickled_index_is_small_and_the_same() -> None:
    shard = load("mds_zstd")["shards"][0]
    shards = []
    for number in range(2000):
        one = copy.deepcopy(shard)
        one["raw_data"]["basename"] = f"shard.{number:05}.mds"
        one["zip_data"]["basename"] = f"shard.{number:05}.mds.zstd"
        shards.append(one)
    index = parse({"version": 2, "shards": shards})
    data = pickle.dumps(index)
    assert len(data) / 2000 < 120
    again = pickle.loads(data)
    assert again.config(1234) == shards[1234]


def test_a_hundred_thousand_shards_parse_quickly() -> None:
    obj = {"version": 2, "shards": []}
    shard = json.dumps(load("mds_zstd")["shards"][0])
    text = ",".join(shard.replace("shard.00000", f"shard.{i:05}") for i in range(100_000))
    data = json.dumps(obj).replace("[]", f"[{text}]").encode()
    started = time.process_time()
    index = Index.parse(data, "x")
    # One second on the machine where this was written; a slow one is not a failure.
    assert time.process_time() - started < 10
    assert (len(index), len(index.schemas)) == (100_000, 1)


def test_shard_list_is_a_list_of_readers() -> None:
    sources = [(parse(load(name)), str(FORMATS / name)) for name in ("csv", "mds_zstd", "merged")]
    shards = ShardList(sources)
    assert len(shards) == 2 + 4 + 30
    assert shards[0] is shards[0] is shards[-36]
    assert shards[-1] is shards[35]
    assert shards[2].raw_data.basename == "shard.00000.mds"  # type: ignore[attr-defined]
    assert shards[2:6] == [shards[i] for i in range(2, 6)]
    assert list(shards)[5] is shards[5]
    assert shards.index(shards[7]) == 7
    assert shards[3] in shards
    assert shards[np.int64(3)] is shards[3]  # type: ignore[call-overload]
    assert [shard.samples for shard in reversed(shards)] == [s.samples for s in shards][::-1]
    assert "36 shards" in repr(shards)
    for number in (36, -37):
        with pytest.raises(IndexError):
            shards[number]
    shards[0].open()
    again = pickle.loads(pickle.dumps(shards))
    assert not again[0].is_open
    assert again[0].sample(3) == shards[0].sample(3)


def test_shard_list_without_streams() -> None:
    assert list(ShardList([])) == []


def test_the_index_file_has_one_name() -> None:
    assert get_index_basename() == "index.json"


def test_conformance_is_complete() -> None:
    assert len(NAMES) >= 14
    assert Path(FORMATS / "merged" / "00000" / "index.json").exists()
