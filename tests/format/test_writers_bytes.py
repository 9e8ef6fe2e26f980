"""What writers write, byte for byte."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from streaming.format.compression import decompress
from streaming.format.writer_json import JSONWriter
from streaming.format.writer_mds import MDSWriter
from streaming.format.writer_xsv import CSVWriter, TSVWriter, XSVWriter
from tests.conformance_data import CONFORMANCE
from tests.format.writing import (
    COLUMNS,
    SAMPLES,
    WRITERS,
    names,
    parse,
    read_all,
    shard_sizes,
)

FORMATS = CONFORMANCE / "formats"
DATASETS = sorted(
    path.name for path in FORMATS.iterdir() if path.is_dir() and path.name != "merged"
)


def rewrite(source: Path, out: Path) -> None:
    """Write a data set again, with the same arguments."""
    first = json.loads((source / "index.json").read_text())["shards"][0]
    columns = first.get("columns") or dict(
        zip(first["column_names"], first["column_encodings"], strict=True)
    )
    arguments = {name: first[name] for name in ("newline", "separator") if name in first}
    for name in ("compression", "hashes", "size_limit"):
        arguments[name] = first[name]
    with WRITERS[first["format"]](columns=columns, out=str(out), **arguments) as writer:
        for sample in parse(source):
            writer.write(sample)


def uncompressed(folder: Path, index: dict[str, Any]) -> dict[str, bytes]:
    files = {}
    for shard in index["shards"]:
        for kind in ("data", "meta"):
            zipped = shard.get(f"zip_{kind}")
            if zipped:
                data = (folder / zipped["basename"]).read_bytes()
                assert len(data) == zipped["bytes"]
                files[zipped["basename"]] = decompress(shard["compression"], data)
                # Compressors' versions differ.
                zipped["bytes"] = zipped["hashes"] = None
            elif f"raw_{kind}" in shard:
                name = shard[f"raw_{kind}"]["basename"]
                files[name] = (folder / name).read_bytes()
    return files


@pytest.mark.parametrize("name", DATASETS)
def test_rewriting_gives_the_same_files(name: str, tmp_path: Path) -> None:
    rewrite(FORMATS / name, tmp_path)
    assert names(tmp_path) == names(FORMATS / name)
    ours = json.loads((tmp_path / "index.json").read_text())
    theirs = json.loads((FORMATS / name / "index.json").read_text())
    assert uncompressed(tmp_path, ours) == uncompressed(FORMATS / name, theirs)
    assert ours == theirs
    if theirs["shards"][0]["compression"] is None:
        for file in names(tmp_path):
            assert (tmp_path / file).read_bytes() == (FORMATS / name / file).read_bytes()


@pytest.mark.parametrize("part", ["00000", "00001", "00002"])
def test_rewriting_a_part_gives_the_same_files(part: str, tmp_path: Path) -> None:
    source = FORMATS / "merged" / part
    rewrite(source, tmp_path)
    assert {n: (tmp_path / n).read_bytes() for n in names(tmp_path)} == {
        n: (source / n).read_bytes() for n in names(source)
    }


# Recorded from mosaicml-streaming 0.13, with column names a and b: size limit to samples and bytes.
MDS_LIMITS: list[tuple[Any, list[tuple[int, int]]]] = [
    (235, [(1, 210)] * 6),
    (236, [(2, 236)] * 3),
    (237, [(2, 236)] * 3),
    # The first sample is larger than a shard may be: an empty shard comes before it.
    (1, [(0, 182)] + [(1, 208)] * 6),
    (184, [(0, 184)] + [(1, 210)] * 6),
    (209, [(0, 184)] + [(1, 210)] * 6),
    (0, [(6, 341)]),
    (None, [(6, 341)]),
    ("300", [(4, 288), (2, 236)]),
    ("300b", [(4, 288), (2, 236)]),
    (300.5, [(4, 288), (2, 236)]),
    ("1kb", [(6, 341)]),
    ("0.5kb", [(6, 340)]),
    ("1.5 kb", [(6, 341)]),
]
CSV_LIMITS: list[tuple[Any, list[tuple[int, int]]]] = [
    # The line of column names, 4 bytes, is not counted.
    (25, [(1, 17)] * 6),
    (26, [(2, 30)] * 3),
    (27, [(2, 30)] * 3),
    (1, [(0, 4)] + [(1, 17)] * 6),
    (0, [(6, 82)]),
]
AB = [{"a": i, "b": "x" * 10} for i in range(6)]


@pytest.mark.parametrize(("limit", "expected"), MDS_LIMITS)
def test_size_limit_of_mds(limit: Any, expected: list[tuple[int, int]], tmp_path: Path) -> None:
    with MDSWriter(columns={"a": "int", "b": "str"}, out=tmp_path, size_limit=limit) as writer:
        for sample in AB:
            writer.write(sample)
    assert shard_sizes(tmp_path) == expected
    assert read_all(tmp_path) == AB


@pytest.mark.parametrize(("limit", "expected"), CSV_LIMITS)
def test_size_limit_of_csv(limit: Any, expected: list[tuple[int, int]], tmp_path: Path) -> None:
    with CSVWriter(columns={"a": "int", "b": "str"}, out=tmp_path, size_limit=limit) as writer:
        for sample in AB:
            writer.write(sample)
    assert shard_sizes(tmp_path) == expected
    assert read_all(tmp_path) == AB


def test_a_sample_larger_than_the_limit_gets_a_shard_of_its_own(tmp_path: Path) -> None:
    samples = [AB[0], {"a": 1, "b": "y" * 500}, AB[1], AB[2]]
    with MDSWriter(columns={"a": "int", "b": "str"}, out=tmp_path, size_limit=300) as writer:
        for sample in samples:
            writer.write(sample)
    assert shard_sizes(tmp_path) == [(1, 210), (1, 700), (2, 236)]


@pytest.mark.parametrize("format", WRITERS)
def test_without_samples(format: str, tmp_path: Path) -> None:
    extra = {"separator": "|"} if format == "xsv" else {}
    with WRITERS[format](columns={"a": "int"}, out=tmp_path, **extra):
        pass
    assert names(tmp_path) == ["index.json"]
    assert (tmp_path / "index.json").read_bytes() == b'{"shards": [], "version": 2}'


def test_methods_of_an_mds_writer(tmp_path: Path) -> None:
    writer = MDSWriter(
        columns={"b": "str", "a": "int"}, out=tmp_path, compression="zstd:7", hashes=["sha1"]
    )
    sample = {"a": 1, "b": "x"}
    encoded = b"\x01\0\0\0\x01\0\0\0\0\0\0\0x"
    config = (
        b'{"column_encodings": ["int", "str"], "column_names": ["a", "b"], '
        b'"column_sizes": [8, null], "compression": "zstd:7", "format": "mds", '
        b'"hashes": ["sha1"], "size_limit": 67108864, "version": 2}'
    )
    assert writer.extra_bytes_per_shard == 199
    assert writer.extra_bytes_per_sample == 4
    assert writer.encode_sample(sample) == encoded
    assert json.dumps(writer.get_config(), sort_keys=True).encode() == config
    writer.write(sample)
    assert writer.new_samples == [encoded]
    assert writer.new_shard_size == 216
    assert writer.encode_joint_shard() == (b"\x01\0\0\0\xcb\0\0\0\xd8\0\0\0" + config + encoded)
    writer.finish()
    assert writer.new_samples == []
    assert writer.shards[0]["raw_data"] == {
        "basename": "shard.00000.mds",
        "bytes": 216,
        "hashes": {"sha1": "fbf4ff1bc00d4547eabd56bf637279a414d49963"},
    }


def test_methods_of_an_xsv_writer(tmp_path: Path) -> None:
    writer = XSVWriter(columns={"a": "int", "b": "str"}, separator="|", out=tmp_path)
    writer.write({"a": 1, "b": "x"})
    data, meta = writer.encode_split_shard()
    assert writer.encode_sample({"a": 1, "b": "x"}) == b"1|x\n"
    assert data == b"a|b\n1|x\n"
    assert meta == (
        b'\x01\0\0\0\x04\0\0\0\x08\0\0\0{"column_encodings": ["int", "str"], "column_names": '
        b'["a", "b"], "compression": null, "format": "xsv", "hashes": [], "newline": "\\n", '
        b'"separator": "|", "size_limit": 67108864, "version": 2}'
    )
    writer.finish()


def test_methods_of_a_json_writer(tmp_path: Path) -> None:
    writer = JSONWriter(columns={"b": "str", "a": "int"}, out=tmp_path, newline="\r\n")
    writer.write({"b": "é", "a": 1})
    data, meta = writer.encode_split_shard()
    assert data == b'{"a": 1, "b": "\\u00e9"}\r\n'
    assert meta == (
        b'\x01\0\0\0\0\0\0\0\x19\0\0\0{"columns": {"a": "int", "b": "str"}, "compression": null, '
        b'"format": "json", "hashes": [], "newline": "\\r\\n", "size_limit": 67108864, '
        b'"version": 2}'
    )
    writer.finish()


# Recorded from mosaicml-streaming 0.13, where it writes these at all.
VALUES: list[tuple[str, Any, bytes]] = [
    ("int", True, b"\x01\0\0\0\0\0\0\0"),
    ("int", -(2**63), b"\0\0\0\0\0\0\0\x80"),
    ("uint8", 1, b"\x01"),
    ("uint8", np.uint8(3), b"\x03"),
    ("uint8", np.float32(2), b"\x02"),
    ("int64", np.int32(3), b"\x03\0\0\0\0\0\0\0"),
    ("float32", 1, b"\0\0\x80?"),
    ("float32", np.float64(1.5), b"\0\0\xc0?"),
    ("float64", np.float32(0.5), b"\0\0\0\0\0\0\xe0?"),
    ("float16", 0.5, b"\x008"),
    ("ndarray:int32:3", np.arange(3, dtype="int32"), b"\0\0\0\0\x01\0\0\0\x02\0\0\0"),
    ("ndarray:int32:3", np.arange(3, dtype=">i4"), b"\0\0\0\0\x01\0\0\0\x02\0\0\0"),
    ("ndarray:int8:2,2", np.arange(4, dtype="int8").reshape(2, 2).T, b"\0\x02\x01\x03"),
    ("bytes", b"", b"\0\0\0\0"),
    ("str", "", b"\0\0\0\0"),
    ("str", np.str_("x"), b"\x01\0\0\0x"),
    ("str", b"x", b"\x01\0\0\0x"),
    ("json", None, b"\x04\0\0\0null"),
    ("json", {1: 2}, b'\x08\0\0\0{"1": 2}'),
    ("str_int", 2**100, b"\x1f\0\0\x001267650600228229401496703205376"),
]


@pytest.mark.parametrize(("encoding", "value", "expected"), VALUES)
def test_encoded_values(encoding: str, value: Any, expected: bytes, tmp_path: Path) -> None:
    writer = MDSWriter(columns={"v": encoding}, out=tmp_path)
    assert writer.encode_sample({"v": value}) == expected


def test_compressed_files_depend_on_nothing_but_the_data(tmp_path: Path) -> None:
    for out in ("one", "two"):
        with MDSWriter(
            columns=COLUMNS, out=tmp_path / out, compression="gz", size_limit=300
        ) as writer:
            for sample in SAMPLES:
                writer.write(sample)
    assert len(names(tmp_path / "one")) > 2
    for name in names(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_same_files_whatever_the_background_does(tmp_path: Path) -> None:
    """Shards are finished in any order; names and index are in theirs."""
    rng = np.random.default_rng(0)
    samples = [{"n": i, "s": rng.bytes(rng.integers(0, 3000)).hex()} for i in range(60)]
    for out in ("one", "two"):
        with MDSWriter(
            columns=COLUMNS, out=tmp_path / out, hashes=["sha1"], compression="br:9", size_limit=900
        ) as writer:
            for sample in samples:
                writer.write(sample)
    assert (tmp_path / "one/index.json").read_bytes() == (tmp_path / "two/index.json").read_bytes()
    assert read_all(tmp_path / "one") == samples


# Round trips.

ARRAYS = npst.arrays(
    st.sampled_from(["int8", "uint16", "float32", "float64", "int64"]),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
MDS_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "str": st.text(),
    "bytes": st.binary(),
    "uint8": st.integers(0, 255),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "float64": st.floats(allow_nan=False),
    "float32": st.floats(width=32, allow_nan=False),
    "str_int": st.integers(-(2**200), 2**200),
    "str_float": st.floats(allow_nan=False),
    "json": st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ),
    "ndarray": ARRAYS,
    "ndarray:int16:2,3": npst.arrays("int16", (2, 3)),
}
COLUMN_NAMES = st.text(min_size=1, max_size=5)


def datasets(values: dict[str, st.SearchStrategy[Any]], column_names: Any) -> Any:
    """Columns and samples of them."""

    def samples(columns: dict[str, str]) -> Any:
        sample = st.fixed_dictionaries({name: values[e] for name, e in columns.items()})
        return st.tuples(st.just(columns), st.lists(sample, max_size=20))

    columns = st.dictionaries(column_names, st.sampled_from(sorted(values)), min_size=1, max_size=5)
    return columns.flatmap(samples)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        same: bool = one.dtype == other.dtype and one.shape == other.shape
        return same and one.tobytes() == other.tobytes()
    return bool(one == other)


many = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@many
@given(
    datasets(MDS_VALUES, COLUMN_NAMES),
    st.sampled_from([None, "zstd", "gz:1"]),
    st.sampled_from([None, 1, 400, 600, "1kb"]),
)
def test_mds_round_trip(
    tmp_path_factory: Any, data: Any, compression: str | None, limit: Any
) -> None:
    columns, samples = data
    out = tmp_path_factory.mktemp("mds")
    with MDSWriter(
        columns=columns, out=out, compression=compression, hashes=["xxh64"], size_limit=limit
    ) as writer:
        for sample in samples:
            writer.write(sample)
    for found in (read_all(out), list(parse(out))):
        assert len(found) == len(samples)
        for sample, back in zip(samples, found, strict=True):
            assert back.keys() == sample.keys()
            assert all(equal(sample[name], back[name]) for name in sample)
    for shard, (count, size) in zip(writer.shards, shard_sizes(out), strict=True):
        assert shard["samples"] == count
        assert count <= 1 or not writer.size_limit or size <= writer.size_limit


PLAIN = st.text(st.characters(exclude_characters=",\t|;\r\n", exclude_categories=["Cs"]))
TEXT_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(),
    "str": PLAIN,
    "float": st.floats(allow_nan=False),
}


@many
@given(
    datasets(TEXT_VALUES, PLAIN.filter(bool)),
    st.sampled_from(["csv", "tsv", "xsv"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([None, 1, 50]),
)
def test_xsv_round_trip(
    tmp_path_factory: Any, data: Any, format: str, newline: str, limit: Any
) -> None:
    columns, samples = data
    out = tmp_path_factory.mktemp("xsv")
    extra = {"separator": ";"} if format == "xsv" else {}
    with WRITERS[format](
        columns=columns, out=out, newline=newline, size_limit=limit, **extra
    ) as writer:
        for sample in samples:
            writer.write(sample)
    assert read_all(out) == samples
    assert list(parse(out)) == samples


@many
@given(
    datasets(
        {
            **TEXT_VALUES,
            "str": st.text(),
            "float": st.floats(allow_nan=False, allow_infinity=False),
        },
        st.text(min_size=1),
    ),
    st.sampled_from([None, 1, 50]),
)
def test_json_round_trip(tmp_path_factory: Any, data: Any, limit: Any) -> None:
    columns, samples = data
    out = tmp_path_factory.mktemp("json")
    with JSONWriter(columns=columns, out=out, size_limit=limit) as writer:
        for sample in samples:
            writer.write(sample)
    assert read_all(out) == samples
    assert list(parse(out)) == samples


def test_writers_are_relatives() -> None:
    assert issubclass(CSVWriter, XSVWriter)
    assert issubclass(TSVWriter, XSVWriter)
