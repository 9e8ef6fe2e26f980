"""Ways to run the command line: in this process, and as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from streaming.cli.main import main
from tests.servers.fixtures import bucket, clean_environment, moto_url

__all__ = ["bucket", "clean_environment", "moto_url"]


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Ran]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process; it must end well unless another status is given."""

    def run(*arguments: object, status: int | None = 0) -> Ran:
        capsys.readouterr()
        got = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert status is None or got == status, out + err
        return Ran(got, out, err)

    return run


def run_process(*arguments: object, status: int = 0, **environment: str) -> Ran:
    """Run a command as the installed script does."""
    done = subprocess.run(
        [sys.executable, "-m", "streaming.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == status, done.stdout + done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)
