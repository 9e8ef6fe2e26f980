"""Streaming data sets and their loader."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from .codec import names, outcome
from .formats import written
from .scenario import public, scenario

ARGUMENTS = (
    *("predownload", "cache_limit", "sampling_method", "sampling_granularity", "partition_algo"),
    *("num_canonical_nodes", "batch_size", "shuffle", "shuffle_algo", "shuffle_seed"),
    *("shuffle_block_size", "batching_method", "allow_unsafe_types", "replication", "epoch_size"),
    "initial_physical_nodes",
)
FACTS = (
    *("num_samples", "num_shards", "num_streams", "samples_per_shard", "samples_per_stream"),
    *("shards_per_stream", "stream_per_shard", "sample_offset_per_shard"),
    *("sample_offset_per_stream", "shard_offset_per_stream"),
)


def _ids(dataset: Any) -> list[int]:
    return [sample["n"] for sample in dataset]


def _lists(pair: Any) -> list[list[int]]:
    return [np.asarray(part).tolist() for part in pair]


@scenario("StreamingDataset")
def streaming_dataset(cls: Any, folder: Path) -> Any:
    remote, local = written(folder / "remote"), folder / "local"
    dataset = cls(remote=str(remote), local=str(local), batch_size=2, shuffle=True)
    arguments = [getattr(dataset, name) for name in ARGUMENTS]
    start = [dataset.next_epoch, dataset.size, len(dataset)]
    numbers = [
        dataset.get_item(3),
        dataset.get_item(3, retry=1),
        dataset[-1],
        [s["n"] for s in dataset[1:4]],
        [s["n"] for s in dataset[[0, 2]]],
        [s["n"] for s in dataset[np.array([1, 5])]],
        outcome(dataset.__getitem__, 7),
    ]
    units = [_lists(dataset.resample_streams(2)), _lists(dataset.resample_streams(2, 0))]
    facts = [np.asarray(getattr(dataset, name)).tolist() for name in FACTS]
    epochs = [_ids(dataset), _ids(dataset), dataset.next_epoch]
    states = [dataset.state_dict(2, True), dataset.state_dict(4, False)]
    resumed = cls(local=str(remote), batch_size=2, shuffle=True)
    resumed.load_state_dict(states[0])
    return [
        *(start, numbers, units, facts, arguments, epochs, states),
        [_ids(resumed), _ids(resumed), resumed.next_epoch],
        [list(map(int, dataset.spanner[4])), len(dataset.shards), len(dataset.streams)],
        outcome(cls),
        outcome(cls, local=str(folder / "missing")),
        outcome(cls, local=str(remote), shuffle_algo="nope"),
        outcome(cls, local=str(remote), batch_size=0),
        outcome(cls, local=str(remote), epoch_size=0),
        outcome(cls, local=str(remote), sampling_method="nope"),
        outcome(cls, local=str(remote), batching_method="nope"),
        outcome(cls, local=str(remote), predownload=-1),
        outcome(cls, streams=[], local=str(remote)),
        len(cls(local=str(remote), epoch_size="3", batch_size=1)),
        cls(local=str(remote), cache_limit="1gb", batch_size=1).cache_limit,
        _by_hand(cls, remote, folder / "by_hand"),
    ]


def _by_hand(cls: Any, remote: Path, local: Path) -> Any:
    dataset = cls(remote=str(remote), local=str(local), batch_size=1)
    done: Future[int] = Future()
    done.set_result(1)
    steps = [
        names(local),
        [dataset.prepare_shard(0), names(local)],
        [dataset.prepare_shard(1, blocking=False), names(local)],
        [dataset.evict_shard(0), names(local)],
        [dataset.evict_coldest_shard(), names(local)],
    ]
    usage = dataset.cache_usage
    index = (local / "index.json").stat().st_size
    return [steps, usage - index, dataset.get_item(0)["n"], outcome(dataset.on_exception, done)]


@scenario("StreamingDataLoader")
def streaming_dataloader(cls: Any, folder: Path) -> Any:
    data = public("StreamingDataset")
    local = str(written(folder))

    def batches(loader: Any) -> list[list[int]]:
        return [batch["n"].tolist() for batch in loader]

    loader = cls(data(local=local, batch_size=2, shuffle=True), batch_size=2)
    before = loader.state_dict()
    iterator = iter(loader)
    first = [next(iterator)["n"].tolist() for _ in range(2)]
    state = loader.state_dict()
    rest = [batch["n"].tolist() for batch in iterator]
    after = loader.state_dict()
    resumed = cls(data(local=local, batch_size=2, shuffle=True), batch_size=2)
    resumed.load_state_dict(state)
    plain = cls([1, 2, 3], batch_size=2)
    return [
        *(len(loader), before, first, state, rest, after),
        [batches(resumed), batches(resumed)],
        [[b.tolist() for b in plain], plain.state_dict()],
        outcome(plain.load_state_dict, state),
    ]
