"""One reader over one data set, in the reader's own environment: see hot.py.

    python hot_reader.py write READER WORKLOAD FOLDER
    python hot_reader.py read READER WORKLOAD FOLDER WORKERS SECONDS

Reading prints the samples a second of shuffled batches of 32, after a first epoch that warms the
page cache.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

BATCH_SIZE = 32
COUNTS = {"tokens": 40_000, "small": 400_000, "images": 4_000}
WIDTH = 2048
IMAGE_BYTES = 110_000


def samples(workload: str) -> Iterator[dict[str, Any]]:
    """The samples of a workload, the same for every reader."""
    rng = np.random.default_rng(0)
    for number in range(COUNTS[workload]):
        if workload == "tokens":
            yield {"tokens": rng.integers(0, 50_000, WIDTH, dtype=np.int32)}
        elif workload == "small":
            yield {"id": number, "text": f"sample {number}"}
        else:
            yield {"image": rng.bytes(IMAGE_BYTES), "label": number}


# Readers: each writes a data set in its own format, and opens it as batches.


def mds_write(workload: str, out: Path) -> None:
    from streaming import MDSWriter

    columns = {
        "tokens": {"tokens": f"ndarray:int32:{WIDTH}"},
        "small": {"id": "int", "text": "str"},
        "images": {"image": "bytes", "label": "int"},
    }[workload]
    with MDSWriter(out=str(out), columns=columns) as writer:
        for sample in samples(workload):
            writer.write(sample)


def mds_open(workload: str, out: Path, workers: int) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    from streaming import StreamingDataset

    dataset = StreamingDataset(local=str(out), batch_size=BATCH_SIZE, shuffle=True)
    return DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=workers)


def mds_open_own(workload: str, out: Path, workers: int) -> Iterable[Any]:
    from streaming import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(local=str(out), batch_size=BATCH_SIZE, shuffle=True)
    return StreamingDataLoader(dataset, batch_size=BATCH_SIZE, num_workers=workers)


def litdata_write(workload: str, out: Path) -> None:
    from litdata.streaming.writer import BinaryWriter

    out.mkdir(parents=True)
    writer = BinaryWriter(str(out), chunk_bytes="64MB")
    for number, sample in enumerate(samples(workload)):
        writer.add_item(number, sample)
    writer.done()
    writer.merge()


def litdata_open(workload: str, out: Path, workers: int) -> Iterable[Any]:
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(str(out), shuffle=True)
    return StreamingDataLoader(dataset, batch_size=BATCH_SIZE, num_workers=workers)


def webdataset_write(workload: str, out: Path) -> None:
    import webdataset as wds

    out.mkdir(parents=True)
    names = {"tokens": "npy", "id": "cls", "text": "txt", "image": "bin", "label": "cls"}
    with wds.ShardWriter(f"{out}/shard-%05d.tar", maxsize=64 << 20, verbose=0) as writer:
        for number, sample in enumerate(samples(workload)):
            renamed = {names[name]: value for name, value in sample.items()}
            writer.write({"__key__": f"{number:09}", **renamed})


def webdataset_open(workload: str, out: Path, workers: int) -> Iterable[Any]:
    import webdataset as wds

    names = {"tokens": ("npy",), "small": ("cls", "txt"), "images": ("bin", "cls")}[workload]
    shards = sorted(map(str, out.glob("*.tar")))
    dataset = wds.WebDataset(shards, shardshuffle=len(shards), empty_check=False)
    dataset = dataset.shuffle(5000).decode().to_tuple(*names).batched(BATCH_SIZE)
    return wds.WebLoader(dataset, batch_size=None, num_workers=workers)


def huggingface_write(workload: str, out: Path) -> None:
    from datasets import Dataset

    Dataset.from_generator(samples, gen_kwargs={"workload": workload}).save_to_disk(str(out))


def huggingface_open(workload: str, out: Path, workers: int) -> Iterable[Any]:
    from datasets import load_from_disk
    from torch.utils.data import DataLoader

    dataset = load_from_disk(str(out))
    dataset = dataset.with_format("torch" if workload == "tokens" else None)
    return DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=workers)


def memmap_write(workload: str, out: Path) -> None:
    out.mkdir(parents=True)
    np.concatenate([sample["tokens"] for sample in samples(workload)]).tofile(out / "tokens.bin")


def memmap_open(workload: str, out: Path, workers: int) -> Iterable[Any]:
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Tokens(Dataset):
        def __init__(self) -> None:
            self.tokens = np.memmap(out / "tokens.bin", np.int32, "r").reshape(-1, WIDTH)

        def __len__(self) -> int:
            return len(self.tokens)

        def __getitem__(self, at: int) -> Any:
            return torch.from_numpy(np.array(self.tokens[at]))

    return DataLoader(Tokens(), batch_size=BATCH_SIZE, shuffle=True, num_workers=workers)


READERS: dict[
    str, tuple[Callable[[str, Path], None], Callable[[str, Path, int], Iterable[Any]]]
] = {
    "shardstream": (mds_write, mds_open_own),
    "shardstream, plain DataLoader": (mds_write, mds_open),
    "mosaicml-streaming": (mds_write, mds_open),
    "litdata": (litdata_write, litdata_open),
    "webdataset": (webdataset_write, webdataset_open),
    "datasets": (huggingface_write, huggingface_open),
    "memmap": (memmap_write, memmap_open),
}


def measure(loader: Iterable[Any], seconds: float) -> float:
    """Samples a second, from the second batch of an epoch on, for about so long."""
    for _ in loader:  # warms the page cache; its time does not count
        pass
    batches = iter(loader)
    next(batches)
    started = time.perf_counter()
    count = 0
    while time.perf_counter() - started < seconds and next(batches, None) is not None:
        count += 1
    return count * BATCH_SIZE / (time.perf_counter() - started)


def main() -> None:
    action, reader, workload, folder = sys.argv[1:5]
    write, open_batches = READERS[reader]
    out = Path(folder)
    if action == "write":
        write(workload, out)
        return
    workers, seconds = int(sys.argv[5]), float(sys.argv[6])
    print(measure(open_batches(workload, out, workers), seconds))


if __name__ == "__main__":
    main()
