"""How long importing takes, beside importing torch.

    python benchmarks/import_time.py [--runs 7] [--json FILE]

Each line is imported in a new interpreter, all lines in turn, so that a slow moment of the machine
hits all alike; the table has the medians. The file system's cache is warm.
"""

import argparse
import json
import statistics
import subprocess
import sys

PUBLIC = "StreamingDataset, StreamingDataLoader, Stream, LocalDataset, MDSWriter"
LINES = {
    "torch": "import torch",
    "torch, then streaming": "import torch, streaming",
    "torch, then its names": f"import torch\nfrom streaming import {PUBLIC}",
    "streaming": "import streaming",
    "streaming's names": f"from streaming import {PUBLIC}",
    "MDSWriter alone": "from streaming import MDSWriter",
}
LIMIT_S = 0.3
"""What importing the public names may add to importing torch."""


def import_s(code: str) -> float:
    timed = f"import time\nstart = time.perf_counter()\n{code}\nprint(time.perf_counter() - start)"
    run = subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True)
    return float(run.stdout)


def measure(runs: int) -> dict[str, list[float]]:
    for code in LINES.values():
        import_s(code)
    seconds: dict[str, list[float]] = {name: [] for name in LINES}
    for _ in range(runs):
        for name, code in LINES.items():
            seconds[name].append(import_s(code))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", help="also write the measurements to this file")
    arguments = parser.parse_args()
    seconds = measure(arguments.runs)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    torch_s = medians["torch"]
    print(f"{'imported':24}{'median s':>10}{'of torch':>10}{'added s':>10}")
    for name, value in medians.items():
        added = f"{value - torch_s:10.3f}" if name.startswith("torch,") else ""
        print(f"{name:24}{value:10.3f}{value / torch_s:10.2f}{added}")
    added_s = medians["torch, then its names"] - torch_s
    print(f"\nadded to torch by the public names: {added_s:.3f} s (at most {LIMIT_S} s)")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"seconds": seconds, "medians": medians, "added_s": added_s}, file, indent=1)
    if added_s > LIMIT_S:
        sys.exit(f"importing adds more than {LIMIT_S} s")


if __name__ == "__main__":
    main()
