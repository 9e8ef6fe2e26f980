"""Write, stream, train, interrupt and resume: the whole path on real data.

Run it with ``python examples/digits.py``; ``--s3`` sends everything through an S3 server on this
machine, and ``--s3 --faults 0.05`` lets 5 % of its answers be errors. It takes the 1,797
handwritten digits that scikit-learn ships and

1. writes them as compressed shards of PNG images to a "remote" place,
2. streams them into a small network, shuffled, with two loader workers,
3. breaks off in the middle of an epoch and saves a checkpoint of the model and the loader,
4. resumes in a new process, and compares its batches with those of a run that was not interrupted.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from tqdm import tqdm

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

BATCH_SIZE = 32
EPOCHS = 12
BREAK_EPOCH, BREAK_BATCH = 2, 20


# 1. Writing.


def write_digits(remote: str) -> None:
    """Convert the digits: four fifths of them to train on, and one to test with."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    held_out = len(order) // 5
    for split, numbers in (("test", order[:held_out]), ("train", order[held_out:])):
        with MDSWriter(
            out=f"{remote}/{split}",
            columns={"id": "int", "image": "png", "label": "int"},
            compression="zstd",
            hashes=["sha1"],
            size_limit="16kb",
        ) as writer:
            for number in tqdm(numbers.tolist(), desc=f"Writing {split}", unit=" samples"):
                pixels = (digits.images[number] * 15.9).astype(np.uint8)
                label = int(digits.target[number])
                writer.write({"id": number, "image": Image.fromarray(pixels), "label": label})


# 2. Streaming: subclass to transform samples.


class Digits(StreamingDataset):
    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        pixels = torch.from_numpy(np.array(sample["image"], dtype=np.float32)) / 255
        return sample["id"], pixels, sample["label"]


def open_loader(remote: str, local: str, split: str, shuffle: bool) -> StreamingDataLoader:
    dataset = Digits(
        remote=f"{remote}/{split}",
        local=f"{local}/{split}",
        batch_size=BATCH_SIZE,
        shuffle=shuffle,
        validate_hash="sha1",
        download_retry=6,
    )
    return StreamingDataLoader(dataset, batch_size=BATCH_SIZE, num_workers=2)


# 3. Training, with checkpoints.


class Trainer:
    def __init__(self, remote: str, local: str) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)  # more would wait for one another longer than they compute
        self.loader = open_loader(remote, local, "train", shuffle=True)
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.batches: list[list[int]] = []

    def train_epoch(self, epoch: int, after_batch: Callable[[int], None] = lambda n: None) -> None:
        progress = tqdm(self.loader, desc=f"Epoch {epoch:2}", unit=" batches", leave=False)
        for number, (ids, pixels, labels) in enumerate(progress, 1):
            loss = nn.functional.cross_entropy(self.model(pixels), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.batches.append(ids.tolist())
            progress.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
            after_batch(number)

    def save(self, path: Path) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),
        }
        torch.save(state, path)

    def load(self, path: Path) -> None:
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])

    def accuracy(self, remote: str, local: str) -> float:
        right = count = 0
        for _, pixels, labels in open_loader(remote, local, "test", shuffle=False):
            right += int((self.model(pixels).argmax(1) == labels).sum())
            count += len(labels)
        return right / count


def train(remote: str, local: str, checkpoint: Path) -> tuple[Trainer, int, float]:
    """Train without a break, leaving a checkpoint in the middle of an epoch on the way."""
    trainer = Trainer(remote, local)
    started, seen_before = time.perf_counter(), 0
    for epoch in range(EPOCHS):

        def after_batch(number: int, epoch: int = epoch) -> None:
            nonlocal seen_before
            if (epoch, number) == (BREAK_EPOCH, BREAK_BATCH):
                trainer.save(checkpoint)
                seen_before = len(trainer.batches)

        trainer.train_epoch(epoch, after_batch)
    return trainer, seen_before, time.perf_counter() - started


def resume(remote: str, local: str, checkpoint: Path) -> None:
    """What the new process does: finish the epoch that was broken off, and tell its batches."""
    trainer = Trainer(remote, local)
    trainer.load(checkpoint)
    trainer.train_epoch(BREAK_EPOCH)
    checkpoint.with_suffix(".json").write_text(json.dumps(trainer.batches))


# 4. The demonstration around it.


class Unreliable:
    """A web application of which a share of the answers are errors; counts both."""

    def __init__(self, app: Callable[..., Any], faults: float) -> None:
        self.app = app
        self.faults = faults
        self.dice = random.Random(0)
        self.answers = self.failed = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        self.answers += 1
        if self.dice.random() < self.faults:
            self.failed += 1
            start_response("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        return self.app(environ, start_response)


def serve_s3(faults: float) -> None:
    """What the server's process does: print its address, serve until a line comes in, count."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, *args: Any) -> None:
            pass

    app = Unreliable(DomainDispatcherApplication(create_backend_app), faults)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.readline()  # not its end: forked workers inherit the pipe, and could keep it open
    print(f"{app.failed}, after errors in {app.answers} answers")


@contextmanager
def s3_server(faults: float) -> Iterator[dict[str, str]]:
    """A real S3 API on this machine, in which a share of the requests fails.

    It has a process of its own: loader workers that are forked should not inherit its connections.
    """
    import boto3
    from botocore.config import Config

    command = [sys.executable, __file__, "--serve", str(faults)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        os.environ.update(AWS_ACCESS_KEY_ID="demo", AWS_SECRET_ACCESS_KEY="demo")
        os.environ.update(AWS_DEFAULT_REGION="us-east-1", S3_ENDPOINT_URL=url)
        patient = Config(retries={"max_attempts": 10})
        boto3.client("s3", endpoint_url=url, config=patient).create_bucket(Bucket="digits")
        counts: dict[str, str] = {}
        try:
            yield counts
        finally:
            # Each error was tried again: by the writer, the loader, or the resumed process.
            counts["retries"] = server.communicate("stop\n")[0].strip()


def demonstrate(remote: str, folder: Path) -> dict[str, str]:
    """Do it all, and tell the figures of the final table."""
    write_digits(remote)
    local, checkpoint = str(folder / "cache"), folder / "checkpoint.pt"
    trainer, seen_before, seconds = train(remote, local, checkpoint)
    accuracy = trainer.accuracy(remote, local)

    command = [sys.executable, __file__, "--resume", str(checkpoint), "--remote", remote]
    subprocess.run([*command, "--local", str(folder / "other-cache")], check=True)
    resumed = json.loads(checkpoint.with_suffix(".json").read_text())
    unbroken = trainer.batches[seen_before : seen_before + len(resumed)]
    if resumed != unbroken or not resumed:
        sys.exit("The resumed run saw other batches than the unbroken one.")
    if accuracy < 0.95:
        sys.exit(f"The network learned to only {accuracy:.1%}.")

    stats = trainer.loader.dataset.stats()
    return {
        "accuracy on held-out digits": f"{accuracy:.1%}",
        "samples a second": f"{stats['samples'] / seconds:,.0f}",
        "bytes downloaded": f"{stats['bytes_fetched']:,}",
        "shards downloaded": f"{stats['shards_fetched']}",
        "cache hits": f"{stats['cache_hits']}",
        f"batches after the checkpoint ({len(resumed)})": "the same as unbroken",
    }


def print_table(rows: dict[str, str]) -> None:
    width = max(map(len, rows))
    print()
    for name, value in rows.items():
        print(f"  {name:<{width}}  {value}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--s3", action="store_true", help="go through an S3 server")
    parser.add_argument("--faults", type=float, default=0.0, help="share of S3 requests that fail")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--resume", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--remote", help=argparse.SUPPRESS)
    parser.add_argument("--local", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.resume:
        resume(args.remote, args.local, args.resume)
        return
    if args.serve is not None:
        serve_s3(args.serve)
        return
    with tempfile.TemporaryDirectory() as folder:
        if args.s3:
            with s3_server(args.faults) as counts:
                rows = demonstrate("s3://digits/v1", Path(folder))
            rows.update(counts)
        else:
            rows = demonstrate(f"{folder}/remote", Path(folder))
    print_table(rows)


if __name__ == "__main__":
    main()
