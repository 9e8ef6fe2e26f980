"""The pool of processes: skewed parts, workers that are killed, errors on their way back."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from streaming.convert import ConvertError, Part, Source, convert
from streaming.convert.engines.processes import ProcessesEngine
from tests.convert.folders import samples_of
from tests.helpers import LIMIT_S

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")


class Skewed(Source):
    """One large part, which is done when all small ones are: by a worker that takes no other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def describe(self) -> str:
        return "a large part and some small ones"

    def columns(self) -> dict[str, str]:
        return {"x": "int"}

    def parts(self) -> Sequence[Part]:
        return [Part(n, f"part {n}", (), 1, 1000 if n == 5 else 1) for n in range(8)]

    def read(self, part: Part) -> Iterator[dict[str, Any]]:
        if part.number == 5:
            deadline = time.monotonic() + LIMIT_S
            while len(list(self.folder.iterdir())) < 7:
                assert time.monotonic() < deadline, "the small parts wait for the large one"
        else:
            (self.folder / str(part.number)).touch()
        yield {"x": part.number}


def test_a_large_part_comes_first_and_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    convert(Skewed(tmp_path / "seen"), tmp_path / "out", workers=2, progress=False)
    assert [sample["x"] for sample in samples_of(tmp_path / "out")] == list(range(8))


class Deadly:
    """Kills its own process at a row, as often as there are markers to be made."""

    def __init__(self, markers: Path, times: int) -> None:
        self.markers, self.times = markers, times

    def __call__(self, row: dict[str, int]) -> dict[str, int]:
        killed = len(list(self.markers.iterdir()))
        if row["x"] == 6 and killed < self.times:
            (self.markers / str(killed)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return row


def run(tmp_path: Path, times: int) -> Any:
    (tmp_path / "markers").mkdir()
    rows = [{"x": x} for x in range(20)]
    transform = Deadly(tmp_path / "markers", times)
    arguments: dict[str, Any] = {"columns": {"x": "int"}, "part_size": 32, "progress": False}
    return convert(rows, tmp_path / "out", transform=transform, workers=2, **arguments)


def test_a_killed_workers_part_is_begun_anew(tmp_path: Path) -> None:
    report = run(tmp_path, 1)
    assert report.rows == 20
    assert [sample["x"] for sample in samples_of(tmp_path / "out")] == list(range(20))


def test_a_part_that_kills_again_and_again_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"rows 4 to 7: .* was killed by SIGKILL, 2 times"):
        run(tmp_path, 5)
    assert not (tmp_path / "out" / "index.json").exists()


class Odd(Exception):
    """One that does not pickle back."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("odd")


def fails(kind: str) -> Any:
    def read(row: dict[str, int]) -> Any:
        raise {"odd": Odd(1, 2), "exit": SystemExit(3), "plain": ValueError("plain")}[kind]

    return read


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        (
            "plain",
            ConvertError,
            r"rows [04] to [37], row 0: the transform failed: ValueError: plain",
        ),
        ("odd", ConvertError, "the transform failed: Odd: odd"),
        ("exit", SystemExit, "3"),
    ],
)
def test_errors_come_back_with_the_workers_traceback(
    tmp_path: Path, kind: str, error: type[BaseException], text: str
) -> None:
    rows = [{"x": x} for x in range(8)]
    with pytest.raises(error, match=text) as caught:
        convert(
            rows,
            tmp_path,
            transform=fails(kind),
            columns={"x": "int"},
            workers=2,
            part_size=32,
            progress=False,
        )
    assert "in read" in str(caught.value.__cause__)


@pytest.mark.long
def test_spawned_workers(tmp_path: Path) -> None:
    engine = ProcessesEngine(2, start_method="spawn")
    convert([{"x": x} for x in range(20)], tmp_path, engine=engine, part_size=64, progress=False)
    assert [sample["x"] for sample in samples_of(tmp_path)] == list(range(20))


@pytest.mark.parametrize("arguments", [{"workers": -1}, {"retries": -1}, {"start_method": "x"}])
def test_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        ProcessesEngine(**arguments)
