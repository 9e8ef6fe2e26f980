"""Checkpoints: what they count, what they hold, what they refuse, and where they go on."""

import json
import timeit
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from streaming import Stream, StreamingDataLoader, StreamingDataset
from tests.data import write_numbers

SAMPLES = 100


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_numbers(tmp_path_factory.mktemp("state") / "numbers", SAMPLES))


def open_dataset(local: str, **kwargs: Any) -> StreamingDataset:
    return StreamingDataset(local=local, **{"batch_size": 4, "shuffle": True, **kwargs})


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def epochs(local: str, count: int, workers: int = 1, **kwargs: Any) -> list[list[list[int]]]:
    loader = DataLoader(open_dataset(local, **kwargs), batch_size=4, num_workers=workers)
    return [ids(loader) for _ in range(count)]


# What is counted.


def as_list(samples: list[Any]) -> list[Any]:
    return samples


def pack(samples: list[Any]) -> dict[str, Any]:
    return {"id": torch.tensor([sum(sample["id"] for sample in samples)])}


def drop(samples: list[Any]) -> list[Any]:
    return samples[:1]


def nothing(samples: list[Any]) -> None:
    return None


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", [None, as_list, pack, drop, nothing])
def test_the_count_does_not_look_at_batches(local: str, collate: Any, workers: int) -> None:
    loader = StreamingDataLoader(
        open_dataset(local), batch_size=4, num_workers=workers, collate_fn=collate
    )
    counts = []
    for _ in loader:
        state = loader.state_dict()
        assert state is not None
        counts.append(state["sample_in_epoch"])
        if len(counts) == 3:
            break
    assert counts == [4, 8, 12]


class Overridden(StreamingDataLoader):
    """A loader whose iteration goes around ours."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in DataLoader.__iter__(self):
            yield batch["id"]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_overridden_iteration_counts(local: str, workers: int, persistent: bool) -> None:
    expected = epochs(local, 2, workers)
    options = {"num_workers": workers, "persistent_workers": persistent and workers > 0}
    loader = Overridden(open_dataset(local), batch_size=4, **options)
    assert [batch.tolist() for batch in loader] == expected[0]
    batches = iter(loader)
    assert [next(batches).tolist() for _ in range(3)] == expected[1][:3]
    state = loader.state_dict()
    assert state is not None
    assert (state["epoch"], state["sample_in_epoch"]) == (1, 12)
    resumed = StreamingDataLoader(open_dataset(local), batch_size=4, num_workers=workers)
    resumed.load_state_dict(state)
    assert ids(resumed) == expected[1][3:] if workers < 2 else len(ids(resumed)) == 22


def test_what_an_older_iterator_hands_out_is_not_counted(local: str) -> None:
    loader = StreamingDataLoader(open_dataset(local), batch_size=4, num_workers=1)
    old = iter(loader)
    next(old)
    state = loader.state_dict()
    assert state is not None
    loader.load_state_dict(state)
    next(old)
    assert loader.state_dict() == state


def test_states_are_small_and_plain(local: str) -> None:
    for method in ("random", "stratified", "per_stream", "device_per_stream"):
        loader = StreamingDataLoader(open_dataset(local, batching_method=method), batch_size=4)
        next(iter(loader))
        text = json.dumps(loader.state_dict())
        assert len(text) < 1024
        assert json.loads(text) == loader.state_dict()


def test_states_are_cheap(local: str) -> None:
    loader = StreamingDataLoader(open_dataset(local), batch_size=4)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()

    def took(call: Any) -> float:
        """The least of several, since other processes share the machine."""
        return min(timeit.repeat(call, number=100, repeat=20))

    # Beside something that any machine does about as quickly.
    assert took(loader.state_dict) < 20 * took(lambda: json.dumps(state))


# Where it goes on.


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("method", ["random", "stratified", "per_stream", "device_per_stream"])
def test_after_the_last_batch_comes_the_next_epoch(
    local: str, method: str, drop_last: bool, workers: int
) -> None:
    """Before the loop notices that there is no more, and after it has."""
    kwargs = {"batch_size": 6, "batching_method": method}
    options: dict[str, Any] = {"batch_size": 6, "drop_last": drop_last}
    loader = StreamingDataLoader(open_dataset(local, **kwargs), num_workers=workers, **options)
    states = [loader.state_dict() for _ in loader]
    states = [states[-1], loader.state_dict()]
    following = ids(loader)
    for state in states:
        for resumed in (
            loader,
            StreamingDataLoader(open_dataset(local, **kwargs), num_workers=workers, **options),
        ):
            assert state is not None
            resumed.load_state_dict(state)
            assert ids(resumed) == following


def test_the_object_that_made_it_and_other_numbers_of_workers(local: str) -> None:
    whole = epochs(local, 2, 1)
    loader = StreamingDataLoader(open_dataset(local), batch_size=4)
    batches = iter(loader)
    for _ in range(7):
        next(batches)
    state = loader.state_dict()
    list(batches)
    for workers in (0, 2, 1):
        loader = StreamingDataLoader(loader.dataset, batch_size=4, num_workers=workers)
        loader.load_state_dict(state)
        assert ids(loader) == whole[0][7:]
        assert ids(loader) == whole[1]


def test_engines_count_epochs_but_do_not_undo_what_was_loaded(local: str) -> None:
    dataset = open_dataset(local)
    dataset.set_epoch(2)
    assert dataset.next_epoch == 2
    dataset.set_epoch(0)
    assert dataset.next_epoch == 2
    dataset.load_state_dict({**dataset.state_dict(8, True), "epoch": 3})
    dataset.set_epoch(0)
    dataset.set_epoch(3)
    assert dataset.state_dict()["sample_in_epoch"] == 8


# One process's own position.


def own_ids(dataset: StreamingDataset) -> list[int]:
    return [sample["id"] for sample in dataset]


@pytest.mark.parametrize("stop", [0, 1, 4, 50, 99, 100])
def test_a_process_saves_its_own_position(local: str, stop: int) -> None:
    dataset = open_dataset(local)
    fresh = open_dataset(local)
    expected = [own_ids(fresh), own_ids(fresh)]
    samples = iter(dataset)
    assert [next(samples)["id"] for _ in range(stop)] == expected[0][:stop]
    state = json.loads(json.dumps(dataset.state_dict()))
    for resumed in (dataset, open_dataset(local)):
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        rest = expected[0][stop:] or expected[1]
        assert own_ids(resumed) == rest
        assert resumed.next_epoch == (1 if stop < SAMPLES else 2)


def by_column(dataset: StreamingDataset) -> list[list[int]]:
    return [batch["id"].tolist() for batch, _ in dataset.iterate_batches(4, drop_last=False)]


@pytest.mark.parametrize("stop", [0, 3, 24, 25])
def test_batches_made_by_column_go_on_from_it_too(local: str, stop: int) -> None:
    dataset, fresh = open_dataset(local), open_dataset(local)
    expected = [by_column(fresh), by_column(fresh)]
    batches = dataset.iterate_batches(4, drop_last=False)
    assert [next(batches)[0]["id"].tolist() for _ in range(stop)] == expected[0][:stop]
    resumed = open_dataset(local)
    resumed.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
    assert by_column(resumed) == (expected[0][stop:] or expected[1])
    if stop < 25:
        assert by_column(resumed) == expected[1]


def test_it_goes_on_only_in_a_process_like_it(local: str) -> None:
    dataset = open_dataset(local)
    next(iter(dataset))
    state = dataset.state_dict()
    other = open_dataset(local)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match=r"worker 0 of 1 of a rank of 1.* worker 0 of 2"):
        list(DataLoader(other, batch_size=4, num_workers=2))
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="state of a StreamingDataLoader"):
        list(StreamingDataLoader(other, batch_size=4))
    # One worker stands where the process itself stood.
    other.load_state_dict(state)
    loader = DataLoader(other, batch_size=None, num_workers=1)
    assert len(list(loader)) == SAMPLES - 1
    assert len(list(loader)) == SAMPLES


def test_the_parent_of_workers_does_not_know(local: str) -> None:
    dataset = open_dataset(local)
    assert dataset.state_dict()["sample_in_epoch"] == 0
    batches = iter(DataLoader(dataset, batch_size=4, num_workers=2))
    next(batches)
    with pytest.raises(RuntimeError, match=r"StreamingDataLoader.*StatefulDataLoader"):
        dataset.state_dict()
    assert dataset.state_dict(4, False)["sample_in_epoch"] == 4
    for wrong in ({"num_samples": 4}, {"from_beginning": True}):
        with pytest.raises(TypeError, match="both"):
            dataset.state_dict(**wrong)  # type: ignore[arg-type]


# What it refuses.


def state_of(dataset: StreamingDataset) -> dict[str, Any]:
    return json.loads(json.dumps(dataset.state_dict(8, True)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 8}, "`global_batch_size` was 4 there and is 8 here"),
        ({"shuffle": False}, "`shuffle` was True there and is False here"),
        ({"shuffle_algo": "naive"}, "`shuffle_algo` was 'py1e' there and is 'naive' here"),
        ({"shuffle_block_size": 50}, "`shuffle_block_size` was 4000000 there and is 50 here"),
        ({"sampling_method": "fixed"}, "`sampling_method` was 'balanced'"),
        ({"sampling_granularity": 3}, "`sampling_granularity` was 1"),
        ({"batching_method": "per_stream"}, "`batching_method` was 'random'"),
        ({"epoch_size": 90}, "`epoch_size` was 100 there and is 90 here; the streams"),
        ({"pad": "none"}, "`pad` was 'repeat'"),
        ({"world_size": 2, "rank": 1}, "`global_batch_size` was 4 there and is 8 here"),
    ],
)
def test_another_order_is_refused(local: str, change: dict[str, Any], message: str) -> None:
    state = state_of(open_dataset(local))
    changed = open_dataset(local, **change)
    with pytest.raises(ValueError, match=message):
        changed.load_state_dict(state)
    assert changed.state_dict()["sample_in_epoch"] == 0
    assert changed.num_canonical_nodes is None
    changed.load_state_dict(state, strict=False)
    assert changed.state_dict()["sample_in_epoch"] == 8
    with pytest.raises(ValueError, match="strict=False"):
        StreamingDataLoader(changed, batch_size=4).load_state_dict(state)
    StreamingDataLoader(changed, batch_size=4).load_state_dict(state, strict=False)


@pytest.mark.parametrize(
    "change",
    [
        {"shuffle_seed": 7},
        {"num_canonical_nodes": 4},
        {"partition_algo": "orig"},
        {"world_size": 4, "rank": 1, "batch_size": 1},
        {"world_size": 4, "rank": 1, "batch_size": 2, "replication": 2},
        {"predownload": 3},
    ],
)
def test_what_leaves_the_order_is_not(local: str, change: dict[str, Any]) -> None:
    open_dataset(local, **change).load_state_dict(state_of(open_dataset(local)))
    other = open_dataset(local, shuffle=False, shuffle_algo="naive", shuffle_block_size=3)
    other.load_state_dict(state_of(open_dataset(local, shuffle=False)))


def test_other_data_is_refused_and_another_place_is_not(local: str, tmp_path: Any) -> None:
    state = state_of(open_dataset(local))
    for name, count, options in (("less", 99, {}), ("shards", 100, {"per_shard": 7})):
        other = str(write_numbers(tmp_path / name, count, **options))
        with pytest.raises(ValueError, match="samples in each shard, or their weights, differ"):
            open_dataset(other).load_state_dict(state)
    zipped = write_numbers(tmp_path / "zip", SAMPLES, compression="zstd", hashes=["sha1"])
    dataset = StreamingDataset(
        remote=str(zipped), local=str(tmp_path / "cache"), batch_size=4, shuffle=True
    )
    dataset.load_state_dict(state)
    weighed = StreamingDataset(streams=[Stream(local=local, repeat=2)], batch_size=4, shuffle=True)
    with pytest.raises(ValueError, match="`epoch_size` was 100 there and is 200 here"):
        weighed.load_state_dict(state)


def test_methods_that_are_elastic_in_part(local: str) -> None:
    kwargs: dict[str, Any] = {"batching_method": "device_per_stream", "num_canonical_nodes": 4}
    state = state_of(open_dataset(local, **kwargs))
    with pytest.raises(ValueError, match="`num_nodes` was 1 there and is 2 here"):
        open_dataset(local, **kwargs, rank=0, world_size=2).load_state_dict(state)
    # 63 samples fill a global batch of 16 four times only where 16 ranks repeat one of them.
    kwargs = {"batching_method": "per_stream", "epoch_size": 63, "num_canonical_nodes": 1}
    state = state_of(open_dataset(local, **kwargs, batch_size=16))
    wide = {"batch_size": 1, "rank": 0, "world_size": 16, "local_world_size": 16}
    with pytest.raises(ValueError, match="other numbers of batches of the streams"):
        open_dataset(local, **kwargs, **wide).load_state_dict(state)
    kwargs["epoch_size"] = 48
    state = state_of(open_dataset(local, **kwargs, batch_size=16))
    open_dataset(local, **kwargs, **wide).load_state_dict(state)


def test_states_of_others_load_as_they_are(local: str) -> None:
    old = {"epoch": 2, "sample_in_epoch": 8, "num_canonical_nodes": 2, "shuffle_seed": 5}
    for state in (old, {**old, "initial_physical_nodes": 1}):
        dataset = open_dataset(local, shuffle_algo="naive")
        dataset.load_state_dict(state)
        loaded = dataset.state_dict()
        assert {name: loaded[name] for name in old} == old
    # A later version may know more.
    fingerprint = {**dataset.state_dict()["fingerprint"], "something": "else"}
    dataset.load_state_dict({**old, "fingerprint": fingerprint, "more": 1})
    for wrong in (3, "x", []):
        with pytest.raises(ValueError, match="no dictionary"):
            dataset.load_state_dict({**old, "fingerprint": wrong})
