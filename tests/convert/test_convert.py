"""Creating, appending, overwriting; transforms; what is skipped; what is shown."""

import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming import StreamingDataset
from streaming.convert import ConvertError, Part, SchemaError, convert, open_source
from streaming.convert.engines.processes import ProcessesEngine
from streaming.convert.job import PartReport
from streaming.convert.progress import BarWatch
from tests.convert.folders import files_of, samples_of
from tests.servers.fixtures import Bucket

HERE = ProcessesEngine(0)


def rows(count: int, first: int = 0) -> list[dict[str, int]]:
    return [{"x": x} for x in range(first, first + count)]


def go(source: Any, out: Any, **more: Any) -> Any:
    return convert(source, out, **{"engine": HERE, "progress": False, "part_size": 32} | more)


def xs(folder: Path) -> list[int]:
    return [sample["x"] for sample in samples_of(folder)]


def test_append_keeps_the_old_index_and_readers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    go(rows(6), out)
    old = (out / "index.json").read_bytes()
    reader = StreamingDataset(local=str(out), batch_size=1)
    report = go(rows(5, 6), out, mode="append")
    assert (report.samples, report.total_samples, report.version) == (5, 11, "index-v1.json")
    assert (out / "index-v1.json").read_bytes() == old
    assert xs(out) == list(range(11))
    assert [sample["x"] for sample in reader] == list(range(6))
    assert go(rows(1, 11), out, mode="append").version == "index-v2.json"
    assert xs(out) == list(range(12))


def test_append_to_what_a_writer_wrote(tmp_path: Path) -> None:
    from streaming import MDSWriter

    arguments: dict[str, Any] = {"compression": "zstd", "hashes": ["sha1"]}
    with MDSWriter(columns={"x": "int"}, out=str(tmp_path), **arguments) as writer:
        writer.write({"x": 0})
    go(rows(3, 1), tmp_path, mode="append")
    assert xs(tmp_path) == list(range(4))
    shards = json.loads((tmp_path / "index.json").read_bytes())["shards"]
    # What is not given is as it was.
    assert all(shard["compression"] == "zstd" and shard["hashes"] == ["sha1"] for shard in shards)


def test_append_wants_a_data_set_of_the_same_columns(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no data set at .* to append to"):
        go(rows(3), tmp_path / "none", mode="append")
    go(rows(3), tmp_path / "out")
    before = files_of(tmp_path / "out")
    with pytest.raises(ConvertError, match=r"columns are x: int, but .* y: str"):
        go([{"y": "a"}], tmp_path / "out", mode="append")
    assert files_of(tmp_path / "out") == before


def test_an_index_that_someone_else_changed_is_not_replaced(tmp_path: Path) -> None:
    go(rows(3), tmp_path)
    changed = b'{"shards": [], "version": 2}'

    def meddle(row: dict[str, int]) -> dict[str, int]:
        (tmp_path / "index.json").write_bytes(changed)
        return row

    with pytest.raises(ConvertError, match="has been changed since"):
        go(rows(3), tmp_path, mode="append", transform=meddle, columns={"x": "int"})
    assert (tmp_path / "index.json").read_bytes() == changed


def test_overwrite_leaves_nothing_of_the_old_data_set(tmp_path: Path) -> None:
    go(rows(20), tmp_path)
    go(rows(2), tmp_path, mode="append")
    (tmp_path / "README").write_text("mine")

    def old_is_there(row: dict[str, int]) -> dict[str, int]:
        assert xs(tmp_path) == [*range(20), 0, 1]
        return row

    go(rows(3, 50), tmp_path, mode="overwrite", transform=old_is_there, columns={"x": "int"})
    assert xs(tmp_path) == [50, 51, 52]
    assert sorted(files_of(tmp_path)) == [
        *("00006/index.json", "00006/shard.00000.mds", "README", "index.json"),
    ]


def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    wrong: list[dict[str, Any]] = [
        *({"mode": "add"}, {"on_error": "ignore"}, {"engine": "dask"}, {"part_size": 0}),
        *({"compression": "rar"}, {"hashes": ["md0"]}, {"format": "csv"}, {"size_limit": "big"}),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError):
            go(rows(3), out, **arguments)
    assert not out.exists()


def test_a_transform_gives_none_one_or_many(tmp_path: Path) -> None:
    def repeat(row: dict[str, int]) -> Any:
        return [None, {"y": row["x"]}, [{"y": -1}, {"y": -2}]][row["x"] % 3]

    report = go(rows(7), tmp_path, transform=repeat)
    assert (report.rows, report.samples) == (7, 6)
    assert [sample["y"] for sample in samples_of(tmp_path)] == [1, -1, -2, 4, -1, -2]


class Pairs:
    """Gives two rows together; what is left at the end of a part, alone."""

    def __init__(self) -> None:
        self.left: list[int] = []

    def __call__(self, row: dict[str, int]) -> Iterator[dict[str, Any]]:
        self.left.append(row["x"])
        if len(self.left) == 2:
            yield from self.flush()

    def flush(self) -> Iterator[dict[str, Any]]:
        if self.left:
            yield {"pair": list(self.left)}
            self.left = []


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_transform_remembers_ends_with_its_part(tmp_path: Path, workers: int) -> None:
    go(rows(10), tmp_path, transform=Pairs(), part_size=24, engine=ProcessesEngine(workers))
    pairs = [sample["pair"] for sample in samples_of(tmp_path)]
    assert pairs == [[0, 1], [2], [3, 4], [5], [6, 7], [8], [9]]


def test_columns_can_be_other_ones_and_left_out(tmp_path: Path) -> None:
    source = [{"x": 1, "y": "a", "z": object()}]
    with pytest.raises(SchemaError, match=r"column 'z' is of type builtins\.object"):
        go(source, tmp_path)
    report = go(source, tmp_path, columns={"x": "uint8", "z": None})
    assert report.columns == {"x": "uint8", "y": "str"}
    assert samples_of(tmp_path) == [{"x": np.uint8(1), "y": "a"}]
    with pytest.raises(SchemaError, match="no column 'w'"):
        go(rows(2), tmp_path / "other", columns={"w": "int"})


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_are_skipped_counted_and_listed(tmp_path: Path, workers: int) -> None:
    def picky(row: dict[str, Any]) -> dict[str, Any]:
        if row["x"] == 2:
            raise ValueError("two")
        return {"x": "three" if row["x"] == 3 else row["x"]}

    arguments: dict[str, Any] = {
        "transform": picky,
        "columns": {"x": "int"},
        "on_error": "skip",
        "engine": ProcessesEngine(workers),
    }
    report = go(rows(8), tmp_path / "out", **arguments)
    assert xs(tmp_path / "out") == [0, 1, 4, 5, 6, 7]
    assert [(one.part, one.row, one.label) for one in report.skipped] == [
        *((0, 2, "rows 0 to 3"), (0, 3, "rows 0 to 3")),
    ]
    assert "the transform failed: ValueError: two" in report.skipped[0].reason
    assert "column 'x'" in report.skipped[1].reason
    with pytest.raises(ConvertError, match="2 samples could not be converted, and max_errors is 1"):
        go(rows(8), tmp_path / "strict", max_errors=1, **arguments)
    assert not (tmp_path / "strict" / "index.json").exists()


def test_errors_name_part_and_row(tmp_path: Path) -> None:
    source = [{"x": x} for x in (1, 2, 3, 4, 5, None, 7)]
    with pytest.raises(ConvertError, match=r"rows 4 to 6, row 1: .*holds null: columns=\{.x.") as e:
        go(source, tmp_path, columns={"x": "int"})
    assert pickle.loads(pickle.dumps(e.value)).args == e.value.args


def test_an_empty_source_is_an_empty_data_set(tmp_path: Path) -> None:
    import pyarrow as pa

    report = go(pa.table({"x": pa.array([], pa.int64())}), tmp_path)
    assert (report.samples, report.parts) == (0, 0)
    assert json.loads((tmp_path / "index.json").read_bytes()) == {"version": 2, "shards": []}


def test_parts_without_samples(tmp_path: Path) -> None:
    go(
        rows(12),
        tmp_path,
        transform=lambda row: row if row["x"] > 8 else None,
        columns={"x": "int"},
    )
    assert xs(tmp_path) == [9, 10, 11]


def test_every_number_of_workers_writes_the_same(tmp_path: Path) -> None:
    for workers in (0, 1, 3):
        go(rows(40), tmp_path / str(workers), engine=ProcessesEngine(workers))
    assert files_of(tmp_path / "1") == files_of(tmp_path / "0") == files_of(tmp_path / "3")


def test_the_schema_is_shown_and_a_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    go(rows(40), tmp_path, progress=True)
    shown = capsys.readouterr().err
    assert shown.index("builtins.list, 40 samples") < shown.index("encoding") < shown.index("100%")
    assert "40 rows" in shown
    assert "parts 10/10" in shown
    assert "failures 0" in shown


def test_the_bar_counts_what_is_begun_anew_once() -> None:
    file = io.StringIO()
    parts = [Part(0, "a", rows=10, bytes=100), Part(1, "b", bytes=300)]
    watch = BarWatch(parts, file)
    watch.tick(0, 5, 1)
    watch.restart(0)
    watch.tick(0, 10, 2)
    watch.done(PartReport(0, 10, 8, (), failures=2))
    watch.tick(1, 4, 0)  # bytes as far as rows of that size go
    assert (watch.rows, watch.failures, watch.bytes, watch.finished) == (14, 2, 140, 1)
    watch.close()
    assert "14 rows" in file.getvalue()
    assert "failures 2" in file.getvalue()


def test_unknown_sources_are_refused() -> None:
    with pytest.raises(ConvertError, match=r"a builtins.int can't be converted"):
        open_source(7)
    with pytest.raises(ConvertError, match="only once"):
        open_source(iter([]))


@pytest.mark.long
def test_from_store_to_store(bucket: Bucket, tmp_path: Path) -> None:
    for number in range(3):
        lines = "".join(json.dumps({"x": number * 50 + at}) + "\n" for at in range(50))
        bucket.put(f"raw/{number}.jsonl", lines.encode())
    out = f"{bucket.url}/out"
    source = f"{bucket.url}/raw/*.jsonl"
    report = go(source, out, part_size=300, engine=ProcessesEngine(2))
    assert report.parts > 3
    go(source, out, mode="append")
    keys = bucket.keys()
    assert [key for key in keys if "convert" in key] == []
    local = str(tmp_path / "cache")
    read = [s["x"] for s in StreamingDataset(remote=out, local=local, batch_size=1)]
    assert read == [*range(150), *range(150)]
    go(source, tmp_path / "here", part_size=300)
    there = {k[4:]: bucket.read(k) for k in keys if k.startswith("out/0000")}
    here = files_of(tmp_path / "here")
    assert all(there[name] == here[name] for name in here if name.startswith("0000"))
