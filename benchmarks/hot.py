"""How fast shards that are on disk are read, beside other libraries: ``make bench-hot``.

Builds three data sets in each library's own format, and reads them, shuffled, in batches of 32,
with 0 and 2 workers; all readers in turn, several rounds, each in a process and an environment of
its own. Prints medians and their ratios to ours, and writes them as JSON.

    python benchmarks/hot.py [--rounds 5] [--seconds 3] [--workers 0 2] [--json FILE]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / ".environments"
PACKAGES = {
    "mosaicml-streaming": ["mosaicml-streaming==0.13.0"],
    "litdata": ["litdata==0.2.76"],
    "webdataset": ["webdataset==1.0.2"],
    "datasets": ["datasets>=4"],
}
"""What is installed where; readers not named here run in ours."""
NEEDS_ITS_OWN_TORCH = ("mosaicml-streaming",)
"""It requires torchvision, which fits one release of torch alone."""
READERS = [
    *("shardstream", "shardstream, plain DataLoader", "mosaicml-streaming", "litdata"),
    *("webdataset", "datasets", "memmap"),
]
WORKLOADS = ["tokens", "small", "images"]


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


def run(reader: str, action: str, workload: str, folder: str, *arguments: str) -> str:
    command = [python_of(reader), str(HERE / "hot_reader.py"), action, reader, workload, folder]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{reader} could not {action} {workload}:\n{done.stderr[-3000:]}")
    return done.stdout


def measure(
    folder: Path,
    readers: list[str],
    workloads: list[str],
    workers: list[int],
    rounds: int,
    seconds: float,
) -> dict[str, dict[str, list[float]]]:
    """Samples a second of each case (``workload, n workers``), by reader, a number a round."""
    results: dict[str, dict[str, list[float]]] = {}
    for workload in workloads:
        usable = [r for r in dict.fromkeys(readers) if r != "memmap" or workload == "tokens"]
        for reader in usable:
            run(reader, "write", workload, str(folder / workload / reader))
        for _ in range(rounds):
            for count in workers:
                case = results.setdefault(f"{workload}, {count} workers", {})
                for reader in usable:
                    out = str(folder / workload / reader)
                    rate = float(
                        run(reader, "read", workload, out, str(count), str(seconds)).split()[-1]
                    )
                    case.setdefault(reader, []).append(rate)
    return results


def show(results: dict[str, dict[str, list[float]]]) -> None:
    for case, by_reader in results.items():
        ours = statistics.median(by_reader["shardstream"])
        print(f"\n{case}: samples/s, and how many times as fast shardstream is")
        for reader, rates in by_reader.items():
            median = statistics.median(rates)
            print(f"  {reader:<30} {median:>12,.0f}  {ours / median:>7.1f} x")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS)
    parser.add_argument("--readers", nargs="+", default=READERS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(
            Path(folder), args.readers, args.workloads, args.workers, args.rounds, args.seconds
        )
    show(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
