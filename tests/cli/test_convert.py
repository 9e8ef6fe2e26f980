"""`convert` and `append`: what they refuse, and how they say it."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"x": x}) + "\n" for x in range(5)) + "{\n")
    return path


def test_an_error_is_one_line_and_the_next_run_goes_on(cli: Cli, lines: Path) -> None:
    out = lines.parent / "out"
    err = cli("convert", lines, out, status=2).err
    assert err.count("\n") == 1
    assert err.startswith(f"shardstream: {lines}, row 5: not JSON: ")
    assert "--no-resume" in cli("convert", lines, out, "--compression", "gz", status=2).err
    done = cli("convert", lines, out, "--skip-errors", "--json").json
    assert (done["samples"], done["skipped"][0]["row"]) == (5, 5)
    err = cli("convert", lines, out, status=2).err
    assert err == (
        f"shardstream: {out} is not empty (it has 00000/index.json); name another place, or "
        "use append, or pass --force\n"
    )
    shown = cli("convert", lines, out, "--force", "--skip-errors").out
    assert "1 samples were left out:" in shown
    assert "use convert" in cli("append", lines, lines.parent / "none", status=2).err


def test_transforms_of_the_working_folder(
    cli: Cli, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lines.parent / "shapes.py").write_text(
        "class Squares:\n    def __call__(self, row):\n        return {'y': row['x'] ** 2}\n"
        "def twice(row):\n    return [row, row]\n"
    )
    monkeypatch.chdir(lines.parent)
    monkeypatch.syspath_prepend(str(lines.parent))
    for name, column in (("Squares", "y"), ("twice", "x")):
        options = ("--transform", f"shapes:{name}", "--skip-errors", "--json")
        done = cli("convert", lines, name, *options).json
        assert list(done["columns"]) == [column]
    for wrong in ("shapes", "shapes:none", "nowhere:x", ":x"):
        err = cli("convert", lines, "wrong", "--transform", wrong, status=2).err
        assert f"transform {wrong}" in err or f"{wrong!r} is not a transform" in err


@pytest.mark.parametrize("column", ["x", "=int", "x="])
def test_columns_that_are_none(cli: Cli, lines: Path, column: str) -> None:
    err = cli("convert", lines, lines.parent / "out", "-c", column, status=2).err
    assert "is not a column: write name=encoding" in err
