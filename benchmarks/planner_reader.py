"""One real run for planner.py: read a data set out of a bucket, and say how that went.

    python planner_reader.py URL CACHE [--workers N] [--batch-size N] [--decode-s S] [--step-s S]
        [--seed N] [--shuffle-block-size N] [--connections N] [--hash] [--epochs N]
        [--by-column] [--epoch-size N]

Prints, as JSON: seconds from the constructor to each epoch's first batch and to its end, the
number of batches, seconds that the loop waited for them, and the bytes that were fetched. Decoding
a sample, and training a step, take as long as is said, whatever this machine does meanwhile.
"""

import argparse
import json
import time
from typing import Any

import torch.utils.data  # noqa: F401

from streaming import StreamingDataLoader, StreamingDataset


class Decoded(StreamingDataset):
    """Samples that take a time to decode."""

    def __init__(self, decode_s: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.decode_s = decode_s

    def __getitem__(self, at: Any) -> Any:
        began = time.perf_counter()
        sample = super().__getitem__(at)
        while time.perf_counter() - began < self.decode_s:
            pass
        return sample


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("cache")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--decode-s", type=float, default=0.0)
    parser.add_argument("--step-s", type=float, default=0.0)
    parser.add_argument("--shuffle-block-size", type=int)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--hash", action="store_true")
    parser.add_argument("--by-column", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--epoch-size", type=int)
    args = parser.parse_args()
    began = time.perf_counter()
    arguments = {
        "remote": args.url,
        "local": args.cache,
        "batch_size": args.batch_size,
        "shuffle": args.shuffle_block_size is not None,
        "shuffle_block_size": args.shuffle_block_size,
        "max_connections": args.connections,
        "validate_hash": "xxh3_64" if args.hash else None,
        "epoch_size": args.epoch_size,
    }
    dataset: Any
    if args.by_column:
        dataset = StreamingDataset(**arguments)
    else:
        dataset = Decoded(args.decode_s, **arguments)
    loader = StreamingDataLoader(
        dataset, batch_size=args.batch_size, num_workers=args.workers, prefetch_factor=2
    )
    firsts: list[float] = []
    ends: list[float] = []
    waited, batches = 0.0, 0
    for epoch in range(args.epochs):
        asked = time.perf_counter()
        for _ in loader:
            now = time.perf_counter()
            if len(firsts) == epoch:
                firsts.append(now - began)
            waited += now - asked
            batches += 1
            if args.step_s:
                time.sleep(args.step_s)
            asked = time.perf_counter()
        ends.append(time.perf_counter() - began)
    stats = dataset.stats()
    found = {
        "firsts_s": firsts,
        "ends_s": ends,
        "waited_s": waited,
        "batches": batches,
        "shard_bytes": stats["bytes_fetched"],
        "range_bytes": stats["bytes_fetched_by_range"],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
