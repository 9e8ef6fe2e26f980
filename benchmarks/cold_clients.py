"""Clients of S3 beside one another: throughput, and what a gigabyte costs of the CPU.

    python benchmarks/cold_clients.py [--rounds 3] [--connections 8 16] [--shards 14]
        [--piece 8] [--json FILE]

Each client reads all shards of a bucket in pieces (MiB), over so many connections, and writes them
to files, as fetching does. nginx on loopback is the bucket: without limits, and behind a proxy with
20 MB/s a connection and 30 ms to the first byte. Clients: this library's store, boto3, and, in an
environment of its own, obstore.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CLIENTS = ["shardstream", "boto3", "obstore"]

Read = Callable[[str, int, int, Any, int], None]
"""Reads [start, stop) of a key, and writes it to a file descriptor at a place."""


def shardstream_client(url: str) -> Read:
    from streaming.storage import store_for

    store = store_for("s3://bucket/shards", endpoint_url=url)

    def read(key: str, start: int, stop: int, fd: int, at: int) -> None:
        with store.open(key, start, stop) as body:
            for chunk in body:
                at += os.pwrite(fd, chunk, at)

    return read


def boto3_client(url: str) -> Read:
    import boto3
    from botocore.config import Config

    config = Config(max_pool_connections=64, response_checksum_validation="when_required")
    api = boto3.client("s3", endpoint_url=url, config=config)

    def read(key: str, start: int, stop: int, fd: int, at: int) -> None:
        span = f"bytes={start}-{stop - 1}"
        body = api.get_object(Bucket="bucket", Key=f"shards/{key}", Range=span)["Body"]
        while chunk := body.read(1 << 18):
            at += os.pwrite(fd, chunk, at)

    return read


def obstore_client(url: str) -> Read:
    import obstore
    from obstore.store import S3Store

    options = {"allow_http": True}
    store = S3Store("bucket", prefix="shards", endpoint=url, client_options=options)

    def read(key: str, start: int, stop: int, fd: int, at: int) -> None:
        data = obstore.get_range(store, key, start=start, end=stop)
        os.pwrite(fd, memoryview(data), at)

    return read


MAKE = {"shardstream": shardstream_client, "boto3": boto3_client, "obstore": obstore_client}


def read_all(client: str, url: str, out: Path, shards: int, size: int, args: list[int]) -> None:
    """Read everything, and print seconds and CPU seconds."""
    import resource
    import time
    from concurrent.futures import ThreadPoolExecutor

    connections, piece = args
    read = MAKE[client](url)
    names = [f"{number}" for number in range(shards)]
    files = [os.open(out / name, os.O_RDWR | os.O_CREAT) for name in names]
    for fd in files:
        os.posix_fallocate(fd, 0, size)
    read(names[0], 0, 1000, files[0], 0)  # imports, credentials and models do not count
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        done = [
            pool.submit(read, name, start, min(size, start + piece), fd, start)
            for name, fd in zip(names, files, strict=True)
            for start in range(0, size, piece)
        ]
        for future in done:
            future.result()
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        json.dumps(
            {"mb_s": shards * size / 1e6 / seconds, "cpu_s_per_gb": cpu_s / (shards * size / 1e9)}
        )
    )


def python_of(client: str) -> str:
    """The interpreter that has a client."""
    if client != "obstore":
        return sys.executable
    folder = HERE / ".environments" / "obstore"
    python = str(folder / "bin" / "python")
    if not (folder / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "obstore"], check=True)
        (folder / ".ready").touch()
    return python


def measure(args: argparse.Namespace) -> dict[str, dict[str, list[Any]]]:
    """All runs, by case and client, in turns."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from cold import LIMITED, environment, proxy
    from cold_reader import SHARD_BYTES

    from tests.servers.nginx import Nginx

    results: dict[str, dict[str, list[Any]]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shards = folder / "root" / "bucket" / "shards"
        shards.mkdir(parents=True)
        for number in range(args.shards):
            (shards / f"{number}").write_bytes(os.urandom(SHARD_BYTES))
        nginx = stack.enter_context(Nginx(folder / "nginx", folder / "root"))
        port = int(nginx.url.rpartition(":")[2])
        limited, _ = stack.enter_context(proxy(port, folder, LIMITED))
        for _ in range(args.rounds):
            for network, url in (("unlimited", nginx.url), ("limited", limited)):
                for connections in args.connections:
                    case = results.setdefault(f"{network}, {connections} connections", {})
                    for client in CLIENTS:
                        with tempfile.TemporaryDirectory() as out:
                            command = [python_of(client), __file__, "--client", client, url, out]
                            command += map(str, (args.shards, SHARD_BYTES, connections))
                            home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                            done = subprocess.run(
                                [*command, str(args.piece << 20)],
                                env=environment(url, home),
                                capture_output=True,
                                text=True,
                                check=True,
                                timeout=300,
                            )
                        case.setdefault(client, []).append(json.loads(done.stdout))
    return results


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        client, url, out, shards, size, *more = sys.argv[2:]
        read_all(client, url, Path(out), int(shards), int(size), list(map(int, more)))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--shards", type=int, default=14)
    parser.add_argument("--piece", type=int, default=8, help="MiB asked for at once")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = measure(args)
    for case, by_client in results.items():
        print(f"\n{case}\n  {'':<14}{'MB/s':>8}{'CPU s/GB':>10}")
        for client, runs in by_client.items():
            rate, cpu = (
                statistics.median(run[k] for run in runs) for k in ("mb_s", "cpu_s_per_gb")
            )
            print(f"  {client:<14}{rate:>8.0f}{cpu:>10.2f}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
