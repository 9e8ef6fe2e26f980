import pickle
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streaming.order import (
    EpochDraws,
    EpochPlan,
    OrderParams,
    StreamShape,
    draws,
    plan_epoch,
    work,
)
from streaming.order.arrays import CHUNK
from streaming.world import World
from tests.order.strategies import (
    BATCHING_METHODS,
    counts,
    global_batches,
    lanes,
    order_params,
    thorough,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def one_stream(shards: int = 10, size: int = 10, **params: Any) -> OrderParams:
    stream = StreamShape(np.full(shards, size), shards * size, 1.0)
    return OrderParams(
        (stream,), shards * size, **{"batch_size": 4, "num_canonical_nodes": 2} | params
    )


@st.composite
def plans(draw: st.DrawFn, **fixed: Any) -> EpochPlan:
    """Plans of parameters that fit together."""
    params = draw(order_params())
    world = draw(counts(4)), draw(counts(3)), draw(counts(3))
    used = draw(st.just(0) | st.integers(0, 60))
    try:
        return plan_epoch(params, *world, draw(st.integers(0, 3)), used, **fixed)
    except ValueError:
        assume(False)
        raise


@thorough(800)
@given(plans(), st.integers(-3, 30), st.none() | st.integers(-3, 30))
def test_slices_and_counts_are_those_of_the_whole(
    plan: EpochPlan, start: int, stop: int | None
) -> None:
    whole = plan.to_array()
    assert whole.shape == plan.shape
    assert whole.dtype == np.int64
    for node, rank in lanes(plan):
        assert plan.count(node, rank) == (whole[node, rank] >= 0).sum()
        for worker in range(plan.shape[2]):
            own = whole[node, rank, worker].ravel()
            assert np.array_equal(plan.ids(node, rank, worker), own)
            assert plan.count(node, rank, worker) == (own >= 0).sum()
            found = plan.ids(node, rank, worker, start, stop)
            assert found.dtype == np.int64
            assert np.array_equal(found, own[start:stop])
    assert plan.empty == (not (whole >= 0).any())


@thorough(300)
@given(plans())
def test_every_rank_gets_equally_many_batches(plan: EpochPlan) -> None:
    batch_size = plan.shape[-1]
    each = [[plan.count(*lane, worker) for worker in range(plan.shape[2])] for lane in lanes(plan)]
    batches = [sum(-(-count // batch_size) for count in of_rank) for of_rank in each]
    whole = [sum(count // batch_size for count in of_rank) for of_rank in each]
    assert len(set(batches)) == len(set(whole)) == 1


@thorough(300)
@given(order_params(), counts(4), counts(3), counts(3), st.integers(0, 40))
def test_only_the_last_batch_is_cut(
    params: OrderParams, nodes: int, ranks: int, workers: int, used: int
) -> None:
    try:
        exact = plan_epoch(params, nodes, ranks, workers, 1, used, even_ranks=False)
    except ValueError:
        assume(False)
    even = plan_epoch(params, nodes, ranks, workers, 1, used)
    assert even.shape == exact.shape
    assert exact.left_out == 0
    before, after = global_batches(exact), global_batches(even)
    assert sum(map(len, before)) - sum(map(len, after)) == even.left_out
    assert before[: len(after) - 1] == after[:-1] if after else len(before) <= 1
    if after and len(after) == len(before):
        assert set(after[-1]) <= set(before[-1])
    else:
        assert len(before) - len(after) <= 1
    if not even.left_out:
        assert np.array_equal(exact.to_array(), even.to_array())


@thorough(100)
@given(plans())
def test_a_pickled_plan_gives_the_same(plan: EpochPlan) -> None:
    fresh = pickle.loads(pickle.dumps(plan))
    expected = plan.to_array()
    assert np.array_equal(fresh.to_array(), expected)
    assert np.array_equal(pickle.loads(pickle.dumps(plan)).to_array(), expected)


@pytest.mark.parametrize("method", BATCHING_METHODS)
def test_longer_than_a_chunk(method: str) -> None:
    params = one_stream(100, 3000, batch_size=7, batching_method=method, shuffle=True)
    plan = plan_epoch(params, 1, 2, 1, 0)
    assert plan.shape[3] * plan.shape[4] > 2 * CHUNK
    both = np.concatenate([plan.ids(0, 0, 0), plan.ids(0, 1, 0)])
    used = both[both >= 0]
    assert len(np.unique(used)) == len(used) > 300_000 - 30


@pytest.mark.parametrize("method", BATCHING_METHODS)
def test_nothing_is_drawn_for_counting(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("drawn")

    monkeypatch.setattr(draws, "draw_ids", refuse)
    plan = plan_epoch(one_stream(batching_method=method, shuffle=True), 1, 2, 3, 0)
    assert plan.count(0, 1) > 0
    assert not plan.empty
    with pytest.raises(AssertionError, match="drawn"):
        plan.ids(0, 0, 0, 0, 1)


def test_it_is_drawn_once_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    draw, all_ask = draws.draw_ids, threading.Barrier(4)

    def count(*arguments: Any) -> Any:
        drawn.append(arguments)
        return draw(*arguments)

    def ask() -> None:
        all_ask.wait()
        plan.ids(0, 0, 0)

    monkeypatch.setattr(draws, "draw_ids", count)
    plan = plan_epoch(one_stream(shuffle=True), 1, 1, 1, 0)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 1


def test_draws_can_be_shared_between_worlds() -> None:
    params = one_stream(shuffle=True)
    shared = EpochDraws(params, 3)
    small = plan_epoch(params, 1, 1, 1, 3, draws=shared)
    large = plan_epoch(params, 2, 2, 1, 3, draws=shared)
    assert set(small.to_array().ravel()) >= set(range(100))
    assert np.array_equal(large.to_array(), plan_epoch(params, 2, 2, 1, 3).to_array())
    assert shared.ids(None).table.dtype == np.uint8


def test_no_table_is_kept_where_nothing_is_drawn() -> None:
    params = one_stream()
    assert EpochDraws(params, 0).ids(None).table is None


def test_a_finished_epoch_is_empty() -> None:
    for method in BATCHING_METHODS:
        params = one_stream(batching_method=method)
        assert plan_epoch(params, 1, 1, 1, 0, 100).empty
        assert not plan_epoch(params, 1, 1, 1, 0, 96).empty


def test_counting_is_immediate_at_any_size() -> None:
    stream = StreamShape(np.full(1000, 10**9), 10**12, 1.0)
    plan = plan_epoch(OrderParams((stream,), 10**12, 32, 128), 16, 8, 8, 0, 5 * 10**11)
    assert plan.count(3, 4) == 5 * 10**11 // 128
    assert (plan.ids(15, 7, 7, -2) < 10**12).all()


def test_what_is_left_out_is_told(caplog: pytest.LogCaptureFixture) -> None:
    params = one_stream(batch_size=3, batching_method="device_per_stream")
    with caplog.at_level("INFO", "streaming"):
        plan = plan_epoch(params, 1, 4, 1, 2)
    assert plan.left_out == 6
    assert "Epoch 2 ends for all ranks where the first of them ends" in caplog.text
    assert "6 samples are left out" in caplog.text


@pytest.mark.parametrize("lane", [(1, 0, 0), (0, 2, 0), (0, 0, 1), (-1, 0, 0), (0, -1, 0)])
def test_workers_that_are_not_there(lane: tuple[int, int, int]) -> None:
    plan = plan_epoch(one_stream(), 1, 2, 1, 0)
    with pytest.raises(IndexError, match="they number 0 to"):
        plan.ids(*lane)
    with pytest.raises(IndexError, match="they number 0 to"):
        plan.count(*lane)


two = tuple(StreamShape(np.array([10, 10]), 20, 0.5) for _ in range(2))
uneven = (StreamShape(np.array([90]), 90, 0.99), StreamShape(np.array([1]), 1, 0.01))


@pytest.mark.parametrize(
    ("changed", "used", "message"),
    [
        ({"batching_method": "other"}, 0, "no batching method 'other'; use one of random, strat"),
        ({"partition_algo": "other"}, 0, "no partition algorithm 'other'"),
        ({"shuffle_algo": "other", "shuffle": True}, 0, "no shuffle algorithm 'other'"),
        ({"streams": ()}, 0, "no streams"),
        ({"batch_size": 0}, 0, "1 or more samples per batch"),
        ({}, -1, "no sample -1 of epoch 0"),
        ({}, 200, "after 200 samples of an epoch that has 40"),
        ({"num_canonical_nodes": 3}, 0, "3 canonical nodes can't be dealt out to 2"),
        ({"batching_method": "stratified", "streams": uneven}, 0, "no place for stream 1"),
        ({"batching_method": "per_stream", "batch_size": 30}, 0, "fill no global batch of 60"),
        ({"batching_method": "device_per_stream", "batch_size": 30}, 0, "fill no batch of 30"),
        ({"batching_method": "device_per_stream", "num_canonical_nodes": 1}, 0, "whole canonical"),
        (
            {"batching_method": "device_per_stream", "shuffle": True, "shuffle_block_size": 1},
            0,
            "shuffle block of 1 samples has no place for stream 0",
        ),
        ({"shuffle": True, "num_canonical_nodes": 64}, 0, "sample for each of the 64"),
        (
            {"batching_method": "per_stream", "shuffle": True, "shuffle_block_size": 1},
            0,
            "can't draw blocks of 0",
        ),
    ],
)
def test_what_does_not_fit_is_found_before_anything_is_drawn(
    changed: dict[str, Any], used: int, message: str
) -> None:
    params = OrderParams(two, 40, 4, 2)
    with pytest.raises(ValueError, match=message):
        plan_epoch(replace(params, **changed), 2, 1, 1, 0, used)


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("method", BATCHING_METHODS[1:])
def test_resuming_within_a_batch_goes_back_to_its_beginning(method: str) -> None:
    params = OrderParams(two, 40, 4, 2, batching_method=method)
    with pytest.warns(UserWarning, match="after 1 whole global batches of 8 samples; 3 samples"):
        plan = plan_epoch(params, 2, 1, 1, 0, 11)
    assert global_batches(plan) == global_batches(plan_epoch(params, 2, 1, 1, 0, 8))


def dataset(**changed: Any) -> SimpleNamespace:
    attributes = {
        "streams": [SimpleNamespace(choose=4, proportion=0.25, repeat=1.0)] * 2,
        "samples_per_shard": np.array([2, 2, 4]),
        "shards_per_stream": np.array([2, 1]),
        "epoch_size": 8,
        "batch_size": 2,
        "num_canonical_nodes": 1,
        "partition_algo": "orig",
        "sampling_method": "fixed",
        "sampling_granularity": 3,
        "shuffle": True,
        "shuffle_algo": "py1s",
        "shuffle_seed": 5,
        "shuffle_block_size": 100,
        "batching_method": "stratified",
    }
    return SimpleNamespace(**attributes | changed)


def test_parameters_are_read_off_a_dataset() -> None:
    params = OrderParams.from_dataset(dataset())
    assert [stream.shard_sizes.tolist() for stream in params.streams] == [[2, 2], [4]]
    assert (params.streams[1].choose, params.streams[1].proportion) == (4, 0.25)
    assert (params.epoch_size, params.batch_size, params.num_canonical_nodes) == (8, 2, 1)
    assert (params.partition_algo, params.batching_method) == ("orig", "stratified")
    assert (params.sampling_method, params.sampling_granularity) == ("fixed", 3)
    assert (params.shuffle, params.shuffle_algo) == (True, "py1s")
    assert (params.shuffle_seed, params.shuffle_block_size) == (5, 100)
    assert params.initial_physical_nodes is None
    resumed = OrderParams.from_dataset(dataset(initial_physical_nodes=3))
    assert resumed.initial_physical_nodes == 3


@pytest.mark.parametrize("method", BATCHING_METHODS)
def test_the_work_of_a_dataset_is_its_plan(method: str) -> None:
    world = World(1, 2, 1, 0)
    found = work.generate_work(method, dataset(), world, 1, 0)
    by_name = getattr(work, f"generate_work_{method}_batching")
    params = replace(OrderParams.from_dataset(dataset()), batching_method=method)
    expected = plan_epoch(params, 1, 2, 1, 1, even_ranks=False).to_array()
    assert np.array_equal(found, expected)
    assert np.array_equal(by_name(dataset(), world, 1, 0), expected)


@pytest.mark.parametrize("name", ["batch_size", "num_canonical_nodes", "shuffle_block_size"])
def test_parameters_that_are_not_set_yet(name: str) -> None:
    with pytest.raises(ValueError, match=f"depends on `{name}`, which is not set"):
        OrderParams.from_dataset(dataset(**{name: None}))
