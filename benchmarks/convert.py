"""How fast data is converted into shards, beside other libraries: ``make bench-convert``.

Makes 50,000 JPEG files of the photographs that packages ship, in many crops and qualities, and 1 GB
of text as JSON lines; converts both by each library's own way, in turn, several rounds, each in a
process and an environment of its own. mosaicml-streaming is measured twice: as a loop in one
process, and with the pool and `merge_index` that its documentation has for several.

    python benchmarks/convert.py [--quick] [--rounds 3] [--processes 2] [--json FILE]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from convert_inputs import write_images, write_text
from hot import python_of

HERE = Path(__file__).parent


def run(way: str, workload: str, source: Path, out: Path, processes: int) -> tuple[float, float]:
    """Convert once; return seconds, and CPU seconds."""
    python = python_of(way)
    script = [python, str(HERE / "convert_ways.py"), way, workload, str(source), str(out)]
    os.sync()  # what is left of the last one is not this one's work
    done = subprocess.run(
        [*script, str(processes)], capture_output=True, text=True, timeout=1800, cwd=HERE
    )
    shutil.rmtree(out, ignore_errors=True)
    result = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not result:
        raise RuntimeError(f"{way} could not convert {workload}:\n{done.stderr[-3000:]}")
    seconds, cpu = map(float, result[-1].split()[1:])
    return seconds, cpu


def measure(
    folder: Path, inputs: dict[str, Path], rounds: int, processes: int
) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Seconds and CPU seconds by workload and way, a pair a round."""
    ways = {
        "shardstream": ("shardstream", processes),
        "mosaicml-streaming": ("mosaicml-streaming", processes),
        "mosaicml-streaming, a loop": ("mosaicml-streaming", 1),
        "litdata": ("litdata", processes),
    }
    results: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for workload, source in inputs.items():
        for _ in range(rounds):
            for name, (way, count) in ways.items():
                took = run(way, workload, source, folder / "out", count)
                results.setdefault(workload, {}).setdefault(name, []).append(took)
    return results


def in_memory() -> str | None:
    """A folder in memory, so that libraries are measured, not the disk that they write to.

    Ours waits until the disk has what it wrote; the others leave that to the system, and lose it
    when the power fails.
    """
    folder = "/dev/shm"
    room = os.path.isdir(folder) and shutil.disk_usage(folder).free > 4 << 30
    return folder if room else None


def show(results: dict[str, dict[str, list[tuple[float, float]]]]) -> None:
    for workload, by_way in results.items():
        ours = statistics.median(seconds for seconds, _ in by_way["shardstream"])
        print(f"\n{workload}: seconds, CPU seconds, and how many times as fast shardstream is")
        for way, took in by_way.items():
            seconds = statistics.median(seconds for seconds, _ in took)
            cpu = statistics.median(cpu for _, cpu in took)
            print(f"  {way:<28} {seconds:>8.2f} {cpu:>8.2f} {seconds / ours:>7.1f} x")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="5,000 images, 100 MB of text")
    parser.add_argument("--workloads", nargs="+", default=["images", "text"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path, help="a folder to write to")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = {workload: folder / workload for workload in args.workloads}
        if "images" in inputs:
            count = 5_000 if args.quick else 50_000
            size = write_images(inputs["images"], count)
            print(f"{count:,} images, {size / 1e6:,.0f} MB")
        if "text" in inputs:
            count = write_text(inputs["text"], 100_000_000 if args.quick else 1_000_000_000)
            print(f"{count:,} documents")
        with tempfile.TemporaryDirectory(dir=args.out or in_memory()) as out:
            results = measure(Path(out), inputs, args.rounds, args.processes)
    show(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
