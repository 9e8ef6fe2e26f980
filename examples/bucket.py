"""Write to a bucket and stream from it: ``python examples/bucket.py``.

Without arguments it uses an S3 server on this machine, so that it needs no account. With
``--remote s3://your-bucket/prefix`` it uses that, with the credentials that Amazon's tools would
take; docs/storage.md tells which those are, and those of other stores. Shards are uploaded while
they are written. Reading keeps no more than ``--cache-limit`` on this machine's disk.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

SAMPLES = 2000


def serve() -> None:
    """What the server's process does: print its address, and serve until a line comes in."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.readline()


@contextmanager
def bucket_on_this_machine() -> Iterator[str]:
    """The URL of a bucket of an S3 server on this machine, which ends with the context."""
    import boto3

    command = [sys.executable, __file__, "--serve"]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        # What one sets for any S3 service that isn't Amazon's.
        os.environ.update(AWS_ACCESS_KEY_ID="example", AWS_SECRET_ACCESS_KEY="example")
        os.environ.update(AWS_DEFAULT_REGION="us-east-1", S3_ENDPOINT_URL=url)
        boto3.client("s3", endpoint_url=url).create_bucket(Bucket="example")
        try:
            yield "s3://example/train"
        finally:
            server.communicate("stop\n")


def write(remote: str) -> None:
    """Write vectors to the bucket, in shards of 256 KiB. The index comes last."""
    columns = {"id": "int", "vector": "ndarray:float32:256"}
    with MDSWriter(out=remote, columns=columns, hashes=["sha1"], size_limit=1 << 18) as out:
        for number in range(SAMPLES):
            vector = np.random.default_rng(number).normal(size=256).astype(np.float32)
            out.write({"id": number, "vector": vector})


def read(remote: str, local: Path, cache_limit: str) -> list[int]:
    """The ids of one epoch's samples, each checked against what was written."""
    dataset = StreamingDataset(
        remote=remote,
        local=str(local),
        cache_limit=cache_limit,
        validate_hash="sha1",
        shuffle=True,
        batch_size=20,
    )
    ids: list[int] = []
    for batch in StreamingDataLoader(dataset, batch_size=20, num_workers=2):
        for number, vector in zip(batch["id"].tolist(), batch["vector"].numpy(), strict=True):
            expected = np.random.default_rng(number).normal(size=256).astype(np.float32)
            assert np.array_equal(vector, expected), number
            ids.append(number)
    return ids


def demonstrate(remote: str, cache_limit: str) -> None:
    write(remote)
    with tempfile.TemporaryDirectory() as folder:
        ids = read(remote, Path(folder, "cache"), cache_limit)
    print(f"{len(ids):,} samples streamed from {remote}")
    print("each once:", "yes" if sorted(ids) == list(range(SAMPLES)) else "NO")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--remote", help="s3://bucket/prefix; a server on this machine if not given"
    )
    parser.add_argument("--cache-limit", default="1.5mb", help="most bytes kept on disk")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
    elif args.remote:
        demonstrate(args.remote, args.cache_limit)
    else:
        with bucket_on_this_machine() as remote:
            demonstrate(remote, args.cache_limit)


if __name__ == "__main__":
    main()
