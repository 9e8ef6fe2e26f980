"""Arrays, torch's data sets, LitData's and Megatron's."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from streaming.convert import ConvertError, SchemaError, Source, convert, open_source
from streaming.convert.engines.processes import ProcessesEngine
from streaming.convert.sources.torch_data import IterableSource
from tests.convert.folders import samples_of

HERE = ProcessesEngine(0)
LITDATA = Path(__file__).parent / "litdata"


def go(source: Any, out: Path, **more: Any) -> Any:
    return convert(source, out, **{"engine": HERE, "progress": False} | more)


# NumPy.


def test_arrays(tmp_path: Path) -> None:
    arrays = {
        "x": np.arange(9, dtype="u2"),
        "grid": np.arange(36, dtype=">f4").reshape(9, 2, 2),
        "text": np.array([f"t{at}" for at in range(9)]),
        "raw": np.array([b"a"] * 9),
        "yes": np.arange(9) % 2 == 0,
        "any": np.array([{"at": at} for at in range(9)], dtype=object),
        "tensor": torch.ones(9, 3),
    }
    report = go(arrays, tmp_path, part_size=200)
    assert report.parts > 1
    assert report.columns == {
        "x": "uint16",
        "grid": "ndarray:float32:2,2",
        "text": "str",
        "raw": "bytes",
        "yes": "json",
        "any": "json",
        "tensor": "ndarray:float32:3",
    }
    for at, sample in enumerate(samples_of(tmp_path)):
        assert (sample["x"], sample["text"], sample["raw"]) == (at, f"t{at}", b"a")
        assert (sample["yes"], sample["any"]) == (at % 2 == 0, {"at": at})
        assert (sample["grid"] == arrays["grid"][at]).all()
        assert sample["grid"].dtype == np.float32


def test_records_and_single_arrays(tmp_path: Path) -> None:
    records = np.array([(1, 0.5), (2, 1.5)], dtype=[("a", "i4"), ("b", "f8")])
    assert go(records, tmp_path / "a").columns == {"a": "int32", "b": "float64"}
    assert go(np.zeros((4, 2), "i8"), tmp_path / "b").columns == {"x": "ndarray:int64:2"}


def test_npy_files_are_mapped(tmp_path: Path) -> None:
    for name in ("x", "y"):
        np.save(tmp_path / f"{name}.npy", np.arange(100.0).reshape(50, 2))
    report = go(str(tmp_path), tmp_path / "out", part_size=300, engine=ProcessesEngine(2))
    assert report.columns == {"x": "ndarray:float64:2", "y": "ndarray:float64:2"}
    assert [sample["y"][0] for sample in samples_of(tmp_path / "out")] == list(range(0, 100, 2))
    import pickle

    assert len(pickle.dumps(open_source(tmp_path / "x.npy"))) < 1500


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros(3), "y": np.zeros(4)}, "as many samples each: 'x' 3, 'y' 4"),
        ({"x": np.zeros(())}, "'x' none"),
        ({}, "as many samples each: none"),
        ({"x": np.zeros(3, "M8[s]")}, "'x' is of type array of datetime64"),
        ({"x": np.zeros((3, 2), bool)}, "'x' is of type array of bool"),
        ({"x": np.zeros(3, "c8")}, "'x' is of type array of complex64"),
    ],
)
def test_arrays_that_are_refused(tmp_path: Path, arrays: Any, message: str) -> None:
    with pytest.raises(ConvertError, match=message):
        go(arrays, tmp_path)


# Torch.


class Squares(Dataset[Any]):
    """A map-style data set."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def __len__(self) -> int:
        return 30

    def __getitem__(self, at: int) -> Any:
        return self.make(at)


class Named(NamedTuple):
    a: int
    b: str


@pytest.mark.parametrize(
    ("make", "columns"),
    [
        (lambda at: {"x": at, "y": torch.full((2, at), at)}, {"x": "int", "y": "ndarray:int64"}),
        (lambda at: (torch.tensor(at), "a"), {"0": "int64", "1": "str"}),
        (lambda at: torch.zeros(at, dtype=torch.float16), {"0": "ndarray:float16"}),
        (lambda at: Named(at, "b"), {"a": "int", "b": "str"}),
        (lambda at: (Image.new("L", (1, 2), at), at), {"0": "pil", "1": "int"}),
        (lambda at: {"l": (1, at)}, {"l": "json"}),
    ],
)
def test_map_style_data_sets(tmp_path: Path, make: Any, columns: dict[str, str]) -> None:
    report = go(Squares(make), tmp_path, part_size=80)
    assert report.columns == columns
    assert (report.samples, len(samples_of(tmp_path))) == (30, 30)


def test_samples_that_fail(tmp_path: Path) -> None:
    source = Squares(lambda at: {"x": [1, 2][at - 20] if at >= 20 else 0})
    with pytest.raises(ConvertError, match="sample 22 of the data set: IndexError"):
        go(source, tmp_path / "a")
    report = go(source, tmp_path / "b", on_error="skip")
    assert [one.row for one in report.skipped] == list(range(22, 30))


class Counted(IterableDataset[Any]):
    """An iterable one, that deals its samples out to workers."""

    def __iter__(self) -> Iterator[dict[str, int]]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from ({"x": x} for x in range(first, 20, step))


def test_iterable_data_sets(tmp_path: Path) -> None:
    assert go(Counted(), tmp_path / "a").parts == 1
    assert [sample["x"] for sample in samples_of(tmp_path / "a")] == list(range(20))
    source = IterableSource(Counted(), parts=3)
    go(source, tmp_path / "b", engine=ProcessesEngine(2))
    expected = [x for part in range(3) for x in range(part, 20, 3)]
    assert [sample["x"] for sample in samples_of(tmp_path / "b")] == expected
    assert get_worker_info() is None
    with pytest.raises(ValueError, match="parts is 0"):
        IterableSource(Counted(), parts=0)


def test_what_is_missing_in_samples_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="column 'y' is missing in 1 of the first 2"):
        go([{"x": 1, "y": 2}, {"x": 1}], tmp_path)
    with pytest.raises(SchemaError, match="has no samples to infer columns from"):
        go([], tmp_path)
    with pytest.raises(SchemaError, match="column 'x' is of type bytes or int"):
        go([{"x": 1}, {"x": b""}], tmp_path)


# LitData.


def test_litdata(tmp_path: Path) -> None:
    report = go(LITDATA / "flat", tmp_path, part_size=1)
    assert report.columns == {
        "i": "int",
        "f": "float64",
        "s": "str",
        "b": "bytes",
        "yes": "json",
        "flat": "ndarray:int32",
        "grid": "ndarray",
        "tensor": "ndarray:int64",
        "matrix": "ndarray",
        "pil": "pil",
        "jpeg": "jpeg",
    }
    assert report.parts == 3
    for at, sample in enumerate(samples_of(tmp_path), 1):
        plain = {name: sample[name] for name in ("i", "f", "s", "b", "yes")}
        assert plain == {"i": at, "f": at / 4, "s": f"ä{at}", "b": bytes([at]), "yes": at % 2 == 0}
        assert sample["flat"].tolist() == sample["tensor"].tolist() == list(range(at))
        assert sample["grid"].tolist() == [[at] * at] * 2
        assert sample["grid"].dtype == np.float32
        assert sample["matrix"].tolist() == [[0.5]] * at
        assert sample["pil"].getpixel((1, 2)) == at
        assert sample["jpeg"].size == (4, 4)


def test_litdata_of_other_forms(tmp_path: Path) -> None:
    assert go(str(LITDATA / "pair"), tmp_path / "a").columns == {"0": "int", "1": "str"}
    assert [s["1"] for s in samples_of(tmp_path / "a")] == [f"s{at}" for at in range(1, 6)]
    assert go(LITDATA / "single", tmp_path / "b").columns == {"0": "ndarray:int16"}
    go(LITDATA / "tokens", tmp_path / "c")
    found = [sample["tokens"].tolist() for sample in samples_of(tmp_path / "c")]
    assert found == [list(range(10 * at, 11 * at)) for at in range(1, 6)]
    with pytest.raises(SchemaError, match="its items are nested"):
        go(LITDATA / "nested", tmp_path / "d")
    with pytest.raises(ConvertError, match=r"compression \(zstd\), which only litdata reads"):
        go(LITDATA / "zstd", tmp_path / "e")


def test_litdata_that_is_damaged(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(LITDATA / "pair", tmp_path / "in")
    chunk = tmp_path / "in" / "chunk-0-1.bin"
    data = chunk.read_bytes()
    for damaged in (data[:-1], data[:9], b"\xff" * 4 + data[4:], data[:4] + b"\xff" * 4 + data[8:]):
        chunk.write_bytes(damaged)
        with pytest.raises(ConvertError, match=r"chunk-0-1.bin: .* damaged"):
            go(tmp_path / "in", tmp_path / "out", resume=False)
    chunk.unlink()
    with pytest.raises(FileNotFoundError, match=r"the chunk chunk-0-1.bin is not there"):
        go(tmp_path / "in", tmp_path / "out")


# Megatron.


def write_megatron(
    prefix: Path, documents: Sequence[Sequence[Sequence[int]]], dtype: str = "int32", code: int = 4
) -> None:
    """Write an indexed data set: documents of sequences of tokens."""
    sequences = [np.array(s, dtype) for document in documents for s in document]
    prefix.with_suffix(".bin").write_bytes(b"".join(s.tobytes() for s in sequences))
    lengths = np.array([len(s) for s in sequences], "<i4")
    ends = np.cumsum([s.nbytes for s in sequences])
    places = np.concatenate([[0], ends])[:-1].astype("<i8")
    bounds = np.cumsum([0, *map(len, documents)]).astype("<i8")
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(sequences), len(bounds))
    parts = [head, lengths.tobytes(), places.tobytes(), bounds.tobytes()]
    prefix.with_suffix(".idx").write_bytes(b"".join(parts))


DOCUMENTS = [[[at] * 3, list(range(at))] for at in range(1, 30)]


@pytest.mark.parametrize(("dtype", "code"), [("int32", 4), ("uint16", 8), ("int64", 5)])
def test_megatron(tmp_path: Path, dtype: str, code: int) -> None:
    write_megatron(tmp_path / "x", DOCUMENTS, dtype, code)
    for number, name in enumerate(("x.idx", "x.bin", "x")):
        out = tmp_path / str(number)
        report = go(tmp_path / name, out, format="megatron", part_size=600)
        assert report.columns == {"tokens": f"ndarray:{dtype}"}
        assert report.parts > 1
        found = [sample["tokens"].tolist() for sample in samples_of(out)]
        assert found == [[*one, *two] for one, two in DOCUMENTS]
    assert go(tmp_path / "x.bin", tmp_path / "out").samples == len(DOCUMENTS)


def test_megatron_that_is_damaged(tmp_path: Path) -> None:
    write_megatron(tmp_path / "x", DOCUMENTS)
    index, tokens = tmp_path / "x.idx", tmp_path / "x.bin"
    good = index.read_bytes()
    cases = [
        (b"MMIDIDX\0\1" + good[9:], "not an index"),
        (good[:-3], "is damaged, or of another version"),
        (good[:17] + b"\x63" + good[18:], "dtype 99"),
        (good[:-8] + struct.pack("<q", 1 << 40), "boundaries are damaged"),
        (good[:34] + struct.pack("<i", 7) + good[38:], "don't follow each other"),
    ]
    for data, message in cases:
        index.write_bytes(data)
        with pytest.raises(ConvertError, match=message):
            go(index, tmp_path / "out")
    index.write_bytes(good)
    tokens.write_bytes(tokens.read_bytes()[:-1])
    with pytest.raises(ConvertError, match="don't follow each other"):
        go(index, tmp_path / "out")
    tokens.unlink()
    with pytest.raises(FileNotFoundError, match=r"x.bin"):
        go(index, tmp_path / "out")


def test_a_source_of_ones_own_is_taken_as_it_is() -> None:
    source = IterableSource(Counted())
    assert isinstance(source, Source)
    assert open_source(source) is source
