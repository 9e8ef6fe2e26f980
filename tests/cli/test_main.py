"""What all commands have in common: errors on one line, options of stores, the extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming import __version__
from streaming.cli.commands import app
from streaming.cli.main import main
from tests.cli.conftest import Cli
from tests.data import write_numbers
from tests.servers.fixtures import Bucket

COMMANDS = {
    *("info", "head", "cat", "verify", "repair", "merge", "reshard", "cp", "ls", "diff"),
    *("state", "doctor", "bench", "convert", "append", "plan", "top", "metrics"),
}


def test_every_command_is_there_and_has_json(cli: Cli) -> None:
    assert {command.callback.__name__ for command in app.registered_commands} == COMMANDS  # type: ignore[union-attr]
    out = cli("--help").out
    for name in COMMANDS:
        assert name in out
        assert "--json" in cli(name, "--help").out


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"shardstream {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "{}/absent"),
        ("cat", "{}/absent", "1"),
        ("repair", "{}/a", "{}/b"),
        ("info", "nonsense://x"),
        ("state", "{}/absent.json"),
        ("info",),
        ("info", "{}", "--bogus"),
        ("nothing",),
        ("info", "s3://b", "--option", "bogus"),
        ("verify", "{}", "--decode", "lots"),
        ("diff", "{}/a", "{}/b"),
    ],
)
def test_errors_are_one_line(cli: Cli, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ran = cli(*(argument.format(tmp_path) for argument in arguments), status=2)
    assert ran.err.startswith("shardstream: ")
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""


def test_traceback_if_asked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        main(["info", str(tmp_path), "--traceback"])
    with pytest.raises(FileNotFoundError):
        main(["--traceback", "info", str(tmp_path)])


def test_options_of_a_store(cli: Cli, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    write_numbers(bucket.url, 5)
    endpoint = bucket.proxy.url
    monkeypatch.delenv("S3_ENDPOINT_URL")
    found = cli("info", bucket.url, "-o", f"endpoint_url={endpoint}", "--json").json
    assert found["samples"] == 5
    assert (
        "did you mean 'endpoint_url'" in cli("info", bucket.url, "-o", "endpoint=x", status=2).err
    )


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are of Unix")
def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    data = write_numbers(tmp_path / "data", 50)
    ours, theirs = os.openpty()
    try:
        command = [sys.executable, "-m", "streaming.cli", "verify", str(data), "--json"]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=theirs, check=True, env=environment
        )
        shown = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "shards verified" in shown
    assert "5/5" in shown
    assert json.loads(done.stdout)["ok"]


def test_without_the_extra_the_error_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "sys.modules['typer'] = None\n"
        "from streaming.cli.main import main\n"
        "sys.exit(main(['info', 'x']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'shardstream[cli]'" in done.stderr


def test_a_reader_that_stops_reading_is_no_error(tmp_path: Path) -> None:
    data = write_numbers(tmp_path / "data", 2000, per_shard=1000)
    command = f"{sys.executable} -m streaming.cli cat {data} --json | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith('{"id": 0')
    assert done.stderr == ""


def test_help_imports_neither_torch_nor_clients() -> None:
    from tests.test_import import HEAVY, imported_by

    new = imported_by("import streaming.cli.commands") - imported_by("import typer")
    assert not new & {*HEAVY, "torch"}
