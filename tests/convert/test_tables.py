"""Round trips: what comes back of pandas, polars, Arrow and Hugging Face is what went in."""

import datetime
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streaming.convert import ConvertError, SchemaError, convert, open_source
from streaming.convert.engines.processes import ProcessesEngine
from streaming.convert.schema import arrow_encoding
from tests.convert.folders import samples_of

HERE = ProcessesEngine(0)


def go(source: Any, out: Path, **more: Any) -> Any:
    return convert(source, out, **{"engine": HERE, "progress": False} | more)


def same(found: Any, value: Any) -> bool:
    """Whether a value came back with its type."""
    if isinstance(value, np.ndarray):
        return (
            isinstance(found, np.ndarray)
            and found.dtype == value.dtype
            and found.shape == value.shape
            and bool((found == value).all())
        )
    return type(found) is type(value) and found == value


SIGNED, UNSIGNED, FLOATS = [-1, 0, 100], [0, 1, 200], [0.5, -1.25, float("inf")]
NUMBERS: "dict[str, list[Any]]" = {
    **{f"int{bits}": SIGNED for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": UNSIGNED for bits in (8, 16, 32, 64)},
    **{f"float{bits}": FLOATS for bits in (16, 32, 64)},
}
COLUMNS: "dict[str, tuple[Any, list[Any], str]]" = {
    name: (pa.from_numpy_dtype(np.dtype(name)), [np.dtype(name).type(v) for v in values], name)
    for name, values in NUMBERS.items()
} | {
    "text": (pa.string(), ["", "ä", "x" * 1000], "str"),
    "large_text": (pa.large_string(), ["", "ä", "x"], "str"),
    "binary": (pa.binary(), [b"", b"\0\xff", b"x"], "bytes"),
    "fixed_binary": (pa.binary(2), [b"ab", b"\0\0", b"xy"], "bytes"),
    "bool": (pa.bool_(), [True, False, True], "json"),
    "null": (pa.null(), [None, None, None], "json"),
    "decimal": (
        pa.decimal128(9, 2),
        [Decimal("1.50"), Decimal("-0.01"), Decimal("0.00")],
        "str_decimal",
    ),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"], "str"),
    "list": (
        pa.list_(pa.int32()),
        [np.array([1, 2], "i4"), np.array([], "i4"), np.array([3], "i4")],
        "ndarray:int32",
    ),
    "fixed_list": (
        pa.list_(pa.float32(), 2),
        [np.array([a, 1], "f4") for a in range(3)],
        "ndarray:float32:2",
    ),
    "matrix": (
        pa.list_(pa.list_(pa.int8(), 3), 2),
        [np.full((2, 3), a, "i1") for a in range(3)],
        "ndarray:int8:2,3",
    ),
    "texts": (pa.list_(pa.string()), [["a"], [], ["b", None]], "json"),
    "bools": (pa.list_(pa.bool_(), 2), [[True, False]] * 3, "json"),
    "ragged": (pa.list_(pa.list_(pa.int64())), [[[1], []], [], [[2, 3]]], "json"),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))]),
        [{"a": 1, "b": [{"c": "x"}]}, {"a": 2, "b": []}, {"a": None, "b": None}],
        "json",
    ),
}


def arrow(name: str) -> Any:
    kind, values, _ = COLUMNS[name]
    plain = [v.tolist() if isinstance(v, np.ndarray) else v for v in values]
    return pa.array(plain, kind)


@pytest.fixture(scope="module")
def table() -> Any:
    """A table with all types that have an encoding."""
    return pa.table({name: arrow(name) for name in COLUMNS})


def check(out: Path) -> None:
    found = samples_of(out)
    for name, (_, values, _) in COLUMNS.items():
        for sample, value in zip(found, values, strict=True):
            assert same(sample[name], value), (name, sample[name], value)


def test_arrow_tables(table: Any, tmp_path: Path) -> None:
    report = go(table, tmp_path, part_size=1 << 30)
    assert report.columns == {name: encoding for name, (_, _, encoding) in COLUMNS.items()}
    check(tmp_path)


@pytest.mark.parametrize("form", ["parquet", "feather", "stream"])
def test_files_of_arrow_tables(table: Any, tmp_path: Path, form: str) -> None:
    import pyarrow.feather
    import pyarrow.parquet

    path = tmp_path / ("x.parquet" if form == "parquet" else "x.arrow")
    kept = table
    if form == "parquet":
        pyarrow.parquet.write_table(kept, path, row_group_size=2)
    elif form == "feather":
        pyarrow.feather.write_feather(kept, path, chunksize=2, compression="zstd")
    else:
        with pa.ipc.new_stream(path, kept.schema) as writer:
            writer.write_table(kept, max_chunksize=2)
    report = go(path, tmp_path / "out", part_size=1)
    assert report.parts == (1 if form == "stream" else 2)
    check(tmp_path / "out")


def test_parts_of_tables_are_slices(tmp_path: Path) -> None:
    values = [np.arange(n, dtype="i8") for n in range(50)]
    big = pa.table({"x": pa.array(range(50)), "l": pa.array([v.tolist() for v in values])})
    # Slices and chunks whose arrays don't begin at 0.
    joined = pa.concat_tables([big.slice(3, 20), big.slice(23)])
    assert go(joined, tmp_path, part_size=700).parts > 10
    found = samples_of(tmp_path)
    assert [sample["x"] for sample in found] == list(range(3, 50))
    assert all(same(sample["l"], values[sample["x"]]) for sample in found)


NO_ENCODING = {
    "when": pa.timestamp("us"),
    "day": pa.date32(),
    "time": pa.time64("us"),
    "span": pa.duration("s"),
    "map": pa.map_(pa.string(), pa.int64()),
    "blobs": pa.list_(pa.binary()),
    "dated": pa.struct([("a", pa.date32())]),
}


@pytest.mark.parametrize("name", NO_ENCODING)
def test_types_without_a_faithful_encoding(tmp_path: Path, name: str) -> None:
    kind = NO_ENCODING[name]
    assert arrow_encoding(kind) is None
    one = pa.table({"x": pa.array([1]), name: pa.array([None], kind)})
    with pytest.raises(SchemaError, match=f"column '{name}' is of type "):
        go(one, tmp_path)
    assert not list(tmp_path.iterdir())
    assert go(one, tmp_path, columns={name: None}).columns == {"x": "int64"}


def test_times_as_numbers_and_as_text(tmp_path: Path) -> None:
    when = datetime.datetime(2024, 2, 29, 12, 30)
    one = pa.table({"when": [when], "day": [when.date()], "f": [1.5]})
    columns = {"when": "int64", "day": "str", "f": "float32"}
    go(one, tmp_path, columns=columns)
    (sample,) = samples_of(tmp_path)
    assert sample["when"] == int(when.replace(tzinfo=datetime.timezone.utc).timestamp() * 10**6)
    assert sample["day"] == "2024-02-29"
    assert same(sample["f"], np.float32(1.5))
    with pytest.raises(ConvertError, match=r"rows 0 to 0, row 0: column 'f' .* int8 needs an int"):
        go(one, tmp_path / "out", columns=columns | {"f": "int8"})


def test_nulls(tmp_path: Path) -> None:
    import pyarrow.parquet

    holes = pa.table({"i": [1, None], "f": [None, 1.5], "s": ["a", None], "l": [["x"], None]})
    report = go(holes, tmp_path / "a")
    assert set(report.columns.values()) == {"json"}
    assert samples_of(tmp_path / "a") == holes.to_pylist()
    pyarrow.parquet.write_table(holes, tmp_path / "x.parquet")
    go(tmp_path / "x.parquet", tmp_path / "b")
    assert samples_of(tmp_path / "b") == holes.to_pylist()
    with pytest.raises(SchemaError, match="column 'b' is of type binary with 1 nulls"):
        go(pa.table({"b": [b"", None]}), tmp_path / "c")
    with pytest.raises(
        ConvertError, match=r"row 0: column 'l' .*needs a NumPy array, got list \[None\]"
    ):
        go(
            pa.table({"l": [[None]]}, schema=pa.schema([("l", pa.list_(pa.int8()))])),
            tmp_path / "d",
        )


def test_files_that_differ_are_refused(tmp_path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table({"x": [1], "y": [1]}), tmp_path / "1.parquet")
    pyarrow.parquet.write_table(pa.table({"x": [1], "y": ["a"]}), tmp_path / "2.parquet")
    with pytest.raises(SchemaError, match=r"2.parquet .*1.parquet; they differ in 'y' \(int64, s"):
        go(tmp_path, tmp_path / "out")


# pandas and polars.


def test_pandas(tmp_path: Path) -> None:
    import pandas

    frame = pandas.DataFrame(
        {
            "i": np.arange(3, dtype="i4"),
            "f": np.array([0.5, 1.5, 2.5], "f4"),
            "s": ["a", "b", "ü"],
            "c": pandas.Categorical(["x", "y", "x"]),
            "l": [np.arange(2), np.arange(3), np.arange(0)],
            "n": pandas.array([1, None, 3], dtype="Int64"),
        },
        index=[7, 8, 9],
    )
    report = go(frame, tmp_path)
    assert report.columns == {
        "i": "int32",
        "f": "float32",
        "s": "str",
        "c": "str",
        "l": "ndarray:int64",
        "n": "json",
    }
    for at, sample in enumerate(samples_of(tmp_path)):
        row = frame.iloc[at]
        assert same(sample["i"], np.int32(at))
        assert same(sample["f"], np.float32(row["f"]))
        assert same(sample["l"], row["l"])
        assert (sample["s"], sample["c"]) == (row["s"], row["c"])
        assert sample["n"] == (None if pandas.isna(row["n"]) else row["n"])
    with pytest.raises(ConvertError, match="the column 0 of the DataFrame is named by a int"):
        go(pandas.DataFrame([[1]]), tmp_path / "out")


def test_polars(tmp_path: Path) -> None:
    import polars

    frame = polars.DataFrame(
        {"i": [1, 2], "s": ["a", "b"], "l": [[1.5], []], "d": [{"x": 1}, {"x": 2}]},
        schema_overrides={"i": polars.UInt16},
    )
    for number, form in enumerate((frame, frame.lazy())):
        out = tmp_path / str(number)
        assert go(form, out).columns == {
            "i": "uint16",
            "s": "str",
            "l": "ndarray:float64",
            "d": "json",
        }
        first, second = samples_of(out)
        assert same(first["i"], np.uint16(1))
        assert same(first["l"], np.array([1.5]))
        assert (second["s"], second["d"]) == ("b", {"x": 2})


# Hugging Face.


@pytest.fixture(scope="module")
def datasets() -> Any:
    import datasets

    return datasets


@pytest.fixture(scope="module")
def photos(datasets: Any) -> Any:
    from PIL import Image

    def image(form: str, red: int) -> bytes:
        file = io.BytesIO()
        Image.new("RGB", (4, 4), (red, 0, 0)).save(file, form)
        return file.getvalue()

    features = datasets.Features(
        {
            "image": datasets.Image(),
            "png": datasets.Image(),
            "label": datasets.ClassLabel(names=["no", "yes"]),
            "tokens": datasets.Sequence(datasets.Value("int32")),
            "grid": datasets.Array2D((2, 2), "float32"),
            "meta": {"name": datasets.Value("string"), "ok": datasets.Value("bool")},
        }
    )
    rows = [
        {
            "image": {"bytes": image("JPEG", red), "path": None},
            "png": {"bytes": image("PNG", red), "path": None},
            "label": red % 2,
            "tokens": list(range(red)),
            "grid": [[red, 1], [2, 3]],
            "meta": {"name": f"n{red}", "ok": bool(red % 2)},
        }
        for red in range(12)
    ]
    return datasets.Dataset.from_list(rows, features=features)


PHOTO_COLUMNS = {
    "image": "jpeg",
    "png": "png",
    "label": "int64",
    "tokens": "ndarray:int32",
    "grid": "ndarray:float32:2,2",
    "meta": "json",
}


def check_photos(out: Path, order: "list[int]") -> None:
    found = samples_of(out)
    assert len(found) == len(order)
    for sample, red in zip(found, order, strict=True):
        assert same(sample["label"], np.int64(red % 2))
        assert same(sample["tokens"], np.arange(red, dtype="i4"))
        assert same(sample["grid"], np.array([[red, 1], [2, 3]], "f4"))
        assert sample["meta"] == {"name": f"n{red}", "ok": bool(red % 2)}
        assert sample["png"].getpixel((0, 0)) == (red, 0, 0)
        assert sample["image"].format == "JPEG"


def test_hugging_face_data_sets(photos: Any, tmp_path: Path) -> None:
    report = go(photos, tmp_path / "a", part_size=4000)
    assert report.columns == PHOTO_COLUMNS
    assert report.parts > 2
    check_photos(tmp_path / "a", list(range(12)))
    shuffled = photos.shuffle(seed=3)
    go(shuffled, tmp_path / "b", part_size=4000)
    order = [int(row["name"][1:]) for row in shuffled["meta"]]
    check_photos(tmp_path / "b", order)
    assert open_source(photos).fingerprint() != open_source(shuffled).fingerprint()


def test_hugging_face_streams(photos: Any, tmp_path: Path) -> None:
    stream = photos.to_iterable_dataset(num_shards=3)
    report = go(stream, tmp_path / "a", engine=ProcessesEngine(2))
    assert (report.columns, report.parts) == (PHOTO_COLUMNS, 3)
    check_photos(tmp_path / "a", list(range(12)))
    # What map makes, the library does not know before.
    mapped = photos.select_columns(["tokens"]).to_iterable_dataset(num_shards=2)
    mapped = mapped.map(lambda row: {"n": len(row["tokens"])}, remove_columns=["tokens"])
    assert go(mapped, tmp_path / "b").columns == {"n": "int"}
    assert [sample["n"] for sample in samples_of(tmp_path / "b")] == list(range(12))


def test_images_in_parquet_files_and_tables(photos: Any, tmp_path: Path) -> None:
    kinds = PHOTO_COLUMNS | {"grid": "json"}  # Parquet keeps that it is a list of lists
    photos.to_parquet(str(tmp_path / "x.parquet"))
    go(photos.data.table, tmp_path / "a", columns={"grid": None})
    report = go(tmp_path / "x.parquet", tmp_path / "b")
    assert {**kinds, "grid": report.columns["grid"]} == report.columns
    for out in ("a", "b"):
        found = samples_of(tmp_path / out)
        assert [sample["png"].getpixel((0, 0))[0] for sample in found] == list(range(12))
        assert all(sample["image"].format == "JPEG" for sample in found)


def test_hugging_face_what_is_refused(datasets: Any, photos: Any, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"dict of splits \(train, test\)"):
        open_source(datasets.DatasetDict({"train": photos, "test": photos}))
    with pytest.raises(SchemaError, match="no column 'no'"):
        go(photos, tmp_path, columns={"no": "int"})
