"""The benchmark of predictions: one small run of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import nginx

PLANNER = Path(__file__).parents[2] / "benchmarks" / "planner.py"


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the network splices")
def test_a_run_starved_by_the_network_is_predicted(tmp_path: Path) -> None:
    try:
        nginx.program()
    except RuntimeError as error:
        pytest.skip(str(error))
    out = tmp_path / "found.json"
    options = ["--runs", "network", "--rounds", "1", "--shards", "16", "--json", str(out)]
    done = subprocess.run(
        [sys.executable, str(PLANNER), *options], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["network"]
    (real,), said = found["measured"], found["predicted"]
    assert real["shard_bytes"] == said["shard_bytes"]
    assert real["range_bytes"] == said["range_bytes"] == 0
    # Beside other tests a machine is slower than by itself.
    assert 0.4 < said["samples_s"] / real["samples_s"] < 2.5
