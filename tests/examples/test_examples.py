"""The examples run as their readers run them, and leave nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_to_end(command: list[str], **options: Any) -> str:
    """What a command prints; one that takes too long says where it stands."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, **options) as process:
        try:
            output, errors = process.communicate(timeout=270)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler prints the stacks of all threads
            output, errors = process.communicate(timeout=20)
    assert process.returncode == 0, output + errors
    return output


def run(tmp_path: Path, *command: str) -> str:
    # In a short path: those of workers' sockets are limited.
    with tempfile.TemporaryDirectory(prefix="example-") as temporary:
        # One thread: beside other tests, torch's threads would wait for one another without end.
        environment = {**os.environ, "TMPDIR": temporary, "OMP_NUM_THREADS": "1"}
        output = run_to_end(
            [sys.executable, "-X", "faulthandler", str(EXAMPLES / command[0]), *command[1:]],
            env=environment,
            cwd=tmp_path,
        )
        # Left aside: what multiprocessing, torch and Ray keep there for themselves.
        own = ("pymp-", "torch", "ray")
        left = [name for name in os.listdir(temporary) if not name.startswith(own)]
        assert not left
    assert not list(tmp_path.iterdir())
    return output


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ray_train(tmp_path: Path) -> None:
    assert "the same 28 global batches" in run(tmp_path, "ray_train.py")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_digits(tmp_path: Path) -> None:
    table = run(tmp_path, "digits.py")
    assert "the same as unbroken" in table


@pytest.mark.long
@pytest.mark.timeout(300)
def test_digits_through_an_unreliable_bucket(tmp_path: Path) -> None:
    table = run(tmp_path, "digits.py", "--s3", "--faults", "0.05")
    assert "the same as unbroken" in table
    retries = next(line.split() for line in table.splitlines() if "retries" in line)
    assert int(retries[1].rstrip(",")) > 0


@pytest.mark.long
@pytest.mark.timeout(300)
def test_text(tmp_path: Path) -> None:
    assert "the same" in run(tmp_path, "text.py", "--samples", "200")


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["elastic.py", "mixing.py"])
def test_goes_on_with_the_same_batches(tmp_path: Path, name: str) -> None:
    assert "the same" in run(tmp_path, name)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_tensor_parallel(tmp_path: Path) -> None:
    assert "largest difference" in run(tmp_path, "tensor_parallel.py")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_pack(tmp_path: Path) -> None:
    output = run(tmp_path, "pack.py")
    assert "60 documents" in output
    assert "decoded: the same" in output


@pytest.mark.long
@pytest.mark.timeout(300)
def test_from_parquet(tmp_path: Path) -> None:
    output = run(tmp_path, "from_parquet.py")
    assert "3,000 rows, 3,000 samples" in output
    assert "streamed: the same" in output


@pytest.mark.long
@pytest.mark.timeout(300)
def test_bucket(tmp_path: Path) -> None:
    assert "each once: yes" in run(tmp_path, "bucket.py")


def test_the_page_lists_every_example_and_the_tests_run_it() -> None:
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    tests = Path(__file__).read_text()
    for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.ipynb")]:
        assert f"| `{path.name}` |" in page
        assert path.suffix == ".ipynb" or f'"{path.name}"' in tests
