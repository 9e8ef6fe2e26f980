"""The examples run as their readers run them, and leave nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(tmp_path: Path, *command: str) -> str:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    # One thread: beside other tests, torch's threads would wait for one another without end.
    environment = {**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / command[0]), *command[1:]],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Left aside: what multiprocessing and torch keep there for themselves.
    left = [p.name for p in temporary.iterdir() if not p.name.startswith(("pymp-", "torch"))]
    assert not left
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tmp"]
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(300)
def test_digits(tmp_path: Path) -> None:
    table = run(tmp_path, "digits.py")
    assert "the same as unbroken" in table


@pytest.mark.long
@pytest.mark.timeout(300)
def test_text(tmp_path: Path) -> None:
    assert "the same" in run(tmp_path, "text.py", "--samples", "200")
