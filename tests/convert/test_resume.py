"""A conversion that is killed goes on where it was, and ends like one that was not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming.convert import ConvertError, convert
from streaming.convert.engines.processes import ProcessesEngine
from tests.convert.folders import files_of, samples_of
from tests.helpers import LIMIT_S

ROWS = 2000
SCRIPT = """
import sys
from streaming.convert import convert

def slow(row):
    # As much work as lets a kill fall in between, wherever it is drawn.
    for _ in range(300):
        sum(range(100))
    return row

convert(sys.argv[1], sys.argv[2], transform=slow, workers=2, part_size=4000, size_limit=1500,
        compression=sys.argv[3] or None, hashes=["xxh64"], progress=False)
"""


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """JSON lines that make some sixty parts: more than five runs that are killed finish."""
    rng = random.Random(7)
    path = tmp_path / "rows.jsonl"
    with open(path, "w") as file:
        for at in range(ROWS):
            file.write(json.dumps({"id": at, "text": "x" * rng.randrange(200)}) + "\n")
    return path


def start(lines: Path, out: Path, compression: str = "") -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(lines), str(out), compression],
        start_new_session=True,  # it and its workers are one group, to be killed together
        stderr=subprocess.PIPE,
    )


def finish(process: "subprocess.Popen[bytes]") -> None:
    _, err = process.communicate(timeout=2 * LIMIT_S)
    assert process.returncode == 0, err.decode()


def finished(out: Path) -> int:
    return len(list(out.glob(".convert/0*.json")))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups")
@pytest.mark.parametrize("compression", ["", "zstd"])
def test_killed_five_times_at_random_moments(lines: Path, tmp_path: Path, compression: str) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(start(lines, whole, compression))
    rng = random.Random(11)
    seen = []
    for _ in range(5):
        process = start(lines, broken, compression)
        # A number of finished parts, and then a moment that nothing is known of.
        wanted = finished(broken) + rng.randrange(3)
        deadline = time.monotonic() + LIMIT_S
        while finished(broken) < wanted and process.poll() is None:
            assert time.monotonic() < deadline
        moment = time.monotonic() + rng.random() * 0.05
        while time.monotonic() < moment:
            pass
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        seen.append(finished(broken))
        with pytest.raises(FileNotFoundError):
            samples_of(broken)
    assert seen == sorted(seen)
    assert seen[-1]
    finish(start(lines, broken, compression))
    assert files_of(broken) == files_of(whole)
    assert [sample["id"] for sample in samples_of(broken)] == list(range(ROWS))


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prctl")
def test_workers_end_with_the_parent(lines: Path, tmp_path: Path) -> None:
    import psutil

    out = tmp_path / "out"
    process = start(lines, out)
    deadline = time.monotonic() + LIMIT_S
    workers: list[Any] = []
    while len(workers) < 2:
        assert time.monotonic() < deadline
        workers = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(workers, timeout=LIMIT_S)
    assert not alive


class Stop(Exception):
    pass


class StopsAt:
    """A transform that fails once, at a given row."""

    def __init__(self, row: int, marker: Path) -> None:
        self.row, self.marker = row, marker

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        if sample["x"] == self.row and not self.marker.exists():
            self.marker.touch()
            raise Stop("here")
        return sample


def rows(count: int) -> list[dict[str, int]]:
    return [{"x": x} for x in range(count)]


HERE = ProcessesEngine(0)


def broken_off(out: Path, marker: Path, **more: Any) -> None:
    """Convert twenty rows in five parts, as far as the fourth."""
    with pytest.raises(ConvertError, match=r"rows 12 to 15, row 1: .*Stop: here"):
        run(out, marker, **more)


def run(out: Path, marker: Path, count: int = 20, **more: Any) -> Any:
    transform = StopsAt(13, marker)
    arguments: dict[str, Any] = {"engine": HERE, "part_size": 32, "progress": False}
    arguments |= {"columns": {"x": "int"}} | more
    return convert(rows(count), out, transform=transform, **arguments)


def test_what_is_finished_is_not_done_again(tmp_path: Path) -> None:
    out, marker = tmp_path / "out", tmp_path / "marker"
    broken_off(out, marker)
    before = {name: (out / name).stat().st_mtime_ns for name in files_of(out) if name[0] == "0"}
    assert not (out / "index.json").exists()
    report = run(out, marker)
    assert (report.parts, report.resumed_parts, report.samples) == (5, 3, 20)
    for name, written in before.items():
        if name.endswith(".mds"):
            assert (out / name).stat().st_mtime_ns == written
    run(tmp_path / "whole", marker)
    assert files_of(out) == files_of(tmp_path / "whole")


def test_other_arguments_are_refused_and_named(tmp_path: Path) -> None:
    out, marker = tmp_path / "out", tmp_path / "marker"
    broken_off(out, marker)
    with pytest.raises(ConvertError, match=r"differs in compression, size_limit;.*resume=False"):
        run(out, marker, compression="gz", size_limit=100)
    with pytest.raises(ConvertError, match="differs in source, content"):
        run(out, marker, count=21)


def test_errors_may_be_skipped_in_the_second_run(tmp_path: Path) -> None:
    out, marker = tmp_path / "out", tmp_path / "marker"

    def fails(row: dict[str, Any]) -> dict[str, Any]:
        if row["x"] in (5, 13):
            raise Stop
        return row

    arguments: dict[str, Any] = {"engine": HERE, "part_size": 32, "progress": False}
    arguments |= {"transform": fails, "columns": {"x": "int"}}
    for on_error, where in (("skip", None), ("raise", "row 1: .*Stop"), ("skip", None)):
        if where:
            with pytest.raises(ConvertError, match=where):
                convert(rows(20), out, on_error=on_error, **arguments)
        elif not marker.exists():
            # The first time, it ends with the failure after those that are allowed.
            marker.touch()
            with pytest.raises(ConvertError, match="max_errors is 1"):
                convert(rows(20), out, on_error=on_error, max_errors=1, **arguments)
        else:
            report = convert(rows(20), out, on_error=on_error, **arguments)
    assert (report.samples, len(report.skipped), report.resumed_parts) == (18, 2, 2)


def test_begun_anew_nothing_is_left_of_the_old_run(tmp_path: Path) -> None:
    out, marker = tmp_path / "out", tmp_path / "marker"
    broken_off(out, marker)
    for name in ("2023/notes", "notes/00009"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("mine")
    report = run(out, marker, count=8, resume=False)
    assert (report.parts, report.resumed_parts) == (2, 0)
    there = {name.partition("/")[0] for name in files_of(out)}
    assert there == {"00000", "00001", "2023", "notes", "index.json"}


def test_a_damaged_record_is_as_good_as_none(tmp_path: Path) -> None:
    out, marker = tmp_path / "out", tmp_path / "marker"
    broken_off(out, marker)
    (out / ".convert/00001.json").write_bytes(b'{"finger')
    assert run(out, marker).resumed_parts == 2
    assert [sample["x"] for sample in samples_of(out)] == list(range(20))


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_killed_between_the_index_and_the_records(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streaming.convert.ledger import Ledger

    out = tmp_path / "out"
    if mode != "create":
        convert(rows(3), out, progress=False)
    clear = Ledger.clear

    def killed(self: Ledger, folders: Any = ()) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "clear", killed)
    with pytest.raises(KeyboardInterrupt):
        convert(rows(5), out, mode=mode, progress=False)
    monkeypatch.setattr(Ledger, "clear", clear)
    report = convert(rows(5), out, mode=mode, progress=False)
    assert report.resumed_parts == 1
    expected = [*range(3), *range(5)] if mode == "append" else list(range(5))
    assert [sample["x"] for sample in samples_of(out)] == expected
    assert report.total_samples == len(expected)
    assert not (out / ".convert").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no locks")
def test_two_at_once_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\nfrom streaming.convert.ledger import Ledger\n"
            "with Ledger(sys.argv[1]).alone(): print('locked', flush=True); sys.stdin.read()",
            str(out),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(ConvertError, match="another process is converting to"):
            convert(rows(3), out, progress=False)
        holder.communicate()
    assert convert(rows(3), out, progress=False).samples == 3
    assert sorted(files_of(out)) == ["00000/index.json", "00000/shard.00000.mds", "index.json"]


def test_a_whole_data_set_is_not_taken_for_an_unfinished_one(tmp_path: Path) -> None:
    convert(rows(3), tmp_path, progress=False)
    with pytest.raises(FileExistsError, match=r"not empty.*append"):
        convert(rows(3), tmp_path, progress=False)


def test_what_is_in_memory_counts(tmp_path: Path) -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        raise Stop

    arrays = {"x": np.arange(40)}
    for difference in ("Stop", "differs in content;"):
        with pytest.raises(ConvertError, match=difference):
            convert(arrays, tmp_path, transform=fails, columns={"x": "int64"}, progress=False)
        arrays["x"][39] = 7
