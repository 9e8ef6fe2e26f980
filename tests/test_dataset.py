"""The dataset: arguments, lengths, samples by number, who gets what, errors that reach the loop."""

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from streaming import LocalDataset, Stream, StreamingDataset
from streaming.base.stream import streams_registry
from streaming.order import plan_epoch
from streaming.planning import order_params
from streaming.world import World
from tests.data import text_of, write_numbers

SAMPLES = 100


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_numbers(tmp_path_factory.mktemp("data") / "numbers", SAMPLES))


def open_dataset(local: str, **kwargs: Any) -> StreamingDataset:
    return StreamingDataset(local=local, **{"batch_size": 4, **kwargs})


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


# Arguments.


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"batch_size": 0}, "`batch_size` is 0"),
        ({"epoch_size": 0}, "`epoch_size`"),
        ({"epoch_size": "ten"}, "ten"),
        ({"shuffle_seed": -1}, "`shuffle_seed` is -1"),
        ({"predownload": -1}, "`predownload`"),
        ({"sampling_granularity": 0}, "`sampling_granularity`"),
        ({"num_canonical_nodes": 0}, "`num_canonical_nodes`"),
        ({"shuffle_block_size": 0}, "`shuffle_block_size`"),
        ({"shuffle_algo": "py1"}, "py1e, py1br, py1s, py2s, naive"),
        ({"batching_method": "any"}, "random, stratified"),
        ({"partition_algo": "new"}, "relaxed, orig"),
        ({"sampling_method": "any"}, "balanced, fixed"),
        ({"cache_limit": "lots"}, "lots"),
        ({"replication": 0}, "`replication`"),
        ({"validate_hash": "sha0"}, "sha0"),
        ({"download_retry": -1}, "`download_retry`"),
        ({"download_timeout": 0}, "`download_timeout`"),
        ({"streams": []}, "not both"),
        ({"streams": [], "local": None}, "`streams` is empty"),
        ({"local": None}, "needs `remote`, `local`"),
    ],
)
def test_bad_arguments_are_named(local: str, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StreamingDataset(**{"local": local, "batch_size": 4, **kwargs})


def test_a_number_that_is_none(local: str) -> None:
    with pytest.raises(TypeError, match=r"`batch_size` is 4\.5: give a whole number"):
        open_dataset(local, batch_size=4.5)


def test_iterating_without_a_batch_size(local: str) -> None:
    dataset = StreamingDataset(local=local)
    assert (len(dataset), dataset[3]["id"], dataset.predownload) == (SAMPLES, 3, 64)
    with pytest.raises(ValueError, match="`batch_size`"):
        next(iter(dataset))


def test_the_arguments_are_attributes(local: str) -> None:
    dataset = open_dataset(local, shuffle=True, epoch_size="50", cache_limit="1mb")
    assert dataset.epoch_size == 50
    assert dataset.cache_limit == 1 << 20
    assert dataset.predownload == 32
    assert (dataset.shuffle, dataset.shuffle_algo, dataset.shuffle_seed) == (True, "py1e", 9176)
    assert dataset.streams[0].local == local
    assert dataset.initial_physical_nodes is None


def test_the_shape_of_the_streams(local: str) -> None:
    dataset = open_dataset(local)
    assert dataset.size == dataset.num_samples == SAMPLES
    assert dataset.num_shards == len(dataset.shards) == dataset.shards_per_stream.sum()
    assert dataset.samples_per_shard.sum() == SAMPLES
    assert dataset.sample_offset_per_shard[1] == dataset.samples_per_shard[0]
    assert dataset.stream_per_shard.tolist() == [0] * dataset.num_shards
    shard, at = dataset.spanner[57]
    assert dataset.sample_offset_per_shard[shard] + at == 57
    assert dataset.shards[shard][at]["id"] == 57
    units, numbers = dataset.resample_streams(0)
    assert units.tolist() == dataset.samples_per_shard.tolist()
    assert numbers.tolist() == list(range(SAMPLES))


# Samples by number.


@pytest.mark.parametrize("kind", [StreamingDataset, LocalDataset])
def test_samples_by_number(local: str, kind: Any) -> None:
    dataset = kind(local=local)
    assert dataset[7] == {"id": 7, "text": text_of(7)}
    assert dataset[-1]["id"] == SAMPLES - 1
    assert dataset[np.int64(3)]["id"] == 3
    assert [sample["id"] for sample in dataset[2:9:3]] == [2, 5, 8]
    assert [sample["id"] for sample in dataset[[5, -1, 5]]] == [5, 99, 5]
    assert [sample["id"] for sample in dataset[np.array([1, 0])]] == [1, 0]
    assert dataset.get_item(4)["id"] == 4
    for wrong in (SAMPLES, -SAMPLES - 1):
        with pytest.raises(IndexError, match=str(SAMPLES)):
            dataset[wrong]
    with pytest.raises(TypeError):
        dataset["3"]


def test_paths_of_every_kind(local: str, tmp_path: Path) -> None:
    assert LocalDataset(Path(local))[0]["id"] == 0  # type: ignore[arg-type]
    assert StreamingDataset(local=f"file://{local}")[0]["id"] == 0
    dataset = StreamingDataset(remote=f"file://{local}", local=str(tmp_path / "cache"))
    assert dataset[0]["id"] == 0
    parent, split = Path(local).parent, Path(local).name
    assert LocalDataset(str(parent), split)[0]["id"] == 0
    dataset = StreamingDataset(remote=str(parent), local=str(tmp_path / "split"), split=split)
    assert dataset[99]["id"] == 99
    assert (tmp_path / "split" / split / "index.json").exists()


def test_drives_are_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("C:/data", "C:\\data"):
        with pytest.raises(FileNotFoundError, match="There is no data set at"):
            StreamingDataset(local=name)
        with pytest.raises(FileNotFoundError):
            StreamingDataset(remote=name, local=str(tmp_path / "cache"))


# Who gets what.


class Fixed(StreamingDataset):
    """A dataset that believes in a given place in a given world."""

    world: tuple[int, int, int] = (1, 1, 0)

    def _rank_world(self) -> World:
        found = super()._rank_world()
        nodes, ranks, rank = self.world
        worker = rank * found.workers_per_rank + found.worker_of_rank
        return World(nodes, ranks, found.workers_per_rank, worker)


WORLDS = [(1, 1), (1, 2), (2, 1), (2, 3), (4, 2)]


@pytest.mark.parametrize("method", ["random", "per_stream", "stratified", "device_per_stream"])
def test_lengths_are_what_is_given(local: str, method: str) -> None:
    """``len``, for epochs of 1 to 50 samples in several worlds, against iterating."""
    for size in range(1, 51):
        nodes, ranks = WORLDS[size % len(WORLDS)]
        batch_size = 1 + size % 3
        dataset = Fixed(
            local=local,
            batch_size=batch_size,
            epoch_size=size,
            batching_method=method,
            num_canonical_nodes=nodes * 2,
            shuffle=True,
        )
        for rank in range(nodes * ranks):
            dataset.world = (nodes, ranks, rank)
            try:
                given = [sample["id"] for sample in dataset]
            except ValueError:
                # Too few samples for one batch of this method: then a length is refused as well.
                with pytest.raises(ValueError):
                    len(dataset)
                continue
            assert len(dataset) == len(given)
            assert dataset.count_batches(0, batch_size, False) == -(-len(given) // batch_size)
            if method == "random":
                assert len(dataset) >= -(-size // (nodes * ranks))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_number_of_batches(local: str, workers: int, drop_last: bool) -> None:
    from streaming import StreamingDataLoader

    for size in (1, 2, 11, 12, 13, 50):
        for loader_batch in (3, 4):
            dataset = open_dataset(local, epoch_size=size, batch_size=3)
            loader = StreamingDataLoader(
                dataset, batch_size=loader_batch, num_workers=workers, drop_last=drop_last
            )
            assert len(loader) == len(list(loader))


def reference(dataset: StreamingDataset, workers: int, epoch: int) -> list[list[int]]:
    """A single process's own reckoning of what a loader with several workers gives."""
    batch_size = dataset.batch_size or 1
    plan = plan_epoch(order_params(dataset, World(1, 1, 1, 0)), 1, 1, workers, epoch)
    rest = [[i for i in plan.ids(0, 0, w).tolist() if i >= 0] for w in range(workers)]
    batches = []
    while any(rest):
        for own in rest:
            if own:
                batches.append(own[:batch_size])
                del own[:batch_size]
    return batches


@pytest.mark.timeout(300)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    "method",
    [
        "fork",
        pytest.param("spawn", marks=pytest.mark.long),
        pytest.param("forkserver", marks=pytest.mark.long),
    ],
)
def test_eight_workers_agree_with_the_plan(local: str, method: str, persistent: bool) -> None:
    dataset = open_dataset(local, shuffle=True)
    loader = DataLoader(
        dataset,
        batch_size=4,
        num_workers=8,
        multiprocessing_context=method,
        persistent_workers=persistent,
    )
    for epoch in range(2):
        assert ids(loader) == reference(dataset, 8, epoch)


def test_every_way_to_iterate_in_any_order(local: str) -> None:
    dataset = open_dataset(local, shuffle=True)
    loaders = {
        workers: DataLoader(dataset, batch_size=4, num_workers=workers) for workers in (0, 1, 2)
    }
    for epoch, workers in enumerate((0, 2, 1, 0, 2, 2, 0)):
        assert ids(loaders[workers]) == reference(dataset, max(1, workers), epoch)


def test_abandoned_iterations_count_as_epochs(local: str) -> None:
    dataset = open_dataset(local, shuffle=True)
    for _ in range(20):
        next(iter(dataset))
    assert dataset.next_epoch == 20
    assert [[s["id"]] for s in dataset] == [
        [i] for batch in reference(dataset, 1, 20) for i in batch
    ]


def test_a_later_iteration_ends_an_earlier(local: str) -> None:
    dataset = open_dataset(local)
    first = iter(dataset)
    next(first)
    second = iter(dataset)
    assert next(second)["id"] == 0
    with pytest.raises(RuntimeError, match="ended by a later one"):
        next(first)
    assert next(second)["id"] == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_later_iteration_ends_an_earlier_one_of_workers(local: str, workers: int) -> None:
    dataset = open_dataset(local, batch_size=1)
    kwargs: dict[str, Any] = {"batch_size": 1, "num_workers": workers, "prefetch_factor": 1}
    first = iter(DataLoader(dataset, **kwargs))
    next(first)
    second = iter(DataLoader(dataset, **kwargs))
    assert next(second)["id"].tolist() == [0]
    with pytest.raises(RuntimeError, match="ended by a later one"):
        list(first)
    assert len(list(second)) == SAMPLES - 1


def test_the_epoch_can_be_set(local: str) -> None:
    dataset = open_dataset(local, shuffle=True)
    dataset.next_epoch = 7
    assert dataset.next_epoch == 7
    expected = [i for batch in reference(dataset, 1, 7) for i in batch]
    assert [s["id"] for s in dataset] == expected


# Users' own code.


class Doubled(StreamingDataset):
    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return {"id": 2 * sample["id"]} if isinstance(sample, dict) else sample


@pytest.mark.parametrize("workers", [0, 2])
def test_iteration_goes_through_an_override(local: str, workers: int) -> None:
    dataset = Doubled(local=local, batch_size=4)
    batches = ids(DataLoader(dataset, batch_size=4, num_workers=workers))
    assert sorted(i for batch in batches for i in batch) == list(range(0, 2 * SAMPLES, 2))


class CustomError(Exception):
    pass


class Failing(StreamingDataset):
    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        if sample["id"] == 42:
            raise CustomError("sample 42 is not to my taste")
        return sample


@pytest.mark.timeout(60)
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_error_of_the_users_reaches_the_loop(local: str, workers: int) -> None:
    dataset = Failing(local=local, batch_size=4)
    with pytest.raises(CustomError, match="not to my taste") as error:
        list(DataLoader(dataset, batch_size=4, num_workers=workers))
    assert "__getitem__" in str(error.getrepr())


class Reversed(Stream):
    """A stream that brings its shards in its own way: by copying them itself."""

    brought: list[str] = []

    def __init__(self, *, greeting: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.greeting = greeting

    def prepare_shard(self, shard: Any) -> int:
        self.brought.append(shard.file_pairs[0][0].basename)
        return super().prepare_shard(shard)


def test_a_custom_stream_by_its_name(local: str, tmp_path: Path) -> None:
    streams_registry.register("reversed", func=Reversed)
    Reversed.brought.clear()
    dataset = StreamingDataset(
        remote=local,
        local=str(tmp_path / "cache"),
        batch_size=4,
        stream_name="reversed",
        stream_config={"greeting": "hello"},
    )
    assert dataset.streams[0].greeting == "hello"  # type: ignore[attr-defined]
    assert sorted(s["id"] for s in dataset) == list(range(SAMPLES))
    assert len(set(Reversed.brought)) == dataset.num_shards
    with pytest.raises(ValueError, match="reversed"):
        StreamingDataset(local=local, stream_name="unknown")


# Mixing.


def test_streams_are_mixed_by_their_weights(tmp_path: Path) -> None:
    for name, start in (("a", 0), ("b", 1000)):
        write_numbers(tmp_path / name, 100, start=start)
    for weights, counts in (
        (({"proportion": 3}, {"proportion": 1}), (150, 50)),
        (({"repeat": 2}, {"choose": 30}), (200, 30)),
        (({}, {}), (100, 100)),
    ):
        streams = [
            Stream(local=str(tmp_path / name), **weight)  # type: ignore[arg-type]
            for name, weight in zip("ab", weights, strict=True)
        ]
        dataset = StreamingDataset(streams=streams, batch_size=10, shuffle=True)
        assert tuple(stream.choose for stream in streams) == counts
        seen = [sample["id"] for sample in dataset]
        assert (sum(i < 1000 for i in seen), sum(i >= 1000 for i in seen)) == counts


def test_contradicting_weights_are_refused(local: str) -> None:
    with pytest.raises(ValueError, match="one of `proportion`, `repeat` and `choose`"):
        Stream(local=local, proportion=1, choose=3)
    for name in ("proportion", "repeat", "choose"):
        with pytest.raises(ValueError, match=f"`{name}`"):
            Stream(local=local, **{name: -1})  # type: ignore[arg-type]
    some = [Stream(local=local, proportion=1), Stream(local=local)]
    with pytest.raises(ValueError, match="`proportion`"):
        StreamingDataset(streams=some, batch_size=1)


def test_two_remotes_in_one_directory_are_refused(local: str, tmp_path: Path) -> None:
    write_numbers(tmp_path / "other", 10)
    cache = str(tmp_path / "cache")
    streams = [
        Stream(remote=local, local=cache),
        Stream(remote=str(tmp_path / "other"), local=cache),
    ]
    with pytest.raises(ValueError, match="Give each a `local`"):
        StreamingDataset(streams=streams, batch_size=1)


# Other processes.


def _read(dataset: StreamingDataset, results: Any) -> None:
    results.put(([sample["id"] for sample in dataset], dataset.next_epoch))


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_a_dataset_in_other_processes_has_its_own_epochs(local: str, method: str) -> None:
    """As ranks that are started with a dataset made before: each counts for itself."""
    context = multiprocessing.get_context(method)
    dataset = open_dataset(local)
    results = context.Queue()
    ranks = [context.Process(target=_read, args=(dataset, results)) for _ in range(3)]
    for rank in ranks:
        rank.start()
    for _ in ranks:
        assert results.get(timeout=60) == (list(range(SAMPLES)), 1)
    for rank in ranks:
        rank.join(30)
    assert dataset.next_epoch == 0
