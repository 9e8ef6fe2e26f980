"""What opening and planning take in memory, each in a process of its own.

Time is measured by `make bench-scale`, on a machine that does nothing else.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.format.test_index_regular import shard_of

MEASURE = """
import json, sys
import numpy as np, torch
import streaming
from streaming import StreamingDataset
from streaming.order import OrderParams, StreamShape
from streaming.planning import place_of, plan
from streaming.world import World
import streaming.order.shuffle
def memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) >> 10
given = json.loads(sys.argv[1])
began = memory("VmRSS")
"""

OPEN = (
    MEASURE
    + """
dataset = StreamingDataset(remote=given["remote"], local=given["local"], batch_size=8, shuffle=True,
                           shuffle_algo="blockwise")
dataset.state_dict(100, False)
print(dataset.num_shards, memory("VmHWM") - began)
"""
)

PLAN = (
    MEASURE
    + """
shards, nodes = given["shards"], given["nodes"]
params = OrderParams((StreamShape(np.full(shards, 1000), shards * 1000, 1.0),), shards * 1000, 32,
                     nodes, shuffle=True, shuffle_block_size=1 << 18)
world = World(nodes, 8, 8, (nodes - 1) * 64)
ids = plan(params, world).ids(*place_of(world), 0, 64)
print(len(np.unique(ids)), memory("VmHWM") - began)
"""
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


@pytest.fixture(autouse=True)
def keep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "keep"
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(folder))
    return folder


def run(program: str, **given: Any) -> tuple[int, int]:
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(given)],
        check=True,
        stdout=subprocess.PIPE,
        timeout=300,
    )
    answer, megabytes = done.stdout.split()
    return int(answer), int(megabytes)


def write_index(folder: Path, shards: int) -> None:
    """An index of shards that are all alike but for their number."""
    folder.mkdir()
    shard = json.dumps(shard_of(0), sort_keys=True).replace("%", "%%")
    pattern = shard.replace("shard.00000", "shard.%05d").encode()
    names = pattern.count(b"%05d")
    with open(folder / "index.json", "wb") as file:
        file.write(b'{"shards": [' + pattern % ((0,) * names))
        for at in range(1, shards):
            file.write(b", " + pattern % ((at,) * names))
        file.write(b'], "version": 2}')


@pytest.mark.parametrize(
    ("shards", "first_mb", "again_mb"), [(100_000, 150, 30), (1_000_000, 1500, 100)]
)
def test_opening(tmp_path: Path, shards: int, first_mb: int, again_mb: int) -> None:
    write_index(tmp_path / "remote", shards)
    given = {"remote": str(tmp_path / "remote"), "local": str(tmp_path / "local")}
    for limit in first_mb, again_mb, again_mb:
        found, megabytes = run(OPEN, **given)
        assert (found, megabytes <= limit) == (shards, True), f"{megabytes} MB"


def test_planning_a_compatible_shuffle(keep: Path) -> None:
    """Of 20 million samples 80 MB are kept, and not much more is held while they are drawn."""
    found, megabytes = run(PLAN, shards=20_000, nodes=1)
    assert (found, megabytes < 260) == (64, True), f"{megabytes} MB"
    (plan,) = keep.glob("plan-*.keep")
    assert plan.stat().st_size < 81_000_000


def test_planning_for_one_of_many_nodes(keep: Path) -> None:
    found, megabytes = run(PLAN, shards=20_000, nodes=64)
    assert (found, megabytes < 60) == (64, True), f"{megabytes} MB"
    (plan,) = keep.glob("plan-*.keep")
    assert plan.stat().st_size < 81_000_000 / 64
