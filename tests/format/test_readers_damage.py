"""Damaged shards: the same sample, a changed value where the payload changed, or our error."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.format.errors import CorruptShardError, FormatError
from streaming.format.readers import reader_from_json
from tests.conformance_data import CONFORMANCE
from tests.format.shard_files import lines_shard, mds_shard

COLUMNS = {"a": "int", "b": "str", "c": "ndarray:int16", "d": "ndarray:int32:2", "e": "bytes"}


def sample_of(i: int) -> dict[str, Any]:
    return {
        "a": i,
        "b": "x" * (i % 5),
        "c": np.arange(i % 3 + 1, dtype=np.int16),
        "d": np.full(2, i, np.int32),
        "e": bytes([i]) * (i % 4),
    }


def make(tmp_path: Path) -> tuple[Path, dict[str, Any], bytes]:
    obj = mds_shard(tmp_path, COLUMNS, [sample_of(i) for i in range(8)])
    path = tmp_path / "shard.00000.mds"
    return path, obj, path.read_bytes()


def change(at: int, *values: int) -> Callable[[bytearray], None]:
    """Put uint32s at a position of the table."""

    def apply(data: bytearray) -> None:
        struct.pack_into(f"<{len(values)}I", data, 4 * at, *values)

    return apply


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(change(0, 7), "7 samples", id="fewer samples"),
        pytest.param(change(0, 2**32 - 1), "samples where", id="more samples"),
        pytest.param(change(1, 0), "they should begin", id="first in the table"),
        pytest.param(change(1, 2**32 - 1), "sample 0", id="first beyond the end"),
        pytest.param(change(9, 5), "end at", id="last too small"),
        pytest.param(change(9, 2**32 - 1), "end at", id="last beyond the end"),
        pytest.param(change(4, 2**32 - 1), "sample 3", id="one beyond the end"),
        pytest.param(change(4, 0), "sample 2", id="one before the beginning"),
    ],
)
def test_damaged_tables(tmp_path: Path, damage: Callable[[bytearray], None], said: str) -> None:
    path, obj, good = make(tmp_path)
    data = bytearray(good)
    damage(data)
    path.write_bytes(data)
    reader = reader_from_json(str(tmp_path), None, obj)
    for use in (reader.open, lambda: reader.sample(0), lambda: reader.batch([0])):
        with pytest.raises(CorruptShardError, match=said) as caught:
            use()
        assert str(path) in str(caught.value)
    assert not reader.is_open
    path.write_bytes(good)  # fetched again
    assert reader.sample(3)["a"] == 3


def test_wrong_sizes(tmp_path: Path) -> None:
    path, obj, good = make(tmp_path)
    reader = reader_from_json(str(tmp_path), None, obj)
    for data, said in ((good[:-1], "cut off"), (good + b"x", "another file"), (b"", "cut off")):
        path.write_bytes(data)
        with pytest.raises(CorruptShardError, match=said) as caught:
            reader.open()
        assert str(path) in str(caught.value)


def test_sizes_within_a_sample(tmp_path: Path) -> None:
    """Whatever a sample says of its columns, nothing outside of it is read."""
    path, obj, good = make(tmp_path)
    begin = struct.unpack_from("<I", good, 4 + 4 * 3)[0]
    reader = reader_from_json(str(tmp_path), None, obj)
    for sizes in ((0, 0, 0), (2**32 - 1,) * 3, (3, 9, 2**31), (4, 9, 3)):
        data = bytearray(good)
        struct.pack_into("<3I", data, begin, *sizes)
        path.write_bytes(data)
        reader.close()
        for use in (lambda: reader.sample(3), lambda: reader.batch([2, 3])):
            with pytest.raises(CorruptShardError) as caught:
                use()
            assert f"{path}: sample 3" in str(caught.value)
        assert reader.sample(2)["a"] == 2
        assert reader.batch([2, 4])["a"].tolist() == [2, 4]


def test_a_value_that_does_not_decode(tmp_path: Path) -> None:
    obj = mds_shard(tmp_path, {"a": "int", "b": "str"}, [{"a": 1, "b": "word"}] * 3)
    path = tmp_path / "shard.00000.mds"
    data = bytearray(path.read_bytes())
    data[-1] = 0xFF
    path.write_bytes(data)
    reader = reader_from_json(str(tmp_path), None, obj)
    assert reader.batch([0, 1])["b"] == ["word", "word"]
    for use in (lambda: reader.sample(2), lambda: reader.batch([0, 2])):
        with pytest.raises(CorruptShardError, match=r"sample 2: column 'b' \(str\): .*utf-8"):
            use()


def test_bytes_that_are_no_sample(tmp_path: Path) -> None:
    _, obj, _ = make(tmp_path)
    reader = reader_from_json(str(tmp_path), None, obj)
    good = reader.get_sample_data(3)
    assert reader.decode_sample(good)["a"] == 3
    for data in (b"", good[:5], good[:-1], good + b"x"):
        with pytest.raises(CorruptShardError):
            reader.decode_sample(data)


def text_shard(tmp_path: Path) -> dict[str, Any]:
    fields = {"column_names": ["a", "b"], "column_encodings": ["str", "str"]}
    return lines_shard(tmp_path, "csv", ["one,two", "a,b", "c,d"], fields, head="a,b")


@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize("by", [-4, -1, 1, 4])
def test_offsets_of_lines_that_moved(tmp_path: Path, at: int, by: int) -> None:
    obj = text_shard(tmp_path)
    path = tmp_path / "shard.00000.csv.meta"
    data = bytearray(path.read_bytes())
    offset = struct.unpack_from("<I", data, 4 * at)[0]
    struct.pack_into("<I", data, 4 * at, offset + by)
    path.write_bytes(data)
    reader = reader_from_json(str(tmp_path), None, obj)
    wanted = [{"a": "one", "b": "two"}, {"a": "a", "b": "b"}, {"a": "c", "b": "d"}]
    wrong = 0
    for i in range(3):
        try:
            assert reader.sample(i) == wanted[i]
        except CorruptShardError:
            wrong += 1
    assert wrong


def damaged(data: st.DataObject, good: bytes) -> bytes:
    found = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(good) - 1))
        found[at] ^= data.draw(st.integers(1, 255))
    if data.draw(st.integers(0, 9)) == 0:
        del found[data.draw(st.integers(0, len(found))) :]
    return bytes(found)


def read_all(reader: Any) -> list[Any]:
    """Every sample, or None where there is an error; no other exception passes."""
    found = []
    for i in range(len(reader)):
        try:
            found.append(reader.sample(i))
        except CorruptShardError:
            found.append(None)
    if None in found:
        with pytest.raises(CorruptShardError, match=r"shard\.0000"):
            reader.batch(np.arange(len(reader)))
    else:
        reader.batch(np.arange(len(reader)))
    return found


def test_any_damage_to_a_shard(tmp_path: Path) -> None:
    path, obj, good = make(tmp_path)
    offsets = struct.unpack_from("<9I", good, 4)
    reader = reader_from_json(str(tmp_path), None, obj)
    whole = [json.dumps(sample_of(i), default=repr) for i in range(8)]

    @given(st.data())
    @settings(max_examples=400, deadline=None)
    def check(data: st.DataObject) -> None:
        bad = damaged(data, good)
        path.write_bytes(bad)
        reader.close()
        for i, sample in enumerate(read_all(reader)):
            begin, end = offsets[i : i + 2]
            payload_changed = bad[begin:end] != good[begin:end]
            if sample is not None and not payload_changed:
                assert json.dumps(sample, default=repr) == whole[i]

    check()


FORMATS = CONFORMANCE / "formats"


@pytest.mark.parametrize(
    "name", sorted(p.parent.name for p in FORMATS.glob("*/index.json") if "pkl" not in str(p))
)
def test_any_damage_to_a_recorded_shard(tmp_path: Path, name: str) -> None:
    index = json.loads((FORMATS / name / "index.json").read_text())
    obj = index["shards"][-1]
    about = [obj[field] for field in obj if field[:4] in ("raw_", "zip_") and obj[field]]
    paths = [FORMATS / name / info["basename"] for info in about]
    good = {path.relative_to(FORMATS / name): path.read_bytes() for path in paths if path.exists()}
    for basename in good:
        os.makedirs((tmp_path / basename).parent, exist_ok=True)
    reader = reader_from_json(str(tmp_path), None, obj)

    @given(st.data())
    @settings(max_examples=60, deadline=None)
    def check(data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from(sorted(good)))
        for basename, content in good.items():
            bad = damaged(data, content) if basename == victim else content
            (tmp_path / basename).write_bytes(bad)
        reader.close()
        read_all(reader)

    check()


def test_indexes_that_disagree_with_their_shards(tmp_path: Path) -> None:
    """Sizes and counts of another data set: an error, not its samples."""
    _, obj, _ = make(tmp_path)
    for changed in (
        {"samples": 7},
        {"column_names": ["a"], "column_encodings": ["int"], "column_sizes": [8]},
        {"column_names": ["a"], "column_encodings": ["str"], "column_sizes": [None]},
    ):
        reader = reader_from_json(str(tmp_path), None, {**obj, **changed})
        with pytest.raises(FormatError, match=r"shard\.00000\.mds"):
            reader.sample(0)
