"""How well the planner predicts: ``make bench-planner``.

nginx on loopback is the bucket, and the proxy of cold.py the network before it: 20 MB/s for each
connection, 30 ms to the first byte. What a sample costs here, and how long workers take to start,
is measured against nginx itself; everything else the planner is told. Three runs, starved by

    network     four connections, shards checked by their hash, shuffled
    decoding    a millisecond to decode a sample
    nothing     a training loop slower than its data

are predicted and then made, each some times, with an empty cache. Prints a table of throughput,
time to the first batch and bytes, predicted and measured (the median run).

    python benchmarks/planner.py [--runs network …] [--rounds 3] [--shards 48] [--data FOLDER]
        [--json FILE]
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from cold import LIMITED, environment, proxy  # noqa: E402
from cold_reader import SAMPLE_BYTES, sample  # noqa: E402

from streaming.simulate import Setup, simulate  # noqa: E402
from tests.servers.nginx import Nginx  # noqa: E402

SHARD_SAMPLES, WORKERS = 1024, 2
NETWORK = {"connection_bandwidth": 20_000_000, "latency_s": 0.03, "bandwidth": "1gb"}
RUNS: dict[str, dict[str, Any]] = {
    "network": {
        "batch_size": 32,
        "shuffle_block_size": 4096,
        "max_connections": 4,
        "validate_hash": True,
        "by_column": True,
    },
    "decoding": {"batch_size": 32, "shuffle_block_size": 4096, "decode_s": 0.001},
    "nothing": {
        "batch_size": 64,
        "shuffle_block_size": 4096,
        "step_s": 0.02,
        "by_column": True,
    },
}
"""The settings of each run that are not the planner's defaults."""


def write(folder: Path, samples: int) -> None:
    """Write the data set."""
    from streaming import MDSWriter

    columns = {"tokens": f"ndarray:int32:{SAMPLE_BYTES // 4}"}
    size = SHARD_SAMPLES * SAMPLE_BYTES + (64 << 10)
    with MDSWriter(out=str(folder), columns=columns, size_limit=size, hashes=["xxh3_64"]) as writer:
        for number in range(samples):
            writer.write(sample(number))


def read(settings: dict[str, Any], url: str, folder: Path, epochs: int = 1) -> Any:
    """Make a real run."""
    folder.mkdir()
    command = [sys.executable, str(HERE / "planner_reader.py"), "s3://bucket/data"]
    command += [str(folder / "cache"), "--workers", str(WORKERS), "--epochs", str(epochs)]
    for name, option in {
        "batch_size": "--batch-size",
        "shuffle_block_size": "--shuffle-block-size",
        "max_connections": "--connections",
        "decode_s": "--decode-s",
        "step_s": "--step-s",
    }.items():
        if name in settings:
            command += [option, str(settings[name])]
    command += ["--hash"] if settings.get("validate_hash") else []
    command += ["--by-column"] if settings.get("by_column") else []
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment(url, folder)
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def costs(settings: dict[str, Any], nginx: Nginx, folder: Path, samples: int) -> dict[str, float]:
    """What a sample costs beside its decoding, and the start of the workers, with no network."""
    plain = {**settings, "decode_s": 0.0, "step_s": 0.0, "max_connections": 32}
    folder.mkdir()
    runs = [read(plain, nginx.url, folder / f"{number}", epochs=2) for number in range(3)]
    # In the second epoch everything is here.
    seconds = statistics.median(run["ends_s"][1] - run["firsts_s"][1] for run in runs)
    return {
        "decode_s": seconds * WORKERS / (samples - settings["batch_size"]),
        "startup_s": statistics.median(run["firsts_s"][0] for run in runs),
    }


def predict(settings: dict[str, Any], measured: dict[str, float], url: str) -> dict[str, Any]:
    """What the planner says."""
    given = {**NETWORK, "step_s": 0.0, **settings, "startup_s": measured["startup_s"]}
    # A decoded sample takes as long as was said; any other, what it took without a network.
    given["decode_s"] = max(settings.get("decode_s", 0.0), measured["decode_s"])
    stream = {"remote": url}
    report = simulate(
        Setup.of({**given, "streams": [stream], "ranks": 1, "workers": WORKERS, "epochs": 1}),
        suggestions=False,
    )
    epoch = report.epochs[0]
    return {
        "samples_s": report.samples_per_s,
        "first_s": report.first_batch_s,
        "shard_bytes": epoch.shard_bytes,
        "range_bytes": epoch.range_bytes,
        "waited_s": epoch.waited_s,
    }


def measure(settings: dict[str, Any], nginx: Nginx, folder: Path, samples: int) -> dict[str, Any]:
    """What happens."""
    folder.mkdir()
    with proxy(int(nginx.url.rpartition(":")[2]), folder, LIMITED) as (url, _):
        found = read(settings, url, folder / "run")
    return {
        "samples_s": samples / found["ends_s"][0],
        "first_s": found["firsts_s"][0],
        "shard_bytes": found["shard_bytes"],
        "range_bytes": found["range_bytes"],
        "waited_s": found["waited_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shards", type=int, default=48)
    parser.add_argument("--data", type=Path, help="keep the data set here for the next time")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results: dict[str, Any] = {}
    samples = args.shards * SHARD_SAMPLES
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        data = args.data or folder / "data"
        if not (data / "bucket" / "data" / "index.json").exists():
            write(data / "bucket" / "data", samples)
        (folder / "nginx").mkdir()
        nginx = stack.enter_context(Nginx(folder / "nginx", data))
        for name in args.runs:
            settings = RUNS[name]
            own = costs(settings, nginx, folder / f"{name}-costs", samples)
            said = predict(settings, own, str(data / "bucket" / "data"))
            made = [
                measure(settings, nginx, folder / f"{name}-{number}", samples)
                for number in range(args.rounds)
            ]
            results[name] = {"costs": own, "predicted": said, "measured": made}
            print(f"{name}: {results[name]}", file=sys.stderr)
            if args.json:
                args.json.write_text(json.dumps(results, indent=1) + "\n")
    show(results)


def show(results: dict[str, Any]) -> None:
    """Predictions beside medians."""
    for name, found in results.items():
        print(f"\n{name}\n  {'':<14}{'predicted':>14}{'measured':>14}{'off':>8}")
        for what in ("samples_s", "first_s", "waited_s", "shard_bytes", "range_bytes"):
            said = found["predicted"][what]
            real = statistics.median(run[what] for run in found["measured"])
            off = f"{said / real - 1:+.1%}" if real else ""
            digits = 0 if said > 1000 or real > 1000 else 2
            print(f"  {what:<14}{said:>14,.{digits}f}{real:>14,.{digits}f}{off:>8}")


if __name__ == "__main__":
    main()
