"""How fast shards that are on disk are read, beside other libraries: ``make bench-hot``.

Builds four data sets in each library's own format, and reads them, shuffled, in batches of 32,
with 0, 2 and 4 workers; all readers in turn, several rounds, each in a process and an environment
of its own. Also: samples by their numbers at random, writing, and what importing takes. Prints
medians and how they compare with ours, and adds them to a JSON file and a plot.

    python benchmarks/hot.py [--quick] [--rounds 5] [--seconds 3] [--workers 0 2 4]
        [--workloads tokens small images jpeg] [--json FILE] [--plot FILE]
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hot_data import COUNTS, QUICK_COUNTS, WORKLOADS, make_photographs

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / ".environments"
PACKAGES = {
    "mosaicml-streaming": ["mosaicml-streaming==0.13.0"],
    "litdata": ["litdata==0.2.76"],
    "webdataset": ["webdataset==1.0.2", "pillow"],
    "datasets": ["datasets>=4", "pillow"],
}
"""What is installed where; readers not named here run in ours."""
NEEDS_ITS_OWN_TORCH = ("mosaicml-streaming",)
"""It requires torchvision, which fits one release of torch alone."""
OURS = "shardstream"
READERS = [
    *(OURS, "shardstream, threads", "shardstream, plain DataLoader", "shardstream, in order"),
    *("mosaicml-streaming", "litdata", "webdataset", "datasets", "memmap", "decoder alone"),
]
WRITERS = [OURS, "mosaicml-streaming", "litdata", "webdataset", "datasets", "memmap"]
IMPORTS = {OURS: "streaming", "mosaicml-streaming": "streaming", "litdata": "litdata"}
IMPORTS |= {"webdataset": "webdataset", "datasets": "datasets"}

UNAVAILABLE = 3
"""The exit status of a reader that this release doesn't have."""

TIMEOUT_S = 120
"""How long a reader may take for one round of a workload."""

Results = dict[str, dict[str, list[Any]]]
"""By case and reader, what each round gave."""


def python_of(reader: str) -> str:
    """The interpreter of a reader's environment, which is made if it isn't there."""
    if reader not in PACKAGES:
        return sys.executable
    folder = ENVIRONMENTS / reader
    python = str(folder / "bin" / "python")
    if not (folder / ".ready").exists():
        print(f"Making an environment for {reader} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [python, "-m", "pip", "install", "--quiet"]
        if reader not in NEEDS_ITS_OWN_TORCH:
            install += ["--constraint", str(HERE.parent / "constraints.txt")]
            subprocess.run([*install, "torch"], check=True)
        subprocess.run([*install, *PACKAGES[reader]], check=True)
        (folder / ".ready").touch()
    return python


def run(
    reader: str, action: str, workload: str, folder: Path, *arguments: Any
) -> dict[str, dict[str, float]]:
    """Let a reader do something; none of its processes is left.

    One that fails or takes too long is told of, and gives what it had found until then; one that
    this release hasn't got gives nothing.
    """
    command = [python_of(reader), str(HERE / "hot_reader.py"), action, reader, workload]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [*command, str(folder), *map(str, arguments)],
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            status: int | str = process.wait(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = f"still at it after {TIMEOUT_S} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        if status not in (0, UNAVAILABLE):
            print(f"{reader}: {action} {workload}: {status}\n{err.read()[-3000:]}", file=sys.stderr)
        found: dict[str, dict[str, float]] = {}
        for line in out:
            if line.startswith("{"):  # and not what a library prints
                found |= json.loads(line)
        return found


def usable(reader: str, workload: str) -> bool:
    only = {"memmap": "tokens", "decoder alone": "jpeg"}
    return only.get(reader, workload) == workload


def folder_of(folder: Path, workload: str, reader: str) -> Path:
    return folder / workload / reader.partition(",")[0]


def measure(folder: Path, workload: str, args: argparse.Namespace, results: Results) -> None:
    """Let all readers read a workload in turn, so many times; those that could not write it don't.

    What was found is added to `results` as it comes, so that one who breaks off has what there was.
    """
    count = (QUICK_COUNTS if args.quick else COUNTS)[workload]
    readers = [reader for reader in args.readers if usable(reader, workload)]
    if workload == "jpeg":
        make_photographs(folder / workload / "photographs", count)
    for reader in readers:
        if reader in WRITERS:
            out = folder_of(folder, workload, reader)
            note(results, workload, reader, run(reader, "write", workload, out, count))
    written = results.get(f"{workload}, writing", {})
    for _ in range(args.rounds):
        for reader in readers:
            if reader.partition(",")[0] in WRITERS and reader.partition(",")[0] not in written:
                continue
            out = folder_of(folder, workload, reader)
            found = run(reader, "read", workload, out, args.seconds, *args.workers)
            note(results, workload, reader, found)


def measure_imports(readers: list[str], rounds: int, results: Results) -> None:
    """Seconds that importing a library takes beyond torch and NumPy."""
    for _ in range(rounds):
        for reader, module in IMPORTS.items():
            if reader in readers:
                code = (
                    "import numpy, torch.utils.data, time; t = time.perf_counter(); "
                    f"import {module}; print(time.perf_counter() - t)"
                )
                command = [python_of(reader), "-W", "ignore", "-c", code]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds = float(done.stdout.split()[-1])
                note(results, "import", reader, {"seconds": {"seconds": seconds}})


def note(results: Results, about: str, reader: str, found: dict[str, dict[str, float]]) -> None:
    for case, numbers in found.items():
        results.setdefault(f"{about}, {case}", {}).setdefault(reader, []).append(numbers)


def median(rounds: list[Any], what: str = "rate") -> float | None:
    values = [each[what] for each in rounds if what in each]
    return statistics.median(values) if values else None


def show(results: Results) -> None:
    for case, by_reader in results.items():
        print(f"\n{case}")
        if case.startswith("import"):
            for reader, seconds in by_reader.items():
                print(f"  {reader:<30} {median(seconds, 'seconds') or 0:>10.2f} s")
            continue
        print(f"  {'':<30} {'samples/s':>12} {'ours is':>9} {'CPU µs':>8} {'MB':>7} {'turn ms':>8}")
        ours = median(by_reader.get(OURS, []))
        for reader, rounds in by_reader.items():
            rate = median(rounds) or 0.0
            line = f"  {reader:<30} {rate:>12,.0f} "
            line += f"{ours / rate:>7.1f} x " if ours and rate else " " * 10
            for what, width, form in (("cpu_us", 8, ",.1f"), ("memory_mb", 7, ",.0f")):
                value = median(rounds, what)
                line += " " * (width + 1) if value is None else f" {value:>{width}{form}}"
            turn = median(rounds, "turn_ms")
            print(line + ("" if turn is None else f" {turn:>8.1f}"))


def plot(results: Results, file: Path) -> None:
    """Draw the rates of reading, a panel a case, on a logarithmic scale."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "hot"
    import matplotlib.pyplot as plt

    cases = [case for case in results if case.endswith("workers")]
    workers = sorted({case.split(", ")[1] for case in cases})
    workloads = [w for w in WORKLOADS if any(case.startswith(w) for case in cases)]
    size = (4.2 * len(workers), 2.3 * len(workloads))
    figure, axes = plt.subplots(len(workloads), len(workers), figsize=size, squeeze=False)
    for row, workload in enumerate(workloads):
        for column, count in enumerate(workers):
            axis, by_reader = axes[row][column], results.get(f"{workload}, {count}", {})
            names = [name for name in READERS if name in by_reader][::-1]
            rates = [median(by_reader[name]) or 0.0 for name in names]
            colors = ["#1f6feb" if name.startswith(OURS) else "#9aa4b2" for name in names]
            axis.barh(names, rates, color=colors)
            axis.set_xscale("log")
            axis.set_title(f"{workload}, {count}", fontsize=9)
            axis.tick_params(labelsize=7)
    figure.supxlabel("samples/s", fontsize=9)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small data sets, short rounds")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--workers", type=int, nargs="+")
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--no-imports", dest="imports", action="store_false")
    parser.add_argument("--readers", nargs="+", default=READERS)
    parser.add_argument("--json", type=Path, help="what it holds is kept, cases measured are added")
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 5)
    args.seconds = args.seconds or (0.7 if args.quick else 3.0)
    args.workers = args.workers or ([0, 2] if args.quick else [0, 2, 4])
    kept: Results = {}
    if args.json and args.json.exists():
        kept = json.loads(args.json.read_text())
    for workload in args.workloads:
        measured: Results = {}
        try:
            with tempfile.TemporaryDirectory() as folder:
                measure(Path(folder), workload, args, measured)
        finally:
            keep(kept, measured, args.json)
    if args.imports:
        measured = {}
        measure_imports(args.readers, args.rounds, measured)
        keep(kept, measured, args.json)
    if args.plot:
        plot(kept, args.plot)


def keep(results: Results, measured: Results, file: Path | None) -> None:
    """Show what was measured, and keep it with what was measured before."""
    show(measured)
    sys.stdout.flush()
    results |= measured
    if file:
        file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
