"""Ray for real, in local mode with two workers."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from streaming import MDSWriter, StreamingDataset
from streaming.convert import ConvertError, SchemaError, convert
from streaming.convert.engines.ray import RayEngine, ray_source
from tests.convert.folders import files_of, samples_of
from tests.convert.ray_cluster import QUIET, ray  # noqa: F401
from tests.helpers import LIMIT_S

# Java, or a cluster, has to start first.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def lines(tmp_path):
    """JSON lines that make some twenty parts of different lengths."""
    rng = random.Random(7)
    path = tmp_path / "rows.jsonl"
    with open(path, "w") as file:
        for at in range(600):
            file.write(json.dumps({"id": at, "text": "x" * rng.randrange(200)}) + "\n")
    return path


@pytest.fixture(scope="module")
def numbers(ray):  # noqa: F811
    return ray.data.range(100, override_num_blocks=5).map(
        lambda row: {"x": row["id"], "s": str(row["id"]), "v": np.full(3, row["id"], np.float32)}
    )


def test_files_give_the_same_bytes_as_processes_do(ray, lines, tmp_path):  # noqa: F811
    reports = [
        convert(
            str(lines),
            tmp_path / engine,
            engine=engine,
            workers=2,
            part_size=4000,
            size_limit=1500,
            hashes=["xxh64"],
            progress=False,
        )
        for engine in ("processes", "ray")
    ]
    assert reports[0].parts == reports[1].parts > 10
    assert files_of(tmp_path / "processes") == files_of(tmp_path / "ray")


def test_a_sink(numbers, tmp_path):
    from streaming.ray import MDSSink

    sink = MDSSink(str(tmp_path / "out"), compression="zstd", hashes=["sha1"])
    numbers.write_datasink(sink)
    assert (sink.report.samples, sink.report.rows) == (100, 100)
    assert sink.report.columns == {"x": "int64", "s": "str", "v": "ndarray:float32:3"}

    data = StreamingDataset(local=str(tmp_path / "out"), batch_size=1)
    rows = sorted((data[at] for at in range(100)), key=lambda row: row["x"])
    assert [row["x"] for row in rows] == list(range(100))
    assert rows[7]["s"] == "7"
    assert rows[7]["v"].tolist() == [7, 7, 7]
    assert not (tmp_path / "out/.convert").exists()
    with pytest.raises(FileExistsError):
        numbers.write_datasink(MDSSink(str(tmp_path / "out")))
    chosen = {"x": "int64", "s": "str"}
    numbers.write_datasink(MDSSink(str(tmp_path / "few"), chosen))
    numbers.write_datasink(MDSSink(str(tmp_path / "few"), chosen, mode="append"))
    assert len(samples_of(tmp_path / "few")) == 200
    assert set(samples_of(tmp_path / "few")[0]) == {"x", "s"}
    numbers.limit(3).write_datasink(MDSSink(str(tmp_path / "few"), mode="overwrite"))
    assert len(samples_of(tmp_path / "few")) == 3


def test_what_a_sink_refuses(ray, numbers, tmp_path):  # noqa: F811
    from streaming.ray import MDSSink

    with pytest.raises(ValueError, match='"append" needs columns'):
        MDSSink("x", mode="append")
    with pytest.raises(Exception, match="no column 'y'; there are"):
        numbers.write_datasink(MDSSink(str(tmp_path / "a"), {"y": "int"}))
    assert not (tmp_path / "a/index.json").exists()
    nulls = ray.data.from_items([{"x": 1}, {"x": None}])
    with pytest.raises(Exception, match="holds null"):
        nulls.write_datasink(MDSSink(str(tmp_path / "b"), {"x": "int64"}))
    sink = MDSSink(str(tmp_path / "c"), {"x": "int64"}, on_error="skip")
    nulls.write_datasink(sink)
    assert (sink.report.samples, len(sink.report.skipped)) == (1, 1)
    nulls.write_datasink(MDSSink(str(tmp_path / "d"), {"x": "json"}))
    assert sorted(samples_of(tmp_path / "d"), key=str) == [{"x": 1}, {"x": None}]
    context = ray.data.DataContext.get_current()
    context.max_errored_blocks = 1
    try:
        with pytest.raises(ValueError, match="max_errored_blocks"):
            numbers.write_datasink(MDSSink(str(tmp_path / "e")))
    finally:
        context.max_errored_blocks = 0


def test_a_data_set_of_ray_is_a_source(ray, numbers, tmp_path):  # noqa: F811
    for out in ("a", "b"):
        report = convert(numbers, tmp_path / out, progress=False)
    assert report.columns == {"x": "int64", "s": "str", "v": "ndarray:float32:3"}
    rows = samples_of(tmp_path / "a")
    assert [row["x"] for row in rows] == list(range(100))  # in order
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")

    def odd(row):
        return {"y": int(row["x"]), "s": row["s"]} if row["x"] % 2 else None

    convert(numbers, tmp_path / "c", transform=odd, progress=False)
    assert [row["y"] for row in samples_of(tmp_path / "c")] == list(range(1, 100, 2))
    convert(numbers, tmp_path / "d", columns={"v": None, "x": "int32"}, progress=False)
    assert samples_of(tmp_path / "d")[9] == {"x": 9, "s": "9"}
    with pytest.raises(ConvertError, match=r"can't be converted; give a ray.data.Dataset"):
        ray_source(ray.data)
    with pytest.raises(SchemaError, match="no column 'z'"):
        convert(numbers, tmp_path / "e", columns={"z": "int"}, progress=False)


def test_our_shards_are_a_source_of_ray(ray, tmp_path):  # noqa: F811
    from PIL import Image

    from streaming.ray import MDSDatasource, read_mds

    columns = {
        "id": "int",
        "text": "str",
        "fixed": "ndarray:int16:2,2",
        "ragged": "ndarray:float32",
        "data": "bytes",
        "json": "json",
        "image": "png",
    }
    rows = [
        {
            "id": at,
            "text": f"é{at}",
            "fixed": np.full((2, 2), at, np.int16),
            "ragged": np.arange(at % 3 + 1, dtype=np.float32),
            "data": bytes([at]),
            "json": {"a": [at, None]},
            "image": Image.new("RGB", (4, 4), (at, 0, 0)),
        }
        for at in range(40)
    ]
    for name, more in (("raw", {}), ("zip", {"compression": "zstd"})):
        out = str(tmp_path / name)
        with MDSWriter(out=out, columns=columns, size_limit=1500, **more) as writer:
            for row in rows:
                writer.write(row)
        data = read_mds(out)
        assert data.count() == 40
        read = sorted(data.iter_rows(), key=lambda row: row["id"])
        assert [row["text"] for row in read] == [row["text"] for row in rows]
        for mine, theirs in zip(read, rows, strict=True):
            assert np.array_equal(mine["fixed"], theirs["fixed"])
            assert np.array_equal(mine["ragged"], theirs["ragged"])
            assert mine["data"] == theirs["data"]
            assert mine["json"] == theirs["json"]
            assert mine["image"].tobytes() == theirs["image"].tobytes()
        few = read_mds(out, ["id", "text"], override_num_blocks=3)
        assert set(few.take(1)[0]) == {"id", "text"}
    assert MDSDatasource(out).estimate_inmemory_data_size() > 0
    with pytest.raises(FileNotFoundError):
        read_mds(str(tmp_path / "none"))
    with pytest.raises(Exception, match="no column 'z'"):
        read_mds(out, ["z"]).take_all()
    written = few.map(lambda row: {"id": row["id"]})
    convert(written, tmp_path / "again", progress=False)
    assert sorted(int(row["id"]) for row in samples_of(tmp_path / "again")) == list(range(40))


def test_an_error_ends_it_and_what_is_finished_stays(ray, lines, tmp_path):  # noqa: F811
    marker = tmp_path / "fixed"

    def fails(row, marker=str(marker)):
        if row["id"] == 599 and not os.path.exists(marker):
            raise ValueError("the cause")
        return row

    how = {"engine": RayEngine(2), "part_size": 4000, "progress": False, "transform": fails}
    with pytest.raises(ConvertError, match=r"row \d+: the transform failed: ValueError: the cause"):
        convert(str(lines), tmp_path / "out", **how)
    marker.touch()
    report = convert(str(lines), tmp_path / "out", **how)
    assert report.samples == 600
    with pytest.raises(ValueError, match="workers is 0"):
        RayEngine(0)


def test_a_worker_that_is_killed_is_replaced(ray, lines, tmp_path):  # noqa: F811
    marker = tmp_path / "died"

    def dies(row, marker=str(marker)):
        if row["id"] == 300 and not os.path.exists(marker):
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return row

    how = {"part_size": 4000, "progress": False}
    report = convert(str(lines), tmp_path / "out", engine="ray", transform=dies, **how)
    assert marker.exists()
    assert report.samples == 600
    convert(str(lines), tmp_path / "plain", **how)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "plain")


SCRIPT = """
import sys
from streaming.convert import convert

def slow(row):
    for _ in range(300):
        sum(range(100))
    return row

convert(sys.argv[1], sys.argv[2], transform=slow, engine="ray", workers=2, part_size=4000,
        size_limit=1500, hashes=["xxh64"], progress=False)
"""


def start(lines, out):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(lines), str(out)],
        env={**os.environ, **QUIET},
        start_new_session=True,
        stderr=subprocess.PIPE,
    )


def finished(out):
    return len(list(out.glob(".convert/0*.json")))


@pytest.mark.timeout(600)
def test_killed_five_times_at_random_moments(lines, tmp_path):
    """The driver is killed, and with it the Ray that it has started."""
    import psutil

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    process = start(lines, whole)
    _, err = process.communicate(timeout=2 * LIMIT_S)
    assert process.returncode == 0, err.decode()
    rng = random.Random(5)
    seen = []
    for _ in range(5):
        process = start(lines, broken)
        wanted = min(finished(broken) + rng.randrange(3), 17)
        deadline = time.monotonic() + 2 * LIMIT_S
        while finished(broken) < wanted and process.poll() is None:
            assert time.monotonic() < deadline
        moment = time.monotonic() + rng.random() * 0.05
        while time.monotonic() < moment:
            pass
        everyone = [psutil.Process(process.pid), *_below(psutil, process.pid)]
        for one in everyone:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                pass
        process.communicate()
        psutil.wait_procs(everyone, timeout=LIMIT_S)
        seen.append(finished(broken))
        assert not (broken / "index.json").exists()
    assert seen == sorted(seen)
    assert seen[-1]
    process = start(lines, broken)
    _, err = process.communicate(timeout=2 * LIMIT_S)
    assert process.returncode == 0, err.decode()
    assert files_of(broken) == files_of(whole)
    assert [sample["id"] for sample in samples_of(broken)] == list(range(600))


def _below(psutil, pid):
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
