"""One reader over one data set in a bucket, in the reader's own environment: see cold.py.

    python cold_reader.py write FORMAT FOLDER SAMPLES
    python cold_reader.py read READER URL CACHE [--workers N] [--shuffle] [--seconds S]
        [--epoch-size N] [--check]

Reading prints, as JSON: seconds from the constructor to the first batch; seconds and samples until
the epoch's end, or until so many seconds after the first batch; the CPU seconds of the process and
its workers; and, with ``--check``, how many samples were wrong or double.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

BATCH_SIZE = 32
WIDTH = 2048
SAMPLE_BYTES = WIDTH * 4
SHARD_BYTES = 64 << 20


def sample(number: int) -> dict[str, Any]:
    """Tokens that say which sample they are, and end with their sum."""
    tokens = np.random.default_rng(number).integers(0, 50_000, WIDTH, dtype=np.int32)
    tokens[0] = number
    tokens[-1] = tokens[:-1].sum(dtype=np.int64) % (1 << 31)
    return {"tokens": tokens}


def mds_write(out: Path, samples: int) -> None:
    from streaming import MDSWriter

    columns = {"tokens": f"ndarray:int32:{WIDTH}"}
    with MDSWriter(out=str(out), columns=columns, size_limit=SHARD_BYTES) as writer:
        for number in range(samples):
            writer.write(sample(number))


def litdata_write(out: Path, samples: int) -> None:
    from litdata.streaming.writer import BinaryWriter

    out.mkdir(parents=True)
    writer = BinaryWriter(str(out), chunk_bytes="64MB")
    for number in range(samples):
        writer.add_item(number, sample(number))
    writer.done()
    writer.merge()


def shardstream_open(args: argparse.Namespace) -> Iterable[Any]:
    from streaming import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(
        remote=args.url,
        local=args.cache,
        batch_size=BATCH_SIZE,
        shuffle=args.shuffle,
        epoch_size=args.epoch_size,
    )
    return StreamingDataLoader(dataset, batch_size=BATCH_SIZE, num_workers=args.workers)


def mosaicml_open(args: argparse.Namespace) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    from streaming import StreamingDataset

    dataset = StreamingDataset(
        remote=args.url,
        local=args.cache,
        batch_size=BATCH_SIZE,
        shuffle=args.shuffle,
        epoch_size=args.epoch_size,
    )
    return DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=args.workers)


def litdata_open(args: argparse.Namespace) -> Iterable[Any]:
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(
        args.url,
        cache_dir=args.cache,
        shuffle=args.shuffle,
        storage_options={
            "endpoint_url": os.environ["AWS_ENDPOINT_URL_S3"],
            "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        },
    )
    return StreamingDataLoader(dataset, batch_size=BATCH_SIZE, num_workers=args.workers)


def shardstream_import() -> None:
    import torch.utils.data  # noqa: F401

    from streaming import StreamingDataLoader, StreamingDataset  # noqa: F401


def litdata_import() -> None:
    import obstore.store

    class PlainS3Store(obstore.store.S3Store):
        """LitData passes boto3's options on, among which none allows http://."""

        def __new__(cls, *args: Any, **options: Any) -> Any:
            options["client_options"] = {**options.get("client_options", {}), "allow_http": True}
            return super().__new__(cls, *args, **options)

    obstore.store.S3Store = PlainS3Store
    from litdata import StreamingDataLoader, StreamingDataset  # noqa: F401


WRITERS: dict[str, Callable[[Path, int], None]] = {"mds": mds_write, "litdata": litdata_write}
READERS: dict[str, tuple[Callable[[], None], Callable[[argparse.Namespace], Iterable[Any]]]] = {
    "shardstream": (shardstream_import, shardstream_open),
    "mosaicml-streaming": (shardstream_import, mosaicml_open),
    "litdata": (litdata_import, litdata_open),
}


def cpu_s() -> float:
    """What this process and its children that have ended took, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def read(args: argparse.Namespace) -> dict[str, float]:
    import_names, open_batches = READERS[args.reader]
    import_names()
    cpu_before, began = cpu_s(), time.perf_counter()
    batches = iter(open_batches(args))
    first_s, count, numbers, wrong, is_whole = 0.0, 0, [], 0, True
    for batch in batches:
        tokens = batch["tokens"]
        now_s = time.perf_counter() - began
        first_s = first_s or now_s
        count += len(tokens)
        if args.check:
            data = tokens.numpy()
            numbers.append(data[:, 0].copy())
            sums = data[:, :-1].sum(1, dtype=np.int64) % (1 << 31)
            wrong += int((sums != data[:, -1]).sum())
        if now_s - first_s > args.seconds:
            is_whole = False
            break
    seconds = time.perf_counter() - began
    del batches  # its workers end, and their time is added up
    found = {
        "first_batch_s": first_s,
        "seconds": seconds,
        "samples": count,
        "is_whole": is_whole,
        "cpu_s": cpu_s() - cpu_before,
    }
    if args.check:
        seen = np.concatenate(numbers)
        found["wrong"] = wrong
        found["double"] = len(seen) - len(np.unique(seen))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    write = actions.add_parser("write")
    write.add_argument("format", choices=WRITERS)
    write.add_argument("folder", type=Path)
    write.add_argument("samples", type=int)
    reading = actions.add_parser("read")
    reading.add_argument("reader", choices=READERS)
    reading.add_argument("url")
    reading.add_argument("cache")
    reading.add_argument("--workers", type=int, default=0)
    reading.add_argument("--shuffle", action="store_true")
    reading.add_argument("--seconds", type=float, default=1e9)
    reading.add_argument("--epoch-size", type=int)
    reading.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.action == "write":
        WRITERS[args.format](args.folder, args.samples)
    else:
        print(json.dumps(read(args)))


if __name__ == "__main__":
    main()
