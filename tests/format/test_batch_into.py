"""Samples read into columns that are there: the same values as one by one, each at its place."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.format import mapping
from streaming.format.errors import CorruptShardError
from streaming.format.gather import as_slice, gather, gather_into, gather_rows_into
from streaming.format.reader import Reader
from streaming.format.readers import reader_from_json
from tests.format.shard_files import lines_shard, mds_shard

SCHEMAS: list[dict[str, str]] = [
    {"x": "ndarray:int32:5"},
    {"x": "ndarray:uint8:3,4100"},  # copied row by row
    {"x": "float16"},
    {"x": "ndarray:int16:7", "y": "uint8", "z": "int"},
    {"b": "bytes", "i": "int", "t": "str", "x": "ndarray:float64:2"},
    {"t": "str", "x": "ndarray:uint8:13000"},
    {"t": "json"},
]
RNG = np.random.default_rng(0)
SAMPLES = 40


def value(encoding: str, i: int) -> Any:
    if encoding.startswith("ndarray"):
        _, dtype, shape = encoding.split(":")
        return RNG.integers(0, 100, [int(n) for n in shape.split(",")]).astype(dtype)
    kinds: dict[str, Any] = {
        "int": i - 3,
        "uint8": np.uint8(i),
        "float16": np.float16(i / 4),
        "str": "ö" * (i % 5),
        "bytes": bytes(i % 7),
        "json": [i],
    }
    return kinds[encoding]


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> list[Reader]:
    """Each schema's shard, mapped, and once more, read by position."""
    found = []
    for number, columns in enumerate(SCHEMAS):
        folder = tmp_path_factory.mktemp(f"schema{number}")
        samples = [{name: value(columns[name], i) for name in columns} for i in range(SAMPLES)]
        found.append((str(folder), mds_shard(folder, columns, samples)))
    mapped = [reader_from_json(folder, None, obj) for folder, obj in found]
    positioned = [reader_from_json(folder, None, obj) for folder, obj in found]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapping, "is_network_device", lambda device: True)
        for reader in positioned:
            reader.open()
    return [*mapped, *positioned]


def blank(reader: Reader, count: int) -> dict[str, Any]:
    return {
        name: [None] * count if layout is None else np.zeros((count, *layout[1]), layout[0])
        for name, layout in reader.column_layouts().items()
    }


def check(reader: Reader, indices: Any, columns: dict[str, Any], places: list[int]) -> None:
    for index, place in zip(indices, places, strict=True):
        for name, expected in reader.sample(int(index)).items():
            got = columns[name][place]
            assert np.array_equal(got, expected)
            if isinstance(expected, np.ndarray | np.generic):
                assert got.dtype == expected.dtype


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_as_one_by_one(readers: list[Reader], data: st.DataObject) -> None:
    reader = data.draw(st.sampled_from(readers))
    indices = np.array(data.draw(st.lists(st.integers(0, SAMPLES - 1), max_size=50)), np.int64)
    room = len(indices) + data.draw(st.integers(0, 5))
    places = data.draw(st.permutations(range(room)))[: len(indices)]
    if data.draw(st.booleans()):
        places = sorted(places)
    columns = blank(reader, room)
    assert reader.batch_into(indices, columns, np.array(places, np.int64))
    check(reader, indices, columns, places)
    for place in set(range(room)) - set(places):
        for column in columns.values():
            assert column[place] is None or not np.any(column[place])
    batch = reader.batch(indices)
    check(reader, indices, batch, list(range(len(indices))))


def test_into_a_slice_of_batches(readers: list[Reader]) -> None:
    for reader in readers:
        columns = blank(reader, 70)
        assert reader.batch_into(range(SAMPLES), columns, slice(3, 3 + SAMPLES))
        check(reader, range(SAMPLES), columns, list(range(3, 3 + SAMPLES)))


def test_arrays_that_are_not_contiguous(readers: list[Reader]) -> None:
    for reader in readers:
        columns = {
            name: column if isinstance(column, list) else np.repeat(column, 2, axis=0)[::2]
            for name, column in blank(reader, SAMPLES).items()
        }
        places = list(range(0, SAMPLES, 2))
        assert reader.batch_into([7] * len(places), columns, np.array(places))
        check(reader, [7] * len(places), columns, places)


def test_other_columns_are_refused_untouched(readers: list[Reader]) -> None:
    reader = readers[3]
    good = {"x": np.zeros((4, 7), "int16"), "y": np.zeros(4, "uint8"), "z": np.zeros(4, "int64")}
    assert reader.column_layouts() == {
        "x": (np.dtype("int16"), (7,)),
        "y": (np.dtype("uint8"), ()),
        "z": (np.dtype("int64"), ()),
    }
    others: list[dict[str, Any]] = [
        {name: column for name, column in good.items() if name != "z"},
        good | {"w": np.zeros(4)},
        good | {"y": np.zeros(4, "int8")},
        good | {"x": np.zeros((4, 8), "int16")},
        good | {"x": [None] * 4},
    ]
    for columns in others:
        assert not reader.batch_into([1], columns, np.array([0]))
    assert not any(column.any() for column in good.values())
    with pytest.raises(IndexError, match=f"has {SAMPLES} samples, there is no number {SAMPLES}"):
        reader.batch_into([0, SAMPLES], good, np.array([0, 1]))


def test_lines(tmp_path: Path) -> None:
    fields = {"columns": {"a": "int", "b": "str"}}
    lines = ['{"a": 1, "b": "x"}', '{"a": 2, "b": "y"}']
    reader = reader_from_json(str(tmp_path), None, lines_shard(tmp_path, "json", lines, fields))
    assert reader.column_layouts() == {"a": None, "b": None}
    columns: dict[str, Any] = {"a": [0] * 3, "b": [""] * 3}
    assert reader.batch_into([1, 0], columns, np.array([0, 2]))
    assert columns == {"a": [2, 0, 1], "b": ["y", "", "x"]}
    assert not reader.batch_into([1], {"a": [0]}, np.array([0]))
    assert not reader.batch_into([1], {"a": np.zeros(1), "b": [""]}, np.array([0]))


def test_a_damaged_sample_is_named(tmp_path: Path) -> None:
    obj = mds_shard(tmp_path, {"t": "str"}, [{"t": text} for text in ("one", "two", "three")])
    path = tmp_path / obj["raw_data"]["basename"]
    path.write_bytes(path.read_bytes().replace(b"two", b"\xff\xffo"))
    reader = reader_from_json(str(tmp_path), None, obj)
    with pytest.raises(CorruptShardError, match="sample 1: column 't'"):
        reader.batch_into([2, 1], {"t": [None, None]}, np.array([0, 1]))


@pytest.mark.parametrize("width", [1, 3, 8, 5000, 13000])
def test_gathering(width: int) -> None:
    data = RNG.integers(0, 256, 40_000).astype(np.uint8).tobytes()
    starts = np.array([0, 7, 26_999 - width, 40_000 - width, 7])
    expected = np.stack([np.frombuffer(data, np.uint8, width, start) for start in starts])
    assert (gather(data, starts, np.dtype(np.uint8), (width,)) == expected).all()
    out = np.zeros((9, width), np.uint8)
    gather_into(data, starts, np.dtype(np.uint8), out, np.array([8, 1, 0, 5, 2]))
    assert (out[[8, 1, 0, 5, 2]] == expected).all()
    rows = np.frombuffer(data, np.uint8)[: 3 * width].reshape(3, width)
    many = RNG.integers(0, 3, 300)
    places = RNG.permutation(300)
    wide = np.zeros((300, width), np.uint8)
    gather_rows_into(rows, many, wide, places)
    assert (wide[places] == rows[many]).all()


def test_the_order_of_bytes_is_the_machines() -> None:
    other = np.dtype(np.int32).newbyteorder("S")
    data = np.arange(6, dtype=other).tobytes()
    got = gather(data, np.array([4, 0]), other, (2,))
    assert got.tolist() == [[1, 2], [0, 1]]
    assert got.dtype.isnative


def test_what_is_a_slice() -> None:
    assert as_slice(np.empty(0, np.int64)) == slice(0, 0)
    for places in ([3, 5, 4, 6], [0, 1, 1, 3], [5, 4], [-1, 0]):
        assert np.array_equal(as_slice(np.array(places)), places)
        assert not isinstance(as_slice(np.array(places)), slice)
    assert as_slice(np.array([2])) == slice(2, 3)


def test_an_encoding_whose_layout_is_not_its_size() -> None:
    from streaming.format.encodings import mds

    class Odd(mds.Encoding):
        size = 3
        layout = (np.dtype("<i2"), ())

        def encode(self, obj: int) -> bytes:
            return obj.to_bytes(3, "little")

        def decode(self, data: bytes) -> int:
            return int.from_bytes(data, "little")

    before = dict(mds._encodings)
    try:
        mds.register_encoding("odd", Odd)
        with tempfile.TemporaryDirectory() as folder:
            obj = mds_shard(Path(folder), {"x": "odd"}, [{"x": 70_000}, {"x": 5}])
            reader = reader_from_json(folder, None, obj)
            assert reader.batch([1, 0]) == {"x": [5, 70_000]}
    finally:
        mds._encodings.clear()
        mds._encodings.update(before)
