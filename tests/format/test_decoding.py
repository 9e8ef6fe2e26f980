"""Compiled decoding makes what decoding column by column makes, bit for bit, and fails alike."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.format.encodings.mds import get_mds_encoded_size
from streaming.format.errors import CorruptShardError, FormatError
from streaming.format.schema import MDSSchema, mds_schema

ENCODINGS = [
    *("int", "str", "bytes", "uint8", "int16", "uint32", "int64", "uint64", "int8"),
    *("float16", "float32", "float64", "ndarray:int16:3", "ndarray:float32:2,2", "ndarray:uint8"),
    *("ndarray", "json", "str_int"),
]
NAMES = ["a", "it's", 'say "x"', "{b}", "\\", "\ud800", "def", "begin", "zwölf", ""]


def body(data: st.DataObject, encoding: str) -> bytes:
    size = get_mds_encoded_size(encoding)
    if size is not None:
        return data.draw(st.binary(min_size=size, max_size=size))  # NaNs of all kinds, too
    kinds = {
        "str": st.text(max_size=4).map(str.encode),
        "bytes": st.binary(max_size=4),
        "json": st.just(b'{"x": [1]}'),
        "str_int": st.just(b"-12"),
        "ndarray": st.just(bytes([24, 4, 2, 5, 0, 6, 0])[:1] + b"\x04\x01" + bytes(3)),
        "ndarray:uint8": st.just(b"\x04\x03abc"),
    }
    drawn: bytes = data.draw(kinds[encoding])
    return drawn


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray | np.generic):
        return type(a) is type(b) and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return type(a) is type(b) and bool(a == b)


def outcome(make: Any, *given: Any) -> Any:
    try:
        return make(*given)
    except Exception as error:
        return type(error), str(error)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_same_as_with_care(data: st.DataObject) -> None:
    encodings = data.draw(st.lists(st.sampled_from(ENCODINGS), min_size=1, max_size=6))
    names = data.draw(st.permutations(NAMES))[: len(encodings)]
    sizes = [get_mds_encoded_size(encoding) for encoding in encodings]
    schema = mds_schema(names, encodings, sizes)
    assert isinstance(schema, MDSSchema)
    samples = []
    for _ in range(3):
        parts = [body(data, encoding) for encoding in encodings]
        lengths = [len(part) for part, size in zip(parts, sizes, strict=True) if size is None]
        samples.append(struct.pack(f"<{len(lengths)}I", *lengths) + b"".join(parts))
    offsets = np.cumsum([3, *map(len, samples)]).astype(np.uint32)
    shard = b"xyz" + b"".join(samples)
    count = [0]
    get = schema.reader_of(shard, offsets, 3, count)
    for number in range(3):
        begin, end = offsets[number : number + 2].tolist()
        expected = outcome(schema._decode_with_care, shard, begin, end)
        for got in (outcome(schema.decode, shard, begin, end), outcome(get, number)):
            if isinstance(expected, tuple):
                assert got == expected
                continue
            assert list(got) == list(expected) == names
            assert all(same(got[name], expected[name]) for name in names)
    assert count == [len(shard) - 3]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_into_columns_the_same_as_by_column(data: st.DataObject) -> None:
    encodings = data.draw(st.lists(st.sampled_from(ENCODINGS), min_size=1, max_size=6))
    names = data.draw(st.permutations(NAMES))[: len(encodings)]
    sizes = [get_mds_encoded_size(encoding) for encoding in encodings]
    schema = mds_schema(names, encodings, sizes)
    samples = []
    for _ in range(3):
        parts = [body(data, encoding) for encoding in encodings]
        lengths = [len(part) for part, size in zip(parts, sizes, strict=True) if size is None]
        samples.append(struct.pack(f"<{len(lengths)}I", *lengths) + b"".join(parts))
    offsets = np.cumsum([3, *map(len, samples)]).astype(np.uint32)
    shard = b"xyz" + b"".join(samples)
    count = [0]
    put = schema.putter_of(shard, offsets, count)
    numbers = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))
    places = data.draw(st.permutations(range(5)))[: len(numbers)]
    columns: dict[str, Any] = {
        name: [None] * 5 if layout is None else np.zeros((5, *layout[1]), layout[0])
        for name, layout in schema.layouts.items()
    }
    begins, ends = offsets[numbers].astype(np.int64), offsets[np.add(numbers, 1)].astype(np.int64)
    expected = outcome(schema.columns, shard, begins, ends)
    got = outcome(put, numbers, places, columns)
    if isinstance(expected, tuple):
        assert issubclass(got[0], (FormatError, UnicodeDecodeError))
        return
    assert got is None
    assert count == [int((ends - begins).sum())]
    for name, column in columns.items():
        assert all(
            same(column[place], value) for place, value in zip(places, expected[name], strict=True)
        )


@pytest.mark.parametrize("encoding", ["str", "int"])
def test_sizes_that_do_not_add_up(encoding: str) -> None:
    schema = mds_schema(["x", "y"], [encoding, "bytes"], [get_mds_encoded_size(encoding), None])
    data = bytes(20)
    with pytest.raises(CorruptShardError, match="the columns' sizes add up to"):
        schema.decode(data, 0, 20)


def test_arrays_are_new_ones_each_time() -> None:
    schema = mds_schema(["x"], ["ndarray:int32:4"], [16])
    shard = bytearray(np.arange(8, dtype="<i4").tobytes())
    get = schema.reader_of(shard, np.array([0, 16, 32], np.uint32), 2, [0])
    first = get(1)["x"]
    first += 1
    assert get(1)["x"].tolist() == [4, 5, 6, 7]
    assert first.flags.owndata
    assert first.flags.c_contiguous
