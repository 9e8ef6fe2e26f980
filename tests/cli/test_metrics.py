"""`metrics`: figures on what other processes have open, served over HTTP."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from streaming import StreamingDataset
from tests.chaos.ranks import serving
from tests.cli.conftest import Cli
from tests.cli.test_top import training
from tests.data import write_numbers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are found on Linux only")

LIMIT_S = 60


def heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.long
def test_served_while_a_run_goes_on(tmp_path: Path) -> None:
    data = write_numbers(tmp_path / "data", 120)
    command = [sys.executable, "-m", "streaming.cli", "metrics", "--port", "0", "--json"]
    with (
        serving(data) as proxy,
        training(proxy.url, tmp_path / "cache", workers=2),
        subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
        ) as process,
    ):
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        until, wanted = (
            time.monotonic() + LIMIT_S,
            f'shardstream_samples_total{{dataset="{proxy.url}"',
        )
        while not any(
            line.startswith(wanted) and float(line.split()[-1]) > 0 for line in lines_of(url)
        ):
            assert time.monotonic() < until, lines_of(url)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0


def lines_of(url: str) -> list[str]:
    with urllib.request.urlopen(url, timeout=LIMIT_S) as response:
        return response.read().decode().splitlines()  # type: ignore[no-any-return]


def test_a_port_that_is_taken(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = cli("metrics", "--port", port, status=2).err
    assert f"127.0.0.1:{port}" in said
    assert "--port" in said


def test_printed(cli: Cli, tmp_path: Path) -> None:
    remote = write_numbers(tmp_path / "data", 120)
    dataset = StreamingDataset(remote=str(remote), local=str(tmp_path / "local"), batch_size=4)
    list(dataset)
    assert f'shardstream_samples_total{{dataset="{remote}"' in cli("metrics", "--once").out
    figures = cli("metrics", "--once", "--json").json
    (samples,) = [
        each
        for each in figures
        if each["name"] == "shardstream_samples_total" and each["labels"]["dataset"] == str(remote)
    ]
    assert samples["value"] == 120
