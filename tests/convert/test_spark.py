"""Spark for real, in local mode with two workers."""

import datetime
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from streaming import StreamingDataset
from streaming.base.converters import dataframe_to_mds
from streaming.convert import ConvertError, SchemaError, convert
from streaming.convert.progress import Watch
from streaming.format.errors import FormatError
from tests.convert.folders import files_of, samples_of
from tests.convert.spark_session import spark  # noqa: F401

# Java, or a cluster, has to start first.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

EVERY_TYPE = (
    "b byte, h short, i int, l long, f float, d double, dec decimal(10,2), s string, "
    "v string, z binary, yes boolean, nothing void, ints array<int>, bytes array<byte>, "
    "words array<string>, table array<array<long>>, pairs map<string,int>, "
    "deep map<string,array<struct<x:int,y:map<string,string>>>>, one struct<x:int,y:string>"
)
ROW = (
    *(-1, -300, -70_000, -(1 << 40), 1.5, 0.1, Decimal("12.30"), "é", "abc", bytearray(b"\0\xff")),
    *(True, None, [1, -2, 3], [-1, 1], ["a", None], [[1], [], None], {"a": 1, "b": None}),
    *({"k": [(1, {"q": "r"}), None], "none": None}, (7, None)),
)


def index(folder):
    return json.loads((Path(folder) / "index.json").read_text())


@pytest.fixture(scope="module")
def numbers(spark):  # noqa: F811
    return spark.range(0, 100, 1, 5).selectExpr("cast(id as int) as x", "cast(id as string) as s")


def test_every_type_that_maps_keeps_its_values(spark, tmp_path):  # noqa: F811
    frame = spark.createDataFrame([ROW], EVERY_TYPE)
    assert dataframe_to_mds(frame, mds_kwargs={"out": str(tmp_path / "a")}) == (
        str(tmp_path / "a"),
        "",
    )
    report = convert(frame, tmp_path / "b", progress=False)
    assert report.columns["deep"] == "json"
    for folder in ("a", "b"):
        (sample,) = samples_of(tmp_path / folder)
        for name in ("ints", "bytes"):
            sample[name] = sample[name].tolist()
        assert sample == {
            "b": -1,
            "h": -300,
            "i": -70_000,
            "l": -(1 << 40),
            "f": 1.5,
            "d": 0.1,
            "dec": Decimal("12.30"),
            "s": "é",
            "v": "abc",
            "z": b"\0\xff",
            "yes": True,
            "nothing": None,
            "ints": [1, -2, 3],
            "bytes": [-1, 1],
            "words": ["a", None],
            "table": [[1], [], None],
            "pairs": {"a": 1, "b": None},
            "deep": {"k": [{"x": 1, "y": {"q": "r"}}, None], "none": None},
            "one": {"x": 7, "y": None},
        }
        assert isinstance(sample["b"], np.int8)
        assert isinstance(sample["f"], np.float32)


def test_nulls_are_kept_as_json_and_refused_elsewhere(spark, tmp_path):  # noqa: F811
    frame = spark.createDataFrame([(1, "a"), (None, None)], "x int, s string").coalesce(1)
    columns = {"x": "json", "s": "json"}
    dataframe_to_mds(frame, mds_kwargs={"out": str(tmp_path / "a"), "columns": columns})
    convert(frame, tmp_path / "b", columns=columns, progress=False)
    for folder in ("a", "b"):
        assert samples_of(tmp_path / folder) == [{"x": 1, "s": "a"}, {"x": None, "s": None}]
    with pytest.raises(FormatError, match=r"partition 0 .*column 's' of sample 1"):
        dataframe_to_mds(frame.select("s"), mds_kwargs={"out": str(tmp_path / "c")})
    with pytest.raises(ConvertError, match=r"partition 0, row 1: .*\"json\" holds null"):
        convert(frame.select("s"), tmp_path / "d", progress=False)
    assert not (tmp_path / "c/index.json").exists()
    assert not (tmp_path / "d/index.json").exists()


def test_times_are_written_when_told_how(spark, tmp_path):  # noqa: F811
    frame = spark.sql(
        "select date'1970-01-03' as day, timestamp'1970-01-01 00:00:01' as at, "
        "timestamp_ntz'1970-01-01 00:00:02' as clock, interval '3' second as span"
    )
    with pytest.raises(SchemaError, match="'day' is of type date"):
        dataframe_to_mds(frame, mds_kwargs={"out": str(tmp_path / "a")})
    with pytest.raises(SchemaError, match="'day' is of type date"):
        convert(frame, tmp_path / "a", progress=False)
    convert(frame, tmp_path / "a", columns=dict.fromkeys(frame.columns, "int64"), progress=False)
    assert samples_of(tmp_path / "a") == [
        {"day": 2, "at": 1_000_000, "clock": 2_000_000, "span": 3_000_000}
    ]
    texts = {"day": "str", "at": "str", "clock": None, "span": None}
    convert(frame, tmp_path / "b", columns=texts, progress=False)
    (sample,) = samples_of(tmp_path / "b")
    assert sample["day"] == "1970-01-03"
    assert datetime.datetime.fromisoformat(sample["at"].replace("Z", "+00:00")).second == 1


def test_partitions_are_folders_under_one_index(numbers, tmp_path):
    out = tmp_path / "out"
    dataframe_to_mds(numbers, mds_kwargs={"out": str(out), "hashes": ["sha1"]})
    assert sorted(path.name for path in out.iterdir()) == [
        *(f"{part:05}" for part in range(5)),
        "index.json",
    ]
    shards = index(out)["shards"]
    assert {shard["compression"] for shard in shards} == {"zstd"}
    assert [shard["zip_data"]["basename"][:6] for shard in shards] == [
        f"{part:05}/" for part in range(5)
    ]
    data = StreamingDataset(local=str(out), batch_size=1)
    assert [(sample["x"], sample["s"]) for sample in data] == [(i, str(i)) for i in range(100)]


def test_without_a_merged_index_each_partition_is_a_data_set(numbers, tmp_path):
    out = tmp_path / "out"
    kwargs = {"out": str(out), "columns": {"x": "int64"}, "compression": None}
    dataframe_to_mds(numbers, False, kwargs)
    assert not (out / "index.json").exists()
    assert [sample["x"] for sample in samples_of(out / "00002")] == list(range(40, 60))
    assert set(samples_of(out / "00002")[0]) == {"x"}


def test_local_and_remote(numbers, tmp_path):
    local, remote = str(tmp_path / "local"), str(tmp_path / "remote")
    assert dataframe_to_mds(numbers, mds_kwargs={"out": (local, remote)}) == (local, remote)
    assert not Path(local, "index.json").exists()
    assert len(StreamingDataset(local=local, remote=remote, batch_size=1)) == 100
    kept = str(tmp_path / "kept"), str(tmp_path / "remote2")
    dataframe_to_mds(numbers, mds_kwargs={"out": kept, "keep_local": True})
    assert files_of(Path(kept[0])) == files_of(Path(kept[1]))


def test_a_udf_makes_other_samples(numbers, tmp_path):
    def thrice(frame, times=1):
        for x in frame["x"]:
            if x % 2:
                yield {"y": int(x) * times}

    columns = {"y": "int"}
    out = {"out": str(tmp_path / "a"), "columns": columns}
    dataframe_to_mds(numbers, True, out, udf_iterable=thrice, udf_kwargs={"times": 3})
    assert [sample["y"] for sample in rows_of_zip(tmp_path / "a")] == [
        3 * x for x in range(100) if x % 2
    ]
    with pytest.raises(ValueError, match='"columns"'):
        dataframe_to_mds(numbers, mds_kwargs={"out": "x"}, udf_iterable=thrice)
    out = {"out": str(tmp_path / "b"), "columns": {"z": "int"}}
    with pytest.raises(FormatError, match=r"partition .*'z'"):
        dataframe_to_mds(numbers, mds_kwargs=out, udf_iterable=thrice)


def rows_of_zip(folder):
    return list(StreamingDataset(local=str(folder), batch_size=1))


def test_what_can_not_be_done_is_said_before_spark_begins(numbers, spark, tmp_path):  # noqa: F811
    out = str(tmp_path / "out")
    for frame in (None, spark.createDataFrame([], "x int")):
        with pytest.raises(ValueError, match="None or empty"):
            dataframe_to_mds(frame, mds_kwargs={"out": out})
    with pytest.raises(ValueError, match='no "out"'):
        dataframe_to_mds(numbers)
    with pytest.raises(ValueError, match="no column 'y'; there are x, s"):
        dataframe_to_mds(numbers, mds_kwargs={"out": out, "columns": {"y": "int"}})
    with pytest.raises(ValueError, match="'s' is of type string, which can't be written as 'int'"):
        dataframe_to_mds(numbers, mds_kwargs={"out": out, "columns": {"s": "int"}})
    with pytest.raises((TypeError, ValueError), match="nope"):
        dataframe_to_mds(numbers, mds_kwargs={"out": out, "nope": 1})
    assert not Path(out).exists()


def test_a_place_that_is_taken(numbers, tmp_path):
    out = tmp_path / "out"
    dataframe_to_mds(numbers, mds_kwargs={"out": str(out)})
    before = files_of(out)
    with pytest.raises(FileExistsError, match="is not empty"):
        dataframe_to_mds(numbers, mds_kwargs={"out": str(out)})
    assert files_of(out) == before
    fewer = numbers.coalesce(2)
    dataframe_to_mds(fewer, mds_kwargs={"out": str(out), "exist_ok": True})
    assert [sample["x"] for sample in rows_of_zip(out)] == list(range(100))


def test_an_error_of_the_udf_is_told(numbers, tmp_path):
    def fails(frame):
        raise KeyError("the cause")
        yield

    out = {"out": str(tmp_path), "columns": {"y": "int"}}
    with pytest.raises(ConvertError, match="the cause"):
        dataframe_to_mds(numbers, mds_kwargs=out, udf_iterable=fails)


def test_convert_transforms_and_skips(numbers, tmp_path):
    def halves(row):
        return {"half": row["x"] // 2, "s": row["s"]} if row["x"] != 7 else {"half": "7", "s": "7"}

    how = {"columns": {"half": "int32", "s": "str"}, "transform": halves, "progress": False}
    report = convert(numbers, tmp_path / "a", on_error="skip", **how)
    assert (report.rows, report.samples, report.parts) == (100, 99, 5)
    assert [(one.part, one.row) for one in report.skipped] == [(0, 7)]
    assert samples_of(tmp_path / "a")[10] == {"half": 5, "s": "11"}
    with pytest.raises(ConvertError, match="partition 0, row 7"):
        convert(numbers, tmp_path / "b", **how)
    convert(numbers.filter("x != 7"), tmp_path / "b", **how)
    assert len(samples_of(tmp_path / "b")) == 99


def test_files_give_the_same_bytes_as_processes_do(spark, tmp_path):  # noqa: F811
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(1)
    for number in range(4):
        count = 200 * (number + 1)
        table = pa.table(
            {"x": generator.integers(0, 99, count), "s": [str(i) for i in range(count)]}
        )
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=100)
    reports = []
    for engine in ("processes", "spark"):
        seen = []
        report = convert(
            str(tmp_path / "*.parquet"),
            tmp_path / engine,
            engine=engine,
            workers=2,
            part_size="2kb",
            size_limit="4kb",
            progress=lambda parts, seen=seen: _Watch(parts, seen),
        )
        reports.append((report.parts, report.rows, report.shards))
        assert sum(seen) == report.rows
    assert reports[0] == reports[1]
    assert reports[0][0] > 4
    assert files_of(tmp_path / "processes") == files_of(tmp_path / "spark")


def test_appending_and_taking_up_again(numbers, tmp_path):
    convert(numbers, tmp_path / "a", progress=False)
    report = convert(numbers, tmp_path / "a", mode="append", progress=False)
    assert report.total_samples == 200
    assert [sample["x"] for sample in samples_of(tmp_path / "a")] == [*range(100), *range(100)]

    flag = tmp_path / "broken"
    flag.touch()

    def breaks(row, flag=str(flag)):
        if row["x"] == 90 and Path(flag).exists():
            raise ValueError("broken")
        return row

    with pytest.raises(ConvertError, match="broken"):
        convert(numbers, tmp_path / "b", transform=breaks, progress=False)
    flag.unlink()
    report = convert(numbers, tmp_path / "b", transform=breaks, progress=False)
    assert (report.samples, report.resumed_parts) == (100, 0)


class _Watch(Watch):
    def __init__(self, parts, seen):
        super().__init__(parts)
        self._seen = seen

    def done(self, report):
        super().done(report)
        self._seen.append(report.rows)


def test_files_go_on_after_an_error(spark, tmp_path):  # noqa: F811
    path, flag = tmp_path / "rows.jsonl", tmp_path / "broken"
    path.write_text("".join(json.dumps({"x": at, "s": "x" * 50}) + "\n" for at in range(400)))
    flag.touch()

    def breaks(row, flag=str(flag)):
        if row["x"] == 399 and Path(flag).exists():
            raise ValueError("broken")
        return row

    how = {"transform": breaks, "engine": "spark", "part_size": 4000, "progress": False}
    with pytest.raises(ConvertError, match="broken"):
        convert(str(path), tmp_path / "out", **how)
    flag.unlink()
    report = convert(str(path), tmp_path / "out", **how)
    assert report.samples == 400
    assert 0 < report.resumed_parts < report.parts
    convert(str(path), tmp_path / "whole", **{**how, "engine": "processes"})
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_into_a_bucket(numbers, bucket):
    from tests.servers.moto import CREDENTIALS

    options = {"endpoint_url": bucket.proxy.url, **CREDENTIALS}
    kwargs = {"out": f"{bucket.url}/a", "storage_options": options}
    local, remote = dataframe_to_mds(numbers, mds_kwargs=kwargs)
    assert remote == f"{bucket.url}/a"
    data = StreamingDataset(remote=remote, local=local, batch_size=1)
    assert [data[at]["x"] for at in range(100)] == list(range(100))
    with pytest.raises(FileExistsError, match="is not empty"):
        dataframe_to_mds(numbers, mds_kwargs=kwargs)
    report = convert(numbers, f"{bucket.url}/b", progress=False, storage_options=options)
    assert report.samples == 100
    assert bucket.read("b/index.json")
