"""Opening and planning at scale: time and memory, each in a process of its own.

    python benchmarks/scale.py [--million] [--large] [--beside PYTHON] [--json FILE]

The indexes are made up, of shards of 1,000 samples; there are no shards. "First" is with nothing
kept from before, "again" a process that comes after it. Peak memory is what a process takes above
its imports; what it maps and others share is in it. Beside the time that passed there is the CPU's,
which others that use the machine don't prolong. ``--beside`` measures mosaicml-streaming in an
interpreter that has it, ``--million`` opens a million shards, ``--large`` plans 100 million samples
by every shuffle.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SHARD = 1000
"""Samples of a shard."""

COMMON = """
import json, sys, time
def peak(name="VmHWM"):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024
import numpy as np, torch
import streaming
from streaming import Stream, StreamingDataset
given = json.loads(sys.argv[1])
found, began = {}, peak("VmRSS")
def now():
    return time.perf_counter(), time.process_time()
def note(name, start):
    found[name + "_s"], found[name + "_cpu_s"] = (b - a for a, b in zip(start, now()))
def end():
    found["peak_mb"] = peak() - began
    print(json.dumps(found))
"""

OPEN = (
    COMMON
    + """
start = now()
streams = [Stream(remote=folder, local=folder + "-local") for folder in given["folders"]]
dataset = StreamingDataset(streams=streams, batch_size=1024, shuffle=True,
                           shuffle_algo=given["algo"])
note("open", start)
if given["plan"]:
    from streaming.planning import plan
    world = dataset._world()
    plan(dataset._settle(world), world).ids(0, 0, 0, 0, 64)
    note("open_and_plan", start)
end()
"""
)

PLAN = (
    COMMON
    + """
import threading
from streaming.order import OrderParams, StreamShape
from streaming.planning import plan
from streaming.world import World
import streaming.order.shuffle
shards, size, nodes = given["samples"] // given["size"], given["size"], given["nodes"]
stream = StreamShape(np.full(shards, size), shards * size, 1.0)
block = max(4_000_000 // nodes, 1 << 18)
params = OrderParams((stream,), shards * size, 32, nodes, shuffle=True, shuffle_algo=given["algo"],
                     shuffle_block_size=block)
world = World(nodes, 8, 8, 0)
began = peak("VmRSS")
start = now()
epoch = plan(params, world)
epoch.ids(0, 0, 0, 0, 64)
note("first", start)
used = shards * size * 9 // 10 // (nodes * 256) * (nodes * 256)
start = now()
plan(params, world, 0, used).ids(0, 0, 0, 0, 64)
note("at_90", start)
start = now()
count = 1 << 16
for begin in range(0, count, 4096):
    epoch.ids(0, 0, 0, begin, begin + 4096)
found["each_us"] = (now()[1] - start[1]) / min(count, epoch.count(0, 0, 0)) * 1e6
for thread in threading.enumerate():
    if thread.name == "streaming-next-plan":
        thread.join()
start = now()
plan(params, world, 1).ids(0, 0, 0, 0, 64)
note("turnover", start)
end()
"""
)

BESIDE = (
    COMMON
    + """
start = now()
dataset = StreamingDataset(remote=given["folders"][0], local=given["folders"][0] + "-theirs",
                           batch_size=32, shuffle=True, shuffle_algo=given["algo"],
                           num_canonical_nodes=1)
note("open", start)
if given["plan"]:
    from streaming.base.batching import generate_work
    from streaming.base.world import World
    start = now()
    dataset.shuffle_block_size = 4_000_000
    generate_work("random", dataset, World(1, 8, 8, 0), 0, 0)
    note("first", start)
end()
"""
)


def run(program: str, python: str = sys.executable, **given: Any) -> dict[str, float] | None:
    command = [python, "-W", "ignore", "-c", program, json.dumps(given)]
    # Elsewhere than here, where mosaicml-streaming's name would mean this library.
    done = subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir())
    if done.returncode:
        print(done.stderr[-500:], file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def write_index(folder: Path, shards: int) -> str:
    """Make up an index, as a writer that compresses would have written it."""
    folder.mkdir(parents=True)
    schema = {
        "column_encodings": ["int", "str"],
        "column_names": ["id", "text"],
        "column_sizes": [8, None],
        "compression": "zstd",
        "format": "mds",
        "hashes": ["xxh64"],
    }
    with open(folder / "index.json", "w") as file:
        file.write('{"shards": [')
        for at in range(shards):
            files = {
                f"{kind}_data": {
                    "basename": f"shard.{at:05}.mds{suffix}",
                    "bytes": size - at % 977,
                    "hashes": {"xxh64": f"{at * 0x9E3779B97F4A7C15 % (1 << 64):016x}"},
                }
                for kind, suffix, size in (("raw", "", 67_000_000), ("zip", ".zstd", 17_000_000))
            }
            shard = {**schema, **files, "samples": SHARD, "size_limit": 1 << 26, "version": 2}
            file.write((", " if at else "") + json.dumps(shard, sort_keys=True))
        file.write('], "version": 2}')
    return str(folder)


class Table:
    """Rows of measurements, printed as they come."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, found: dict[str, float] | None) -> None:
        row = {"what": what, **(found or {"failed": 1.0})}
        self.rows.append(row)
        numbers = []
        for name, value in list(row.items())[1:]:
            if name.endswith("_cpu_s"):
                numbers[-1] += f" ({value:.3f})"
            elif name.endswith("_s"):
                numbers.append(f"{name[:-2]} {value:.3f}")
            else:
                numbers.append(f"{name[:-3]} {value:,.2f}")
        print(f"| {what} | {' | '.join(numbers)} |", flush=True)


def measure_opening(table: Table, folder: Path, arguments: argparse.Namespace) -> None:
    counts = [1000, 100_000, *([1_000_000] if arguments.million else [])]
    for shards in counts:
        path = write_index(folder / str(shards), shards)
        what = f"open {shards:,} shards"
        for which in "first, fetched", "again, read", "again":
            found = run(OPEN, folders=[path], algo="blockwise", plan=False)
            table.add(f"{what}, {which}", found)
        if arguments.beside and shards <= 100_000:
            theirs = run(BESIDE, arguments.beside, folders=[path], algo="py1e", plan=False)
            table.add(f"{what}, mosaicml-streaming", theirs)
    paths = [write_index(folder / "streams" / str(at), 100) for at in range(1000)]
    for which in "first, fetched", "again":
        found = run(OPEN, folders=paths, algo="blockwise", plan=True)
        table.add(f"open and plan 1,000 streams of 100 shards, {which}", found)


def measure_planning(table: Table, folder: Path, arguments: argparse.Namespace) -> None:
    largest = 10**8 if arguments.large else 10**7
    for algo in "py1e", "py1br", "py1s", "naive", "blockwise":
        for samples in (10**6, 10**7, 10**8):
            if samples > largest and algo not in ("py1e", "blockwise"):
                continue
            for nodes in 1, 64:
                for which in ("first", "again") if algo != "blockwise" else ("first",):
                    given = {"algo": algo, "samples": samples, "size": SHARD, "nodes": nodes}
                    table.add(
                        f"{algo}, {samples:.0e} samples, {nodes}, {which}", run(PLAN, **given)
                    )
    for size in SHARD, SHARD * 1000:
        for nodes in 1, 64:
            given = {"algo": "blockwise", "samples": 10**6 * size, "size": size, "nodes": nodes}
            table.add(f"blockwise, {10**6 * size:.0e} samples, {nodes}, first", run(PLAN, **given))
    if arguments.beside:
        for shards in (1000, 10_000, *([100_000] if arguments.large else [])):
            path = folder / str(shards)
            found = run(
                BESIDE,
                arguments.beside,
                folders=[str(path) if path.exists() else write_index(path, shards)],
                algo="py1e",
                plan=True,
            )
            what = f"py1e, {shards * SHARD:.0e} samples, 1"
            table.add(f"{what}, mosaicml-streaming", found)


def main() -> None:
    """Print a table, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--beside", metavar="PYTHON")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STREAMING_CACHE_DIR"] = os.path.join(folder, "keep")
        os.environ["TMPDIR"] = folder
        measure_opening(table, Path(folder), arguments)
        measure_planning(table, Path(folder), arguments)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(table.rows, indent=2))


if __name__ == "__main__":
    main()
