"""Readers: opening, closing, reading in samples and batches, threads, pickling, ownership."""

import gc
import os
import pickle
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming.format.compression import get_compressions
from streaming.format.encodings import mds
from streaming.format.encodings.mds import Encoding, Int, register_encoding
from streaming.format.errors import CorruptShardError, FormatError
from streaming.format.read_mds import MDSReader
from streaming.format.reader import Reader
from streaming.format.reader_kinds import JointReader, SplitReader
from streaming.format.readers import reader_from_json
from tests.format.shard_files import lines_shard, mds_shard

COLUMNS = {
    "a": "int",
    "b": "str",
    "c": "ndarray:float32:2,3",
    "d": "bytes",
    "e": "uint16",
    "f": "json",
    "g": "float64",
    "h": "ndarray",
}


def sample_of(i: int) -> dict[str, Any]:
    return {
        "a": i - 5,
        "b": "ä" * (i % 4),
        "c": np.full((2, 3), i, np.float32),
        "d": bytes(i % 3),
        "e": np.uint16(i),
        "f": {"i": [i, None]},
        "g": np.float64(i / 7),
        "h": np.arange(i % 3 + 1, dtype=np.int8),
    }


@pytest.fixture
def shard(tmp_path: Path) -> MDSReader:
    obj = mds_shard(tmp_path, COLUMNS, [sample_of(i) for i in range(20)], hashes=["xxh64"])
    return MDSReader.from_json(str(tmp_path), None, obj)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(np.array_equal(a, b))


def test_it_opens_itself_and_closes(shard: MDSReader) -> None:
    assert not shard.is_open
    assert not shard.unlinked()
    assert equal(shard.sample(3), sample_of(3))
    assert shard.is_open
    shard.open()
    shard.close()
    shard.close()
    assert not shard.is_open
    assert equal(shard[-1], sample_of(19))
    assert [sample["a"] for sample in shard] == list(range(-5, 15))
    assert [sample["a"] for sample in shard[2:4]] == [-3, -2]


def test_kinds(shard: MDSReader) -> None:
    assert isinstance(shard, JointReader)
    assert isinstance(shard, Reader)
    assert len(shard) == shard.size == shard.samples == 20
    assert (shard.split, shard.compression, shard.hashes) == ("", None, ["xxh64"])
    assert shard.size_limit == 1 << 26
    assert shard.file_pairs == [(shard.raw_data, None)]


def test_out_of_range(shard: MDSReader) -> None:
    for use in (shard.sample, shard.get_item, shard.get_sample_data, lambda i: shard.batch([0, i])):
        for number in (20, -1, 10**12):
            with pytest.raises(IndexError, match=r"shard\.00000\.mds has 20"):
                use(number)


def test_arrays_are_the_callers_own(shard: MDSReader, tmp_path: Path) -> None:
    before = (tmp_path / "shard.00000.mds").read_bytes()
    sample = shard.sample(4)
    for name in "ch":
        assert sample[name].flags.owndata
        sample[name][...] = 99
    columns = shard.batch([4, 5])
    for name in "aceg":
        assert columns[name].flags.writeable
        columns[name][...] = 99
    assert equal(shard.sample(4), sample_of(4))
    assert (tmp_path / "shard.00000.mds").read_bytes() == before


def test_samples_outlive_the_reader(shard: MDSReader) -> None:
    sample, columns = shard.sample(7), shard.batch([7, 8])
    shard.close()
    del shard
    gc.collect()
    assert equal(sample, sample_of(7))
    assert columns["c"][1].tolist() == [[8.0] * 3] * 2


@pytest.mark.parametrize("kind", [list, np.array, tuple, lambda at: np.array(at, np.uint8)])
def test_a_batch_is_columns(shard: MDSReader, kind: Any) -> None:
    at = [7, 0, 19, 7, 3]
    columns = shard.batch(kind(at))
    assert list(columns) == sorted(COLUMNS)
    for name, dtype, shape in (
        *(("a", "int64", ()), ("c", "float32", (2, 3)), ("e", "uint16", ()), ("g", "float64", ())),
    ):
        assert isinstance(columns[name], np.ndarray)
        assert columns[name].dtype == dtype
        assert columns[name].shape == (5, *shape)
        assert columns[name].flags.c_contiguous
    for name in "bdfh":
        assert isinstance(columns[name], list)
    for k, i in enumerate(at):
        for name, value in sample_of(i).items():
            assert np.array_equal(columns[name][k], value)


def test_batches_of_nothing_and_of_one(shard: MDSReader) -> None:
    empty = shard.batch([])
    assert empty["a"].shape == (0,)
    assert empty["c"].shape == (0, 2, 3)
    assert empty["b"] == []
    assert shard.batch(range(2, 3))["c"].shape == (1, 2, 3)


def test_columns_of_fixed_size_only(tmp_path: Path) -> None:
    columns = {"x": "ndarray:int32:100", "y": "int8", "z": "float16"}
    rng = np.random.default_rng(0)
    samples = [
        {"x": rng.integers(0, 9, 100, np.int32), "y": np.int8(i), "z": np.float16(i)}
        for i in range(50)
    ]
    reader = reader_from_json(str(tmp_path), "", mds_shard(tmp_path, columns, samples))
    at = rng.permutation(50)
    batch = reader.batch(at)
    assert (batch["x"] == np.stack([samples[i]["x"] for i in at])).all()
    assert batch["y"].tolist() == at.tolist()
    assert batch["z"].dtype == np.float16


@pytest.mark.parametrize(
    ("columns", "samples"),
    [
        ({}, [{}, {}]),
        ({"x": "bytes"}, [{"x": b""}, {"x": b""}]),
        ({"x": "str"}, []),
        ({"x": "int"}, []),
        ({"x": "int"}, [{"x": 1}]),
        ({"x": "str_decimal", "y": "str_int"}, [{"x": Decimal("1.10"), "y": 10**50}]),
    ],
)
def test_small_shards(
    tmp_path: Path, columns: dict[str, str], samples: list[dict[str, Any]]
) -> None:
    reader = reader_from_json(str(tmp_path), "", mds_shard(tmp_path, columns, samples))
    reader.open()
    assert list(reader) == samples
    batch = reader.batch(range(len(samples)))
    assert {name: list(column) for name, column in batch.items()} == {
        name: [sample[name] for sample in samples] for name in columns
    }


def test_a_split_and_folders_within_it(tmp_path: Path) -> None:
    obj = mds_shard(tmp_path / "root" / "train" / "0", {"x": "int"}, [{"x": 5}])
    obj["raw_data"]["basename"] = "0/shard.00000.mds"
    reader = reader_from_json(str(tmp_path / "root"), "train", obj)
    assert reader.sample(0) == {"x": 5}
    assert reader.split == "train"


def test_missing_files(shard: MDSReader, tmp_path: Path) -> None:
    (tmp_path / "shard.00000.mds").unlink()
    for use in (shard.open, lambda: shard.sample(0), lambda: shard.batch([0])):
        with pytest.raises(FileNotFoundError) as caught:
            use()
        assert caught.value.filename == str(tmp_path / "shard.00000.mds")
    assert not shard.is_open


@pytest.mark.parametrize("compression", ["br:1", "bz2:1", "gz:1", "snappy", "zstd:1"])
def test_compressed_shards_are_read_from_memory(tmp_path: Path, compression: str) -> None:
    assert compression in get_compressions()
    samples = [sample_of(i) for i in range(9)]
    obj = mds_shard(tmp_path, COLUMNS, samples, compression=compression, raw=False)
    before = sorted(os.listdir(tmp_path))
    reader = reader_from_json(str(tmp_path), None, obj)
    assert all(equal(found, wanted) for found, wanted in zip(reader, samples, strict=True))
    assert reader.batch([1, 0])["a"].tolist() == [-4, -5]
    assert sorted(os.listdir(tmp_path)) == before
    # What is in memory has no file that could be taken away from it.
    os.unlink(tmp_path / before[0])
    assert not reader.unlinked()
    assert equal(reader.sample(8), sample_of(8))
    reader.close()
    with pytest.raises(FileNotFoundError, match=r"shard\.00000\.mds\.") as caught:
        reader.open()
    assert caught.value.filename == str(tmp_path / "shard.00000.mds")


def test_compressed_files_that_are_wrong(tmp_path: Path) -> None:
    obj = mds_shard(tmp_path, {"x": "int"}, [{"x": 5}], compression="zstd", raw=False)
    path = tmp_path / "shard.00000.mds.zstd"
    data = path.read_bytes()
    reader = reader_from_json(str(tmp_path), None, obj)
    for wrong in (data[:-1], data + b"x", b"", bytes(len(data))):
        path.write_bytes(wrong)
        with pytest.raises(CorruptShardError, match=r"shard\.00000\.mds\.zstd"):
            reader.open()
    path.write_bytes(data)
    for size in (obj["raw_data"]["bytes"] - 1, obj["raw_data"]["bytes"] + 1):
        changed = {**obj, "raw_data": {**obj["raw_data"], "bytes": size}}
        with pytest.raises(CorruptShardError, match="becomes"):
            reader_from_json(str(tmp_path), None, changed).open()


def test_a_deleted_shard_reads_on_and_says_so(shard: MDSReader, tmp_path: Path) -> None:
    path = tmp_path / "shard.00000.mds"
    data = path.read_bytes()
    shard.open()
    assert not shard.unlinked()
    path.unlink()
    assert shard.unlinked()
    assert equal(shard.sample(19), sample_of(19))
    path.write_bytes(data)  # another file of the same name
    assert shard.unlinked()
    shard.close()
    assert not shard.unlinked()
    shard.open()
    assert not shard.unlinked()


def test_a_replaced_shard_reads_on_and_says_so(shard: MDSReader, tmp_path: Path) -> None:
    path, new = tmp_path / "shard.00000.mds", tmp_path / "new"
    new.write_bytes(path.read_bytes())
    shard.open()
    os.replace(new, path)
    assert shard.unlinked()
    assert equal(shard.sample(19), sample_of(19))


def test_pickling_closes(shard: MDSReader) -> None:
    shard.open()
    again = pickle.loads(pickle.dumps(shard))
    assert not again.is_open
    assert shard.is_open
    assert equal(again.sample(2), sample_of(2))
    assert len(pickle.dumps(shard)) < 2000


def test_threads_read_while_others_open_and_close(shard: MDSReader) -> None:
    wrong: list[Any] = []
    stop = threading.Event()

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(300):
                i = int(rng.integers(20))
                if not equal(shard.sample(i), sample_of(i)):
                    wrong.append(i)
                at = rng.integers(0, 20, 4)
                if shard.batch(at)["a"].tolist() != (at - 5).tolist():
                    wrong.append(at)
        except BaseException as err:
            wrong.append(err)

    def close() -> None:
        while not stop.is_set():
            shard.close()

    closing = threading.Thread(target=close)
    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in (closing, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    closing.join()
    assert not wrong


def test_open_shards_hold_few_descriptors(tmp_path: Path) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    obj = mds_shard(tmp_path, {"x": "int"}, [{"x": 5}])
    before = len(os.listdir("/proc/self/fd"))
    readers = [reader_from_json(str(tmp_path), None, obj) for _ in range(20)]
    for reader in readers:
        reader.open()
    assert len(os.listdir("/proc/self/fd")) <= before + 20
    for reader in readers:
        reader.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_sizes(tmp_path: Path) -> None:
    obj = mds_shard(tmp_path, {"x": "int"}, [{"x": 5}], compression="zstd")
    raw, zipped = obj["raw_data"]["bytes"], obj["zip_data"]["bytes"]
    reader = reader_from_json(str(tmp_path), None, obj)
    assert (reader.get_raw_size(), reader.get_zip_size()) == (raw, zipped)
    assert reader.get_max_size() == raw + zipped
    assert reader.get_persistent_size(True) == raw + zipped
    assert reader.get_persistent_size(False) == raw
    plain = reader_from_json(str(tmp_path), None, mds_shard(tmp_path, {"x": "int"}, [{"x": 5}]))
    assert plain.get_zip_size() is None
    assert plain.get_max_size() == plain.get_persistent_size(True) == plain.get_raw_size()


def test_setting_up_and_evicting(tmp_path: Path) -> None:
    obj = mds_shard(tmp_path, {"x": "int"}, [{"x": 5}], compression="zstd")
    raw, zipped = obj["raw_data"]["bytes"], obj["zip_data"]["bytes"]
    reader = reader_from_json(str(tmp_path), None, obj)

    def listing() -> set[str]:
        return {str(path) for path in tmp_path.iterdir()}

    assert reader.set_up_local(listing(), True) == raw + zipped
    assert reader.set_up_local(listing(), False) == raw
    assert not (tmp_path / "shard.00000.mds.zstd").exists()
    assert reader.evict() == raw
    assert reader.evict() == 0
    assert reader.set_up_local(listing(), True) == 0
    assert listing() == set()


# Encodings.


def test_pickles_are_refused_until_they_are_allowed(tmp_path: Path) -> None:
    obj = mds_shard(tmp_path, {"x": "pkl"}, [{"x": {1, 2}}])
    reader = reader_from_json(str(tmp_path), None, obj)
    for use in (reader.open, lambda: reader.sample(0), lambda: reader.validate(False)):
        with pytest.raises(FormatError, match=r"shard\.00000\.mds.*'x'.*allow_unsafe_types"):
            use()
    reader.validate(True)
    assert reader.sample(0) == {"x": {1, 2}}
    assert pickle.loads(pickle.dumps(reader)).sample(0) == {"x": {1, 2}}
    reader.validate(True)
    with pytest.raises(FormatError):
        reader.validate(False)
    with pytest.raises(FormatError):
        reader.sample(0)


@pytest.fixture
def registry() -> Any:
    before = dict(mds._encodings)
    yield
    mds._encodings.clear()
    mds._encodings.update(before)


@pytest.mark.usefixtures("registry")
def test_an_encoding_of_ones_own(tmp_path: Path) -> None:
    class Reverse(Encoding):
        def encode(self, obj: bytes) -> bytes:
            return obj[::-1]

        def decode(self, data: bytes) -> bytes:
            assert type(data) is bytes
            return data[::-1]

    class Negative(Int):
        """Ours, but for its decoding: nothing may go past that."""

        def encode(self, obj: int) -> bytes:
            return super().encode(-obj)

        def decode(self, data: bytes) -> int:
            return -super().decode(data)

    register_encoding("reverse", Reverse)
    register_encoding("negative", Negative)
    samples = [{"x": b"abc", "y": 5}, {"x": b"", "y": -7}]
    obj = mds_shard(tmp_path, {"x": "reverse", "y": "negative"}, samples)
    reader = reader_from_json(str(tmp_path), None, obj)
    assert list(reader) == samples
    assert reader.batch([1, 0]) == {"x": [b"", b"abc"], "y": [-7, 5]}


@pytest.mark.usefixtures("registry")
def test_an_exception_of_a_users_encoding_stays_itself(tmp_path: Path) -> None:
    class Broken(Encoding):
        def encode(self, obj: bytes) -> bytes:
            return obj

        def decode(self, data: bytes) -> bytes:
            raise ZeroDivisionError("mine")

    register_encoding("broken", Broken)
    reader = reader_from_json(
        str(tmp_path), None, mds_shard(tmp_path, {"x": "broken"}, [{"x": b""}])
    )
    for use in (lambda: reader.sample(0), lambda: reader.batch([0])):
        with pytest.raises(ZeroDivisionError, match="mine"):
            use()


def test_an_unknown_encoding_is_named(tmp_path: Path) -> None:
    obj = mds_shard(tmp_path, {"x": "int"}, [{"x": 5}])
    obj["column_encodings"] = ["nothing"]
    reader = reader_from_json(str(tmp_path), None, obj)
    with pytest.raises(FormatError, match=r"shard\.00000\.mds: column 'x'.*nothing"):
        reader.sample(0)


# Lines of text.

ROWS = [(0, "wörd", 0.5), (-1, "", float("inf")), (2**70, "a b", -0.0)]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", "<end>"])
@pytest.mark.parametrize(("kind", "separator"), [("csv", ","), ("tsv", "\t"), ("xsv", "||")])
def test_lines_of_values(tmp_path: Path, kind: str, separator: str, newline: str) -> None:
    names = ["n", "s", "x"]
    fields: dict[str, Any] = {
        "column_names": names,
        "column_encodings": ["int", "str", "float"],
    }
    if kind == "xsv":
        fields["separator"] = separator
    lines = [separator.join(map(str, row)) for row in ROWS]
    obj = lines_shard(tmp_path, kind, lines, fields, newline, head=separator.join(names))
    reader = reader_from_json(str(tmp_path), None, obj)
    assert isinstance(reader, SplitReader)
    wanted = [dict(zip(names, row, strict=True)) for row in ROWS]
    assert list(reader) == wanted
    assert [sample["n"] for sample in reader[::-1]] == [2**70, -1, 0]
    assert reader.batch([2, 0]) == {name: [wanted[2][name], wanted[0][name]] for name in names}
    assert reader.get_sample_data(0) == (lines[0] + newline).encode()
    assert reader.decode_sample((lines[1] + newline).encode()) == wanted[1]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_lines_of_json(tmp_path: Path, newline: str, compression: str | None) -> None:
    lines = ['{"n": 1, "s": "w\\u00f6rd"}', '{"n": 2, "s": "x", "more": null}']
    fields = {"columns": {"n": "int", "s": "str"}}
    obj = lines_shard(
        tmp_path, "json", lines, fields, newline, compression=compression, raw=compression is None
    )
    reader = reader_from_json(str(tmp_path), None, obj)
    assert list(reader) == [{"n": 1, "s": "wörd"}, {"n": 2, "s": "x"}]
    assert reader.batch([1]) == {"n": [2], "s": ["x"]}
    assert reader.file_pairs[-1][0].basename == "shard.00000.json"


def test_lines_with_newlines_inside(tmp_path: Path) -> None:
    """Written by 0.13, which lets them through; the offsets say where a line really ends."""
    fields = {"column_names": ["s"], "column_encodings": ["str"]}
    obj = lines_shard(tmp_path, "csv", ["a\nb", "", "c"], fields, head="s")
    reader = reader_from_json(str(tmp_path), None, obj)
    assert [sample["s"] for sample in reader] == ["a\nb", "", "c"]


WRONG_LINES = [
    ("csv", "1,a", "2 values for the 3 columns"),
    ("csv", "1,a,2.0,3", "4 values for the 3 columns"),
    ("csv", "one,a,2.0", "column 'n'"),
    ("csv", "1,a,two", "column 'x'"),
    ("csv", "", "1 values"),
    ("json", '{"n"', "not JSON"),
    ("json", "[1]", "not an object"),
    ("json", '{"n": 1}', "no value for the columns s, x"),
    ("json", "[" * 100_000, "not JSON"),
]


@pytest.mark.parametrize(("kind", "line", "said"), WRONG_LINES)
def test_wrong_lines(tmp_path: Path, kind: str, line: str, said: str) -> None:
    names, encodings = ["n", "s", "x"], ["int", "str", "float"]
    good = {"csv": "1,a,2.0", "json": '{"n": 1, "s": "a", "x": 2.0}'}[kind]
    fields: dict[str, Any] = (
        {"columns": dict(zip(names, encodings, strict=True))}
        if kind == "json"
        else {"column_names": names, "column_encodings": encodings}
    )
    head = "n,s,x" if kind == "csv" else ""
    obj = lines_shard(tmp_path, kind, [good, line, good], fields, head=head)
    reader = reader_from_json(str(tmp_path), None, obj)
    assert reader.sample(0) == reader.sample(2) == {"n": 1, "s": "a", "x": 2.0}
    for use in (lambda: reader.sample(1), lambda: reader.batch([0, 1])):
        with pytest.raises(CorruptShardError, match=said) as caught:
            use()
        assert f"{tmp_path}/shard.00000.{kind}: sample 1" in str(caught.value)
    for data in (good.encode(), b"", b"\xff\n"):
        with pytest.raises(CorruptShardError):
            reader.decode_sample(data)


def test_what_json_makes_no_reader(tmp_path: Path) -> None:
    obj = mds_shard(tmp_path, {"x": "int"}, [{"x": 5}])
    for wrong in ({**obj, "format": "what"}, {**obj, "format": "csv"}, {}, None, [obj]):
        with pytest.raises(FormatError):
            reader_from_json(str(tmp_path), None, wrong)  # type: ignore[arg-type]
    csv = {"column_names": [], "column_encodings": []}
    other = lines_shard(tmp_path, "csv", [], csv, head="x")
    with pytest.raises(FormatError, match="format must be mds"):
        MDSReader.from_json(str(tmp_path), None, other)
    for field in obj:
        with pytest.raises(FormatError, match=field):
            reader_from_json(str(tmp_path), None, {k: v for k, v in obj.items() if k != field})
