"""One reader over one data set, in the reader's own environment: see hot.py.

    python hot_reader.py write READER WORKLOAD FOLDER COUNT
    python hot_reader.py read READER WORKLOAD FOLDER SECONDS WORKERS...

Each prints a line of JSON for each case, as it is found. Files are read once before, so that the
page cache holds them.
"""

import inspect
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from hot_data import WIDTH, decode, samples

BATCH_SIZE = 32
UNAVAILABLE = 3
"""The exit status of a reader that this release doesn't have."""
PHOTOGRAPHS = "photographs"
"""A folder beside the readers' own that holds the JPEGs."""

Open = Callable[[str, Path, int], Iterable[Any]]


def workers_of(workers: int) -> dict[str, Any]:
    return {"num_workers": workers, "persistent_workers": workers > 0}


# Ours, and mosaicml-streaming, which is read by the same code.


def mds_write(workload: str, out: Path, data: list[dict[str, Any]]) -> None:
    from streaming import MDSWriter

    columns = {
        "tokens": {"tokens": f"ndarray:int32:{WIDTH}"},
        "small": {"id": "int", "text": "str"},
        "images": {"image": "bytes", "label": "int"},
        "jpeg": {"image": "jpeg", "label": "int"},
    }[workload]
    with MDSWriter(out=str(out), columns=columns) as writer:
        for sample in data:
            writer.write(sample)


def mds_dataset(workload: str, out: Path, shuffle: bool = True) -> Any:
    from streaming import StreamingDataset

    class Decoded(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: Any) -> Any:
            sample = super().__getitem__(at)
            return {"image": np.array(sample["image"]), "label": sample["label"]}

    kind = Decoded if workload == "jpeg" else StreamingDataset
    return kind(local=str(out), batch_size=BATCH_SIZE, shuffle=shuffle)


def mds_open(workload: str, out: Path, workers: int) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    dataset = mds_dataset(workload, out)
    return DataLoader(dataset, batch_size=BATCH_SIZE, **workers_of(workers))


def mds_open_own(
    workload: str, out: Path, workers: int, shuffle: bool = True, **options: Any
) -> Iterable[Any]:
    from streaming import StreamingDataLoader

    dataset = mds_dataset(workload, out, shuffle)
    return StreamingDataLoader(dataset, batch_size=BATCH_SIZE, **workers_of(workers), **options)


def mds_open_threads(workload: str, out: Path, workers: int) -> Iterable[Any]:
    from streaming import StreamingDataLoader

    if "worker_type" not in inspect.signature(StreamingDataLoader).parameters:
        raise SystemExit(UNAVAILABLE)
    return mds_open_own(workload, out, workers, worker_type="thread")


def mds_open_in_order(workload: str, out: Path, workers: int) -> Iterable[Any]:
    return mds_open_own(workload, out, workers, shuffle=False)


# Others.


def litdata_write(workload: str, out: Path, data: list[dict[str, Any]]) -> None:
    from litdata.streaming.writer import BinaryWriter

    out.mkdir(parents=True)
    writer = BinaryWriter(str(out), chunk_bytes="64MB")
    for number, sample in enumerate(data):
        writer.add_item(number, sample)
    writer.done()
    writer.merge()


def litdata_dataset(workload: str, out: Path) -> Any:
    from litdata import StreamingDataset

    # It gives bytes as a memoryview, of which torch's collate makes a tensor for every byte.
    make = {"images": bytes, "jpeg": decode}.get(workload)

    class Made(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: Any) -> Any:
            sample = super().__getitem__(at)
            return {"image": make(sample["image"]), "label": sample["label"]}

    return (Made if make else StreamingDataset)(str(out), shuffle=True)


def litdata_open(workload: str, out: Path, workers: int) -> Iterable[Any]:
    from litdata import StreamingDataLoader

    dataset = litdata_dataset(workload, out)
    return StreamingDataLoader(dataset, batch_size=BATCH_SIZE, **workers_of(workers))


def webdataset_write(workload: str, out: Path, data: list[dict[str, Any]]) -> None:
    import webdataset as wds

    out.mkdir(parents=True)
    names = {"tokens": "npy", "id": "cls", "text": "txt", "image": "bin", "label": "cls"}
    with wds.ShardWriter(f"{out}/shard-%05d.tar", maxsize=64 << 20, verbose=0) as writer:
        for number, sample in enumerate(data):
            renamed = {names[name]: value for name, value in sample.items()}
            writer.write({"__key__": f"{number:09}", **renamed})


def webdataset_open(workload: str, out: Path, workers: int) -> Iterable[Any]:
    import webdataset as wds

    image = ("bin", "cls")
    names = {"tokens": ("npy",), "small": ("cls", "txt"), "images": image, "jpeg": image}[workload]
    shards = sorted(map(str, out.glob("*.tar")))
    dataset = wds.WebDataset(shards, shardshuffle=len(shards), empty_check=False)
    dataset = dataset.shuffle(1000).decode().to_tuple(*names)
    if workload == "jpeg":
        dataset = dataset.map(lambda sample: (decode(sample[0]), sample[1]))
    return wds.WebLoader(dataset.batched(BATCH_SIZE), batch_size=None, **workers_of(workers))


def huggingface_write(workload: str, out: Path, data: list[dict[str, Any]]) -> None:
    from datasets import Dataset

    Dataset.from_generator(lambda: iter(data)).save_to_disk(str(out))


def huggingface_dataset(workload: str, out: Path) -> Any:
    from datasets import load_from_disk

    dataset = load_from_disk(str(out))
    if workload == "jpeg":
        return dataset.with_transform(
            lambda batch: {**batch, "image": [decode(data) for data in batch["image"]]}
        )
    return dataset.with_format("torch" if workload == "tokens" else None)


def huggingface_open(workload: str, out: Path, workers: int) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    dataset = huggingface_dataset(workload, out)
    return DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, **workers_of(workers))


def memmap_write(workload: str, out: Path, data: list[dict[str, Any]]) -> None:
    out.mkdir(parents=True)
    with open(out / "tokens.bin", "wb") as file:
        for sample in data:
            file.write(sample["tokens"])


class Memmap:
    """Tokens in one array on disk."""

    def __init__(self, out: Path) -> None:
        self.tokens = np.memmap(out / "tokens.bin", np.int32, "r").reshape(-1, WIDTH)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, at: int) -> Any:
        import torch

        return torch.from_numpy(np.array(self.tokens[at]))


def memmap_open(workload: str, out: Path, workers: int) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    return DataLoader(Memmap(out), batch_size=BATCH_SIZE, shuffle=True, **workers_of(workers))


class DecoderAlone:
    """Decodes JPEGs that are in memory, in so many processes, and hands nothing on."""

    def __init__(self, out: Path, workers: int) -> None:
        files = sorted((out.parent / PHOTOGRAPHS).glob("*.jpg"))
        self.data = [file.read_bytes() for file in files]
        self.workers = workers
        self.done = multiprocessing.Value("q", 0)

    def _work(self) -> None:
        for _ in self._batches():
            with self.done.get_lock():
                self.done.value += 1

    def _batches(self) -> Iterator[Any]:
        while True:
            for _ in range(BATCH_SIZE):
                decode(random.choice(self.data))
            yield None

    def __iter__(self) -> Iterator[Any]:
        if not self.workers:
            yield from self._batches()
        fork = multiprocessing.get_context("fork")
        for _ in range(self.workers):
            fork.Process(target=self._work, daemon=True).start()
        seen = 0
        while True:
            while self.done.value <= seen:
                time.sleep(0.0005)
            seen += 1
            yield None


READERS: dict[str, tuple[Callable[[str, Path, list[dict[str, Any]]], None] | None, Open]] = {
    "shardstream": (mds_write, mds_open_own),
    "shardstream, threads": (None, mds_open_threads),
    "shardstream, plain DataLoader": (None, mds_open),
    "shardstream, in order": (None, mds_open_in_order),
    "mosaicml-streaming": (mds_write, mds_open),
    "litdata": (litdata_write, litdata_open),
    "webdataset": (webdataset_write, webdataset_open),
    "datasets": (huggingface_write, huggingface_open),
    "memmap": (memmap_write, memmap_open),
    "decoder alone": (None, lambda workload, out, workers: DecoderAlone(out, workers)),
}
BY_NUMBER: dict[str, Callable[[str, Path], Any]] = {
    "shardstream": mds_dataset,
    "mosaicml-streaming": mds_dataset,
    "litdata": litdata_dataset,
    "datasets": huggingface_dataset,
    "memmap": lambda workload, out: Memmap(out),
}
"""Data sets whose samples can be had by their numbers."""


# Measuring.


def children() -> list[int]:
    """The processes that this one has started."""
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            found += map(int, task.read_text().split())
    return found


def cpu_s() -> float:
    """Seconds of the CPU that this process and its workers have taken."""
    ticks = 0
    for pid in (os.getpid(), *children()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mb() -> float:
    """Memory of this process and its workers, in MB; what they share is counted once."""
    total = 0
    for pid in (os.getpid(), *children()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))
    return total / 1000


def warm(out: Path) -> None:
    for file in out.rglob("*"):
        if file.is_file():
            file.read_bytes()


def read(loader: Iterable[Any], workers: int, seconds: float) -> dict[str, float]:
    """Read for so long, epoch after epoch; beginning an epoch does not count, and is told apart."""
    skipped = 2 * workers + 2  # what is made before anyone asks
    spent = cpu = turn_s = 0.0
    batches = epochs = 0
    memory = 0.0
    while spent < seconds:
        began = time.perf_counter()
        source = iter(loader)
        next(source)
        if epochs:
            turn_s = time.perf_counter() - began
        for _ in range(skipped):
            next(source)
        cpu_before, started = cpu_s(), time.perf_counter()
        for _ in source:
            batches += 1
            if spent + time.perf_counter() - started >= seconds:
                break
        spent += time.perf_counter() - started
        cpu += cpu_s() - cpu_before
        memory = memory or memory_mb()
        epochs += 1
    count = batches * BATCH_SIZE
    return {
        "rate": count / spent,
        "cpu_us": cpu / count * 1e6,
        "memory_mb": memory,
        **({"turn_ms": turn_s * 1000} if epochs > 1 else {}),
    }


def read_at_random(dataset: Any, seconds: float) -> dict[str, float]:
    order = random.Random(0)
    size, count, started = len(dataset), 0, time.perf_counter()
    at_once = 1
    while (spent := time.perf_counter() - started) < seconds:
        if spent < seconds / 100:  # so that looking at the clock does not count
            at_once = min(2 * at_once, 200)
        for at in [order.randrange(size) for _ in range(at_once)]:
            dataset[at]
        count += at_once
    return {"rate": count / spent}


def tell(case: str, numbers: dict[str, float]) -> None:
    print(json.dumps({case: numbers}), flush=True)


def main() -> None:
    action, reader, workload, folder = sys.argv[1:5]
    out = Path(folder)
    write, open_batches = READERS[reader]
    if action == "write":
        data = list(samples(workload, int(sys.argv[5]), out.parent / PHOTOGRAPHS))
        started = time.perf_counter()
        assert write is not None
        write(workload, out, data)
        tell("writing", {"rate": len(data) / (time.perf_counter() - started)})
    else:
        warm(out)
        seconds = float(sys.argv[5])
        for workers in map(int, sys.argv[6:]):
            if workers or open_batches is not mds_open_threads:
                loader = open_batches(workload, out, workers)
                tell(f"{workers} workers", read(loader, workers, seconds))
                del loader
        if reader in BY_NUMBER:
            tell("by number", read_at_random(BY_NUMBER[reader](workload, out), seconds))
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    os._exit(0)  # whatever threads there still are


if __name__ == "__main__":
    main()
