"""How fast shards come out of a bucket, beside other libraries: ``make bench-cold``.

nginx on loopback is the bucket. *Limited*, a small proxy before it gives each connection 20 MB/s
and each answer its first byte after 30 ms; *unlimited*, readers talk to nginx itself. Each run is a
process in an environment of its own that begins with an empty cache; all readers take turns. Shards
of 64 MiB hold samples of 8 KiB. The networks:

    limited, unlimited   all readers, one epoch or --seconds of it
    faulty               ours: 5 % of requests answered 503, 1 % of connections cut and 1 % of
                         answers standing still, in turns with none of that; all samples checked
    sparse               1 % of the samples, shuffled

Prints a table, and writes JSON: seconds from the constructor to the first batch, MB/s of samples
from the constructor on, CPU seconds per GB of them, and bytes fetched over bytes used (over the
data set's bytes for *sparse*).

    python benchmarks/cold.py [--quick] [--networks limited …] [--readers shardstream …]
        [--workers 0 2 8] [--order shuffled …] [--rounds 3] [--shards 14] [--seconds 20]
        [--data FOLDER] [--json FILE]
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from cold_reader import SAMPLE_BYTES, SHARD_BYTES  # noqa: E402
from hot import python_of  # noqa: E402

from tests.servers.nginx import Nginx  # noqa: E402

READERS = {"shardstream": "mds", "mosaicml-streaming": "mds", "litdata": "litdata"}
"""The format of each reader's data set."""
LIMITED = ["--rate", "20", "--delay", "0.03"]
NETWORKS: dict[str, list[str] | None] = {
    "limited": LIMITED,
    "unlimited": None,
    "faulty": LIMITED,
    "sparse": LIMITED,
}
FAULTS = ["--fail", "0.05", "--cut", "0.01", "--stall", "0.01"]
ORDERS = ["in order", "shuffled"]


@dataclass(frozen=True)
class Case:
    """One kind of run."""

    network: str
    order: str
    workers: int
    reader: str
    faults: bool = False

    def __str__(self) -> str:
        return f"{self.network}, {self.order}, {self.workers} workers"

    @property
    def name(self) -> str:
        """The reader, and what is done to it."""
        return f"{self.reader}, with faults" if self.faults else self.reader


def cases(args: argparse.Namespace) -> Iterator[Case]:
    """What is asked for, so that the cases to be compared follow one another."""
    for network in args.networks:
        for workers in args.workers:
            for order in args.order:
                if network == "faulty":
                    yield Case(network, order, workers, "shardstream")
                    yield Case(network, order, workers, "shardstream", faults=True)
                elif network == "sparse":
                    if order == "shuffled" and "shardstream" in args.readers:
                        yield Case(network, order, workers, "shardstream")
                else:
                    for reader in args.readers:
                        yield Case(network, order, workers, reader)


@contextlib.contextmanager
def proxy(port: int, folder: Path, options: list[str]) -> Iterator[tuple[str, Path]]:
    """The network before the bucket; gives its URL and its log."""
    log = folder / "proxy.log"
    log.touch()
    command = [sys.executable, str(HERE / "cold_proxy.py"), str(port), str(log), *options]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", log
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


def run(case: Case, nginx: Nginx, data: Path, samples: int, args: argparse.Namespace) -> Any:
    """Measure one case once, with a cache and a network of its own."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.scratch)))
        options = NETWORKS[case.network]
        url, log, skip = nginx.url, nginx.log, nginx.log.stat().st_size
        if options is not None:
            more = [*FAULTS, "--seed", str(args.seed)] if case.faults else []
            port = int(nginx.url.rpartition(":")[2])
            url, log = stack.enter_context(proxy(port, folder, [*options, *more]))
            skip = 0
        command = [python_of(case.reader), str(HERE / "cold_reader.py"), "read", case.reader]
        command += [f"s3://bucket/{READERS[case.reader]}", str(folder / "cache")]
        command += ["--workers", str(case.workers)]
        command += ["--shuffle"] if case.order == "shuffled" else []
        command += ["--epoch-size", str(samples // 100)] if case.network == "sparse" else []
        command += ["--check"] if case.network == "faulty" else ["--seconds", str(args.seconds)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env=environment(url, folder)
        )
        if done.returncode:
            return {"error": done.stderr.strip()[-2000:]}
        found = json.loads(done.stdout.splitlines()[-1])
        fetched = bytes_in(log, skip)
    used = found["samples"] * SAMPLE_BYTES
    total = samples * SAMPLE_BYTES
    found["mb_s"] = used / 1e6 / found["seconds"]
    found["cpu_s_per_gb"] = found["cpu_s"] / (used / 1e9)
    found["fetched_over_used"] = fetched / (total if case.network == "sparse" else used)
    return found


def environment(url: str, folder: Path) -> dict[str, str]:
    """Variables that lead every reader to the bucket, and none to what others have left."""
    (folder / "tmp").mkdir()
    (folder / "home").mkdir()
    return {
        **os.environ,
        "S3_ENDPOINT_URL": url,
        "AWS_ENDPOINT_URL_S3": url,
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "TMPDIR": str(folder / "tmp"),
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "home"),
    }


def bytes_in(log: Path, skip: int) -> int:
    """The bytes of all bodies that a log tells of, past some of it."""
    time.sleep(0.3)  # an answer is noted when its client has gone
    with open(log) as file:
        file.seek(skip)
        return sum(int(line.split()[-1]) for line in file)


def write(data: Path, format_name: str, reader: str, samples: int) -> None:
    folder = data / "bucket" / format_name
    if (folder / "index.json").exists():
        return
    command = [python_of(reader), str(HERE / "cold_reader.py"), "write", format_name, str(folder)]
    subprocess.run([*command, str(samples)], check=True, capture_output=True, timeout=900)


def measure(args: argparse.Namespace, data: Path) -> dict[str, dict[str, list[Any]]]:
    """All runs, by case and reader."""
    samples = args.shards * (SHARD_BYTES // SAMPLE_BYTES)
    for reader, format_name in READERS.items():
        if reader in args.readers:
            write(data, format_name, reader, samples)
    results: dict[str, dict[str, list[Any]]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nginx = stack.enter_context(Nginx(folder, data))
        for number in range(args.rounds):
            args.seed = number
            for case in cases(args):
                found = run(case, nginx, data, samples, args)
                results.setdefault(str(case), {}).setdefault(case.name, []).append(found)
                print(f"round {number + 1}: {case}, {case.name}: {found}", file=sys.stderr)
                if args.json:  # so that what is interrupted has not been for nothing
                    args.json.write_text(json.dumps(results, indent=1) + "\n")
    return results


def show(results: dict[str, dict[str, list[Any]]]) -> None:
    """Medians as tables."""
    columns = ["first_batch_s", "mb_s", "cpu_s_per_gb", "fetched_over_used"]
    for case, by_reader in results.items():
        print(
            f"\n{case}\n  {'':<28}{'first batch, s':>16}{'MB/s':>9}{'CPU s/GB':>10}{'fetched':>9}"
        )
        for reader, runs in by_reader.items():
            good = [found for found in runs if "error" not in found]
            if not good:
                print(f"  {reader:<28} failed: {runs[0]['error'].splitlines()[-1]}")
                continue
            first, rate, cpu, fetched = (
                statistics.median(found[column] for found in good) for column in columns
            )
            note = "" if len(good) == len(runs) else f"  {len(runs) - len(good)} failed"
            bad = sum(found.get("wrong", 0) + found.get("double", 0) for found in good)
            note += f"  {bad} wrong or double" if bad else ""
            print(f"  {reader:<28}{first:>16.2f}{rate:>9.1f}{cpu:>10.2f}{fetched:>9.3f}{note}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2, 8])
    parser.add_argument("--order", nargs="+", choices=ORDERS, default=ORDERS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shards", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--quick", action="store_true", help="one round of 6 shards, 2 workers")
    parser.add_argument("--data", type=Path, help="keep the data sets here for the next time")
    parser.add_argument("--scratch", type=Path, help="where the caches are")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.shards, args.workers, args.seconds = 1, 6, [2], 8.0
    with tempfile.TemporaryDirectory() as temporary:
        data = args.data or Path(temporary)
        results = measure(args, data / f"{args.shards}-shards")
    show(results)


if __name__ == "__main__":
    main()
