"""Files: found, told apart, cut into parts that hold every row once."""

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import tarfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from streaming.convert import ConvertError, SchemaError, Unreadable, convert, open_source
from streaming.convert.engines.processes import ProcessesEngine
from streaming.convert.sources.csv_files import record_starts
from streaming.convert.sources.jsonl import line_chunks
from streaming.convert.sources.lookup import find_files
from tests.convert.folders import samples_of

HERE = ProcessesEngine(0)


def go(source: Any, out: Path, **more: Any) -> Any:
    return convert(source, out, **{"engine": HERE, "progress": False} | more)


# Finding.


def test_files_are_found_by_name_folder_and_pattern(tmp_path: Path) -> None:
    for name in ("b/2.csv", "a.csv", "b/1.csv", ".hidden.csv", "b/_SUCCESS", "c/d/3.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n1\n")

    def found(where: str) -> list[str]:
        return [file.key for file in find_files(f"{tmp_path}{where}", {})]

    assert found("") == ["a.csv", "b/1.csv", "b/2.csv", "c/d/3.txt"]
    assert found("/b") == ["1.csv", "2.csv"]
    assert found("/*.csv") == ["a.csv"]
    assert found("/**/*.csv") == ["a.csv", "b/1.csv", "b/2.csv"]
    assert found("/*/[13].csv") == ["b/1.csv"]
    assert found("/b/?.csv") == ["1.csv", "2.csv"]
    assert found("/a.csv") == ["a.csv"]
    assert found("/b/{1..2}.{csv,csv}") == ["1.csv", "1.csv", "2.csv", "2.csv"]
    for nowhere in ("/none", "/none/*.csv", "/none.csv"):
        with pytest.raises(FileNotFoundError, match=r"there (is|are) no"):
            found(nowhere)


def test_what_files_are_is_told_or_asked(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(ConvertError, match=r"1 of csv, 1 of jsonl.*give format="):
        open_source(str(tmp_path))
    assert open_source(str(tmp_path), format="csv").describe() == f"CSV, {tmp_path}/a.csv"
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "data").write_text('{"x": 1}\n')
    with pytest.raises(ConvertError, match="no file whose name says it"):
        open_source(tmp_path / "c")
    assert open_source(tmp_path / "c", format="jsonl").columns() == {"x": "int"}
    both = [tmp_path / "b.jsonl", str(tmp_path / "b.jsonl")]
    assert len([*open_source(both).read(open_source(both).parts()[0])]) == 2
    go(tmp_path / "b.jsonl", tmp_path / "shards")
    with pytest.raises(ConvertError, match="a data set of shards already"):
        open_source(tmp_path / "shards")


# JSON lines.


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")), max_size=12),
    st.booleans(),
    st.integers(1, 30),
    st.integers(1, 9),
)
def test_each_line_is_in_one_range(lines: list[bytes], ends: bool, each: int, chunk: int) -> None:
    text = b"\n".join(lines) + b"\n" * ends
    cuts = [*range(0, len(text), each), len(text)]
    found = [
        bytes(lines)
        for start, stop in pairwise(cuts)
        for lines in line_chunks(io.BytesIO(text), start, stop, chunk)
    ]
    assert b"".join(found) == text.removeprefix(b"\xef\xbb\xbf")
    assert all(one.endswith(b"\n") for one in found[:-1])


def test_json_lines_in_parts(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [{"id": at, "t": "ä\u2028" * rng.randrange(60), "f": at / 2} for at in range(300)]
    for number in range(3):
        lines = [json.dumps(row, ensure_ascii=bool(number)) for row in rows[number::3]]
        (tmp_path / f"{number}.jsonl").write_text("\n\n".join(lines), encoding="utf-8-sig")
    report = go(tmp_path / "*.jsonl", tmp_path / "out", part_size=4000)
    assert report.parts > 6
    assert report.columns == {"id": "int", "t": "str", "f": "float64"}
    expected = [row for number in range(3) for row in rows[number::3]]
    assert samples_of(tmp_path / "out") == expected


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_compressed_lines(tmp_path: Path, ending: str) -> None:
    text = b"".join(b'{"x": %d}\n' % at for at in range(100))
    # Several streams one after another, as tools that work in parallel write them.
    parts = {
        "gz": lambda: gzip.compress(text[:500]) + gzip.compress(text[500:]),
        "bz2": lambda: bz2.compress(text),
        "xz": lambda: lzma.compress(text),
        "zst": lambda: zstandard.compress(text[:500]) + zstandard.compress(text[500:]),
    }
    (tmp_path / f"x.jsonl.{ending}").write_bytes(parts[ending]())
    report = go(tmp_path / f"x.jsonl.{ending}", tmp_path / "out", part_size=10)
    assert (report.parts, report.samples) == (1, 100)


def test_files_that_are_cut_off_are_named(tmp_path: Path) -> None:
    lines = gzip.compress(b"".join(b'{"x": %d}\n' % at for at in range(3000)))
    (tmp_path / "x.jsonl.gz").write_bytes(lines[:-500])
    with pytest.raises(ConvertError, match=r"x.jsonl.gz: it can't be read: EOFError"):
        go(tmp_path / "x.jsonl.gz", tmp_path / "out", columns={"x": "int"})


def test_lines_that_are_not_json_objects(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"x": 1}\n{"x": \n7\n\n{"x": 2}, {"x": 3}\n{"x": 4}\n{"y": 5}\n')
    with pytest.raises(SchemaError, match="column 'x' is missing in 1 of the first 3"):
        go(path, tmp_path / "a")
    with pytest.raises(ConvertError, match=r"x.jsonl, row 1: not JSON: Expecting"):
        go(path, tmp_path / "b", columns={"x": "int", "y": None})
    arguments: dict[str, Any] = {"columns": {"x": "int", "y": None}, "on_error": "skip"}
    report = go(path, tmp_path / "c", **arguments)
    assert [sample["x"] for sample in samples_of(tmp_path / "c")] == [1, 4]
    assert [one.row for one in report.skipped] == [1, 2, 3, 5]
    (tmp_path / "array.json").write_text("[1, 2]")
    with pytest.raises(SchemaError, match="each line has to be one"):
        go(tmp_path / "array.json", tmp_path / "d")


def test_kinds_of_json_values(tmp_path: Path) -> None:
    rows = [
        {"i": 1, "f": 1.5, "m": 1, "n": None, "b": True, "l": [1, 2], "big": 1 << 70},
        {"i": 2, "f": 2.5, "m": 1.5, "n": "x", "b": False, "l": [], "big": 2},
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    report = go(tmp_path / "x.jsonl", tmp_path / "out")
    kinds = {"i": "int", "f": "float64", "big": "json"} | dict.fromkeys("mnbl", "json")
    assert report.columns == kinds
    assert samples_of(tmp_path / "out") == rows
    go(tmp_path / "x.jsonl", tmp_path / "arrays", columns={"l": "ndarray:int16"})
    assert samples_of(tmp_path / "arrays")[0]["l"].dtype == np.int16
    with pytest.raises(ConvertError, match="column 'm'"):
        go(tmp_path / "x.jsonl", tmp_path / "wrong", columns={"m": "int"})


# CSV.


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.text('a,"\n\r x', max_size=6), min_size=2, max_size=2), max_size=9),
    st.integers(1, 40),
)
def test_csv_is_cut_between_records(rows: list[list[str]], each: int) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    data = file.getvalue().encode()
    cuts = [0, *record_starts(io.BytesIO(data), len(data), each), len(data)]
    assert cuts == sorted(set(cuts)) or not data
    found = [
        row
        for start, stop in pairwise(cuts)
        for row in csv.reader(io.StringIO(data[start:stop].decode(), newline=""))
    ]
    assert found == rows


def test_csv_in_parts(tmp_path: Path) -> None:
    rows = [[str(at), f'say "{at}",\nplease', f"{at:03}", f"{at / 4}"] for at in range(200)]
    for number in range(2):
        with open(tmp_path / f"{number}.csv", "w", newline="", encoding="utf-8-sig") as file:
            writer = csv.writer(file)
            writer.writerows([["id", "text", "zip", "f"], *rows[number::2]])
    report = go(str(tmp_path), tmp_path / "out", part_size=2000)
    assert report.parts > 3
    assert report.columns == {"id": "int", "text": "str", "zip": "str", "f": "float64"}
    expected = [
        {"id": int(a), "text": b, "zip": c, "f": float(d)}
        for number in range(2)
        for a, b, c, d in rows[number::2]
    ]
    assert samples_of(tmp_path / "out") == expected


def test_csv_does_not_guess(tmp_path: Path) -> None:
    lines = "".join(f"{at},x\n" for at in range(1200))
    path = tmp_path / "x.csv"
    path.write_text(f"id,t\n{lines}n/a,x\n7,x,y\n8,z\n")
    with pytest.raises(
        ConvertError, match=r"row 1200: column 'id': 'n/a' is not .* keeps the text"
    ):
        go(path, tmp_path / "a")
    report = go(path, tmp_path / "b", on_error="skip")
    assert [one.row for one in report.skipped] == [1200, 1201]
    assert "3 values for 2 columns" in report.skipped[1].reason
    go(path, tmp_path / "c", columns={"id": "str"}, on_error="skip")
    assert samples_of(tmp_path / "c")[1200] == {"id": "n/a", "t": "x"}
    with pytest.raises(SchemaError, match="no column 'no'; there are id, t"):
        go(path, tmp_path / "d", columns={"no": "str"})
    (tmp_path / "y.csv").write_text("id,u\n1,x\n")
    with pytest.raises(SchemaError, match=r"y.csv has the columns id, u, but .*x.csv has id, t"):
        go([path, tmp_path / "y.csv"], tmp_path / "e")
    (tmp_path / "y.csv").write_bytes(b"id,t\n1,\xff\n")
    with pytest.raises(ConvertError, match=r"y.csv, row 0: column 't'"):
        go(tmp_path / "y.csv", tmp_path / "f")


def test_tsv_and_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\tb\tc\n1\t[1, null]\t2\n")
    go(tmp_path / "x.tsv", tmp_path / "out", columns={"b": "json", "c": "uint8"})
    assert samples_of(tmp_path / "out") == [{"a": 1, "b": [1, None], "c": np.uint8(2)}]


# Images and tars.


def jpeg(color: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (color, 0, 0)).save(file, "JPEG")
    return file.getvalue()


def test_folders_of_images(tmp_path: Path) -> None:
    from streaming.format.index import Index

    images = tmp_path / "images"
    for name in ("dog/a/1.jpg", "cat/2.JPEG", "cat/1.jpg"):
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        (images / name).write_bytes(jpeg(len(name)))
    report = go(images, tmp_path / "out", part_size=700)
    assert report.columns == {"image": "jpeg", "name": "str", "class": "str", "label": "int"}
    found = samples_of(tmp_path / "out")
    assert [(one["name"], one["class"], one["label"]) for one in found] == [
        *(("cat/1.jpg", "cat", 0), ("cat/2.JPEG", "cat", 0), ("dog/a/1.jpg", "dog", 1)),
    ]
    # The files as they are: not encoded again.
    index = Index.parse((tmp_path / "out/index.json").read_bytes(), "index")
    shards = b"".join(path.read_bytes() for path in (tmp_path / "out").glob("*/*.mds"))
    assert len(index) == 3
    assert all(path.read_bytes() in shards for path in images.rglob("*.*"))
    go(images, tmp_path / "pil", columns={"image": "pil", "class": None})
    assert samples_of(tmp_path / "pil")[0]["image"].size == (8, 8)


def test_images_of_several_kinds_are_bytes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jpg").write_bytes(jpeg(1))
    Image.new("RGB", (2, 2)).save(tmp_path / "in" / "2.png")
    report = go(tmp_path / "in", tmp_path / "out")
    assert report.columns == {"image": "bytes", "name": "str"}
    assert samples_of(tmp_path / "out")[0]["image"] == jpeg(1)


def tar_of(path: Path, members: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_webdataset_tars(tmp_path: Path) -> None:
    """Written by the library itself."""
    import webdataset

    for number in range(2):
        with webdataset.TarWriter(str(tmp_path / f"{number}.tar")) as writer:
            for at in range(3):
                key = f"n{number}/{at:04}"
                writer.write(
                    {
                        "__key__": key,
                        "jpg": jpeg(at),
                        "cls": at,
                        "json": {"at": at},
                        "txt": "ü",
                        "npy": np.arange(at),
                        "extra.bin": b"\0",
                    }
                )
    report = go(tmp_path, tmp_path / "out", part_size=1)
    assert report.columns == {
        "__key__": "str",
        "cls": "int",
        "extra.bin": "bytes",
        "jpg": "jpeg",
        "json": "json",
        "npy": "ndarray",
        "txt": "str",
    }
    found = samples_of(tmp_path / "out")
    assert [one["__key__"] for one in found] == [f"n{n}/{at:04}" for n in (0, 1) for at in range(3)]
    assert (found[2]["cls"], found[2]["json"], found[2]["txt"]) == (2, {"at": 2}, "ü")
    assert found[2]["npy"].tolist() == [0, 1]
    assert found[2]["jpg"].getpixel((0, 0)) == Image.open(io.BytesIO(jpeg(2))).getpixel((0, 0))


def test_tars_that_are_not_right(tmp_path: Path) -> None:
    tar_of(tmp_path / "a.tar", {"1.txt": b"x", "1.cls": b"1", "2.txt": b"y"})
    with pytest.raises(SchemaError, match=r"not all samples have cls.*columns=\{'cls': None\}"):
        go(tmp_path / "a.tar", tmp_path / "a")
    go(tmp_path / "a.tar", tmp_path / "b", columns={"cls": None})
    assert samples_of(tmp_path / "b")[1] == {"__key__": "2", "txt": "y"}
    tar_of(tmp_path / "b.tar", {"1.cls": b"1", "2.cls": b"one", "3.cls": b"3"})
    report = go(tmp_path / "b.tar", tmp_path / "c", on_error="skip")
    assert report.skipped[0].reason.startswith("2.cls can't be read: invalid literal")
    tar_of(tmp_path / "c.tar", {"1.cls": b"1", "1.CLS": b"2"})
    with pytest.raises(ConvertError, match=r"1.cls is there twice"):
        go(tmp_path / "c.tar", tmp_path / "d")
    (tmp_path / "d.tar").write_bytes((tmp_path / "a.tar").read_bytes()[:700])
    with pytest.raises(ConvertError, match="this tar can't be read"):
        go(tmp_path / "d.tar", tmp_path / "e")


def test_unreadable_rows_pickle() -> None:
    import pickle

    assert pickle.loads(pickle.dumps(Unreadable("why"))) == Unreadable("why")
