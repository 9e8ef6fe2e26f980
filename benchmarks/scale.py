"""Opening and planning at scale: time and memory, each in a process of its own.

    python benchmarks/scale.py [--shards N] [--samples N] [--beside PYTHON] [--json FILE]
    python benchmarks/scale_curves.py FILE FOLDER

The indexes are made up, of shards of 1,000 samples; there are no shards. "First" is with nothing
kept from before, "again" a process that comes after it. Peak memory is what a process takes above
its imports; what it maps and others share is in it. Beside the time that passed there is the CPU's,
which others that use the machine don't prolong. ``--beside`` measures mosaicml-streaming in an
interpreter that has it. A billion samples of a compatible shuffle take 9 GB.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SHARD = 1000
"""Samples of a shard."""
SIZES = (10**6, 10**7, 10**8, 10**9)
"""Samples of an epoch."""

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
weights = [{} if given.get("weight") is None else {"repeat": 0.1 + at / 500}
           for at in range(len(given["folders"]))]
streams = [Stream(remote=folder, local=folder + "-local", **weight)
           for folder, weight in zip(given["folders"], weights)]
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
from streaming import plans
from streaming.order import OrderParams, StreamShape
from streaming.planning import place_of, plan
from streaming.world import World
import streaming.order.shuffle
if not given.get("ahead", True):
    plans._AHEAD_AFTER = 1 << 60
shards, size, nodes = given["samples"] // given["size"], given["size"], given["nodes"]
stream = StreamShape(np.full(shards, size), shards * size, 1.0)
block = max(4_000_000 // nodes, 1 << 18)
params = OrderParams((stream,), shards * size, 32, nodes, shuffle=True, shuffle_algo=given["algo"],
                     shuffle_block_size=block)
# The last node, which has to draw what all others do before its own.
world = World(nodes, 8, 8, (nodes - 1) * 64 + given.get("worker", 0))
place = place_of(world)
if given.get("wait"):
    print("ready", flush=True)
    sys.stdin.readline()
began = peak("VmRSS")
start = now()
epoch = plan(params, world)
epoch.ids(*place, 0, 64)
note("first", start)
"""
)

PLANNED = (
    PLAN
    + """
start = now()
epoch.ids(*place, -64)  # needs all of the plan
note("whole", start)
used = shards * size * 9 // 10 // (nodes * 256) * (nodes * 256)
start = now()
plan(params, world, 0, used).ids(*place, 0, 64)
note("at_90", start)
found["alone_mb"] = peak() - began
start = now()
count = 1 << 16
for begin in range(0, count, 4096):
    epoch.ids(*place, begin, begin + 4096)
found["each_us"] = (time.thread_time() - thread) / min(count, epoch.count(*place)) * 1e6
for thread in threading.enumerate():
    if thread.name == "streaming-next-plan":
        thread.join()
note("ahead", start)
start = now()
plan(params, world, 1).ids(*place, 0, 64)
note("turnover", start)
end()
"""
).replace("count = 1 << 16\n", "count, thread = 1 << 16, time.thread_time()\n")

WORKER = (
    PLAN
    + """
for begin in range(0, epoch.count(*place), 1 << 16):
    epoch.ids(*place, begin, begin + (1 << 16))
print(json.dumps(found), flush=True)
sys.stdin.read()
"""
)
"""One of a node's processes, which goes through all its samples and ends when it is told to."""

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

    def add(self, kind: str, found: dict[str, float] | None, **given: Any) -> None:
        """Add a row: what was measured, of what, and the numbers; no numbers if it failed."""
        self.rows.append({"kind": kind, **given, **(found or {})})
        numbers = []
        for name, value in (found or {"failed_s": 1.0}).items():
            if name.endswith("_cpu_s"):
                numbers[-1] += f" ({value:.3f})"
            elif name.endswith("_s"):
                numbers.append(f"{name[:-2]} {value:.3f}")
            else:
                numbers.append(f"{name[:-3]} {value:,.2f}")
        what = ", ".join(
            f"{value:,}" if isinstance(value, int) else str(value)
            for value in given.values()
            if value is not None
        )
        print(f"| {kind}: {what} | {' | '.join(numbers)} |", flush=True)


def run_node(workers: int, **given: Any) -> dict[str, float]:
    """Several processes of a node that plan the same epoch at once.

    Returns:
        When the last of them had its first samples, and the most memory that all took together
        above their imports. What they share counts once (it is divided among those that map it).
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", WORKER, json.dumps(each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for each in ({**given, "worker": worker, "wait": True} for worker in range(workers))
    ]
    pipes = [(each.stdin, each.stdout) for each in processes if each.stdin and each.stdout]
    for _, answer in pipes:
        answer.readline()
    pids = [process.pid for process in processes]
    imports_kb = sum(map(_proportional_kb, pids))
    watch = Watch(pids)
    for question, _ in pipes:
        question.write("go\n")
        question.flush()
    found = [json.loads(answer.readline()) for _, answer in pipes]
    peak_kb = watch.end()
    for process in processes:
        process.communicate()
    return {
        "first_s": max(each["first_s"] for each in found),
        "first_cpu_s": sum(each["first_cpu_s"] for each in found),
        "node_peak_mb": (peak_kb - imports_kb) / 1024,
    }


class Watch(threading.Thread):
    """Watches how much memory processes take together."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__(daemon=True)
        self._pids = pids
        self._most_kb = 0
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Look again and again."""
        while not self._ended.wait(0.05):
            self._most_kb = max(self._most_kb, sum(map(_proportional_kb, self._pids)))

    def end(self) -> int:
        """Stop watching; return the most that was seen, in kB."""
        self._ended.set()
        self.join()
        return self._most_kb


def _proportional_kb(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def measure_opening(table: Table, folder: Path, arguments: argparse.Namespace) -> None:
    """Data sets of one stream, and of a thousand."""
    for shards in (1000, 10_000, 100_000, 1_000_000):
        if shards > arguments.shards:
            break
        path = write_index(folder / str(shards), shards)
        for which in "first", "again, at once", "again":
            if which == "again":
                time.sleep(2.5)  # so that the file's time of change tells it
            found = run(OPEN, folders=[path], algo="blockwise", plan=False)
            table.add("open", found, shards=shards, which=which)
        if arguments.beside and shards <= 100_000:
            theirs = run(BESIDE, arguments.beside, folders=[path], algo="py1e", plan=False)
            table.add("open", theirs, shards=shards, which="mosaicml-streaming")
    paths = [write_index(folder / "streams" / str(at), 100) for at in range(1000)]
    for weight in None, "repeat":
        for which in "first", "again":
            algo = "blockwise"
            found = run(OPEN, folders=paths, algo=algo, plan=True, weight=weight)
            table.add("open 1,000 streams", found, shards=100_000, which=which, weight=weight)


def measure_planning(table: Table, folder: Path, arguments: argparse.Namespace) -> None:
    """Epochs of all sizes and shuffles, for 1 and 64 nodes."""
    for algo in "py1e", "py1br", "py1s", "naive":
        for samples in SIZES:
            for nodes in (1, 64) if algo == "py1e" else (1,):
                # A node of 64 keeps little. Of the others one size says enough.
                most = arguments.samples * (10 if nodes > 1 else 1)
                if samples > most or (algo != "py1e" and samples != arguments.samples):
                    continue
                given = {"algo": algo, "samples": samples, "size": SHARD, "nodes": nodes}
                for which in ("first", "again") if algo == "py1e" else ("first",):
                    found = run(PLANNED, ahead=samples < 10**9, **given)
                    table.add("plan", found, which=which, **given)
                shutil.rmtree(os.environ["STREAMING_CACHE_DIR"], ignore_errors=True)
    for samples in (*SIZES, 10**12):
        for nodes in 1, 64:
            size = SHARD if samples < 10**12 else SHARD * 1000
            given = {"algo": "blockwise", "samples": samples, "size": size, "nodes": nodes}
            table.add("plan", run(PLANNED, **given), which="first", **given)
    for workers in 1, 8:
        given = {"algo": "py1e", "samples": arguments.samples, "size": SHARD, "nodes": 1}
        found = run_node(workers, **given, ahead=False)
        table.add("node", found, workers=workers, samples=arguments.samples, which="first")
        shutil.rmtree(os.environ["STREAMING_CACHE_DIR"], ignore_errors=True)
    if arguments.beside:
        for samples in SIZES:
            if samples > min(arguments.samples, 10**8):
                break
            path = folder / str(samples // SHARD)
            theirs = run(
                BESIDE,
                arguments.beside,
                folders=[str(path) if path.exists() else write_index(path, samples // SHARD)],
                algo="py1e",
                plan=True,
            )
            table.add("plan", theirs, algo="py1e", samples=samples, which="mosaicml-streaming")


def main() -> None:
    """Print a table, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shards", type=int, default=1_000_000, help="open no more than these")
    parser.add_argument("--samples", type=float, default=1e8, help="plan no more, but blockwise")
    parser.add_argument("--beside", metavar="PYTHON", help="an interpreter that has the other one")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", choices=["opening", "planning"])
    arguments = parser.parse_args()
    arguments.samples = int(arguments.samples)
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STREAMING_CACHE_DIR"] = os.path.join(folder, "keep")
        os.environ["TMPDIR"] = folder
        if arguments.only != "planning":
            measure_opening(table, Path(folder), arguments)
        if arguments.only != "opening":
            measure_planning(table, Path(folder), arguments)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(table.rows, indent=2))


if __name__ == "__main__":
    main()
