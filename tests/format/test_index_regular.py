"""Indexes whose shards are alike are read by a pattern, and come out as by the careful parser."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.format import regular
from streaming.format.errors import FormatError
from streaming.format.index import Index
from streaming.format.regular import read_regular


def shard_of(at: int, kind: str = "mds", zipped: bool = True, hashed: bool = True) -> Any:
    def file(suffix: str) -> Any:
        digest = f"{at * 7919 + len(suffix):040x}"
        return {
            "basename": f"shard.{at:05}.{suffix}",
            "bytes": 10_000 + at,
            "hashes": {"sha1": digest, "xxh64": digest[-16:]} if hashed else {},
        }

    shard: dict[str, Any] = {
        "column_encodings": ["int", "str"],
        "column_names": ["bytes", "samples"],
        "compression": "zstd" if zipped else None,
        "format": kind,
        "hashes": ["sha1", "xxh64"] if hashed else [],
        "samples": 100 + at % 3,
        "size_limit": 1 << 26,
        "version": 2,
    }
    if kind == "mds":
        shard["column_sizes"] = [8, None]
    else:
        shard |= {"newline": "\n", "separator": ","}
    for part in ("data",) if kind == "mds" else ("data", "meta"):
        shard[f"raw_{part}"] = file(f"{kind}.{part}")
        shard[f"zip_{part}"] = file(f"{kind}.{part}.zstd") if zipped else None
    return shard


def text_of(shards: list[Any], **how: Any) -> bytes:
    return json.dumps({"version": 2, "shards": shards}, **how).encode()


def check_same(found: Index, expected: Index) -> None:
    assert len(found) == len(expected)
    for shard in range(len(expected)):
        assert found.config(shard) == expected.config(shard)
        assert found.files(shard) == expected.files(shard)
    for name in ("samples", "offsets", "raw_bytes", "zip_bytes"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
        assert getattr(found, name).dtype == np.int64


def outcome(parse: Callable[[bytes, str], Index], data: bytes) -> Index | str:
    try:
        return parse(data, "index.json")
    except FormatError as error:
        return str(error)


def check_same_outcome(data: bytes) -> None:
    found, expected = outcome(Index.parse, data), outcome(Index._parse_any, data)
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected
    else:
        check_same(found, expected)


STYLES: list[dict[str, Any]] = [
    {},
    {"sort_keys": True},
    {"indent": 2},
    {"separators": (",", ":")},
]


@pytest.mark.parametrize("how", STYLES)
@pytest.mark.parametrize("kind", ["mds", "xsv"])
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 300])
def test_it_is_the_same(
    how: dict[str, Any], kind: str, zipped: bool, hashed: bool, count: int
) -> None:
    data = text_of([shard_of(at, kind, zipped, hashed) for at in range(count)], **how)
    assert read_regular(data) is not None
    found = Index.parse(data, "index.json")
    check_same(found, Index._parse_any(data, "index.json"))
    check_same(pickle.loads(pickle.dumps(found)), found)


@pytest.mark.parametrize("how", STYLES)
def test_it_is_read_in_batches(how: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(regular, "_BATCH", 3)
    shards = [shard_of(at) for at in range(100)]
    check_same_outcome(text_of(shards, **how))
    assert read_regular(text_of(shards, **how)) is not None
    shards[60]["samples"] = "one"
    assert read_regular(text_of(shards, **how)) is None


def put(*path: Any) -> Callable[[Any], None]:
    """Sets what stands at a path to its last element."""

    def change(shards: Any) -> None:
        for key in path[:-2]:
            shards = shards[key]
        shards[path[-2]] = path[-1]

    return change


CHANGES: dict[str, Callable[[Any], Any]] = {
    "another schema": put(3, "size_limit", 5),
    "another algorithm": put(3, "raw_data", "hashes", {"md5": "00"}),
    "no hashes": put(3, "raw_data", "hashes", {}),
    "a longer digest": put(3, "raw_data", "hashes", "sha1", "0" * 42),
    "an upper digest": put(3, "raw_data", "hashes", "sha1", "A" * 40),
    "no digest at first": put(0, "raw_data", "hashes", "sha1", "none"),
    "an escape": put(3, "raw_data", "basename", "sh\u00e4rd.mds"),
    "a quote": put(3, "raw_data", "basename", 'a"b'),
    "a folder": put(3, "raw_data", "basename", "a/b.mds"),
    "a climb": put(3, "raw_data", "basename", "../b.mds"),
    "the index": put(3, "raw_data", "basename", "index.json"),
    "absolute": put(3, "raw_data", "basename", "/b.mds"),
    "negative": put(3, "samples", -1),
    "a fraction": put(3, "samples", 1.5),
    "a fraction at first": put(0, "samples", 1.5),
    "too many": put(3, "samples", 1 << 32),
    "too large": put(3, "raw_data", "bytes", 1 << 32),
    "too small": put(3, "raw_data", "bytes", 10),
    "huge": put(3, "zip_data", "bytes", 1 << 41),
    "missing": lambda shards: shards[3].pop("samples"),
    "more": put(3, "raw_data", "more", 1),
    "more at first": put(0, "raw_data", "more", 1),
    "unknown": put(0, "extra", {"samples": 5, "basename": "x"}),
    "unknown at the end": put(-1, "extra", 1),
    "not compressed": put(3, "zip_data", None),
    "no object": put(3, 5),
    "gone": lambda shards: shards.clear(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_alike_is_looked_at_closely(change: str) -> None:
    shards = [copy.deepcopy(shard_of(at)) for at in range(6)]
    CHANGES[change](shards)
    data = text_of(shards)
    check_same_outcome(data)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_damaged_text(data: st.DataObject) -> None:
    """A byte changed, lost or doubled anywhere: both ways give the same index or the same error."""
    text = text_of([shard_of(at) for at in range(4)])
    at = data.draw(st.integers(0, len(text) - 1))
    new = data.draw(
        st.sampled_from([b"", b"0", b"9", b"}", b",", b" ", b'"', text[at : at + 1] * 2])
    )
    text = text[:at] + new + text[at + 1 :]
    check_same_outcome(text)


def test_names_are_found() -> None:
    shards = [shard_of(at) for at in range(50)]
    shards[7]["raw_data"]["basename"] = "other"
    shards[9]["raw_data"]["basename"] = "sub/shard.00009.mds"
    index = Index.parse(text_of(shards), "index.json")
    for at, shard in enumerate(shards):
        assert index.shard_named(shard["raw_data"]["basename"]) == at
        assert index.shard_named(shard["zip_data"]["basename"]) == at
    for name in ("shard.00007.mds.data", "shard.00050.mds.data", "shard.7.mds.data", "", "9"):
        assert index.shard_named(name) is None
    assert index.folders() == {"", "sub"}


def test_hashes_that_are_lacking() -> None:
    shards = [shard_of(at) for at in range(5)]
    index = Index.parse(text_of(shards), "index.json")
    assert index.file_without("sha1") is None
    lacking = index.file_without("md5")
    assert lacking is not None
    assert lacking.basename == "shard.00000.mds.data"
    shards[3]["zip_data"]["hashes"] = {}
    lacking = Index.parse(text_of(shards), "index.json").file_without("sha1")
    assert lacking is not None
    assert lacking.basename == "shard.00003.mds.data.zstd"
    unzipped = Index.parse(text_of([shard_of(at, "mds", False) for at in range(3)]), "index.json")
    assert unzipped.file_without("sha1") is None
