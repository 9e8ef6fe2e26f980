"""Draws of an epoch that are made once on a node."""

import pickle
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming import MDSWriter, StreamingDataset, planning, plans
from streaming.keep import Keep
from streaming.order import EpochDraws, OrderParams, StreamShape, plan_epoch
from streaming.order.draws import EarlyIds, SharedIds
from streaming.order.share import Share
from streaming.order.shuffle import py1e
from streaming.plans import KeptDraws, digest, draws_for


def params_of(**changed: Any) -> OrderParams:
    streams = (StreamShape(np.full(20, 10), 150, 0.5), StreamShape(np.full(10, 10), 150, 0.5))
    params = OrderParams(streams, 300, 4, 2, shuffle=True, shuffle_block_size=50)
    return replace(params, **changed)


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(plans, "LARGE", 100)
    monkeypatch.setattr(plans, "_AHEAD_AFTER", 1000)
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "keep"))


@pytest.mark.parametrize("method", ["random", "stratified", "per_stream", "device_per_stream"])
@pytest.mark.parametrize("algo", ["py1e", "py1s", "naive", None])
def test_kept_draws_are_those_that_are_made(
    method: str, algo: str | None, monkeypatch: Any
) -> None:
    params = params_of(batching_method=method, shuffle_algo=algo or "", shuffle=algo is not None)
    expected = plan_epoch(params, 1, 2, 1, 3).to_array()
    for _ in range(2):
        draws = draws_for(params, 3)
        assert isinstance(draws, KeptDraws)
        assert np.array_equal(plan_epoch(params, 1, 2, 1, 3, draws=draws).to_array(), expected)
        monkeypatch.setattr(plans, "draw_ids", None)  # the second time they are found


def test_what_is_not_worth_keeping() -> None:
    all_once = (StreamShape(np.full(20, 10), 200, 1.0),)
    assert draws_for(params_of(shuffle=False, streams=all_once), 0) is None
    assert draws_for(params_of(shuffle_algo="blockwise"), 0) is None
    small = (StreamShape(np.full(9, 11), 99, 1.0),)
    assert draws_for(params_of(streams=small), 0) is None


@pytest.mark.parametrize("nodes", [2, 4])
def test_a_node_keeps_its_share(nodes: int, monkeypatch: Any) -> None:
    params = params_of(streams=(StreamShape(np.full(200, 100), 20_000, 1.0),), batch_size=16)
    expected = plan_epoch(params, nodes, 2, 1, 3)
    for node in reversed(range(nodes)):
        draws = draws_for(params, 3, nodes, node)
        assert isinstance(draws, KeptDraws)
        plan = plan_epoch(params, nodes, 2, 1, 3, draws=pickle.loads(pickle.dumps(draws)))
        for rank in range(2):
            assert np.array_equal(plan.ids(node, rank, 0), expected.ids(node, rank, 0))
    kept = [path.stat().st_size for path in Path(draws._keep.path).glob("plan-*.keep")]
    assert len(kept) == nodes
    assert max(kept) < 2 * 20_000 / nodes + 600
    # What other nodes are given can be asked for too, at the price of all.
    assert np.array_equal(plan.ids(nodes - 1, 0, 0), expected.ids(nodes - 1, 0, 0))
    assert len(list(Path(draws._keep.path).glob("plan-*.keep"))) == nodes + 1


def test_no_folder(monkeypatch: Any) -> None:
    monkeypatch.setenv("STREAMING_CACHE_DIR", "")
    assert draws_for(params_of(), 0) is None


def test_small_streams_are_drawn_by_each(monkeypatch: Any) -> None:
    monkeypatch.setattr(plans, "LARGE", 200)
    params = params_of(batching_method="per_stream")
    draws = draws_for(params, 0)
    assert isinstance(draws, KeptDraws)
    plan_epoch(params, 1, 1, 1, 0, draws=draws).to_array()
    assert not list(Path(draws._keep.path).glob("*.keep"))


def test_every_parameter_that_counts_is_in_the_key() -> None:
    base = params_of()
    other_shards = (StreamShape(np.full(10, 20), 150, 0.5), base.streams[1])
    other_choice = (StreamShape(np.full(20, 10), 151, 0.5), base.streams[1])
    changed: list[dict[str, Any]] = [
        {"shuffle_algo": "py1s"},
        {"shuffle_seed": 1},
        {"shuffle": False},
        {"shuffle_block_size": 60},
        {"num_canonical_nodes": 1},
        {"sampling_method": "fixed"},
        {"sampling_granularity": 2},
        {"streams": other_shards},
        {"streams": other_choice},
    ]
    keys = [digest(replace(base, **each), 0, None) for each in changed]
    keys += [digest(base, epoch, stream) for epoch in (0, 1) for stream in (None, 0, 1)]
    keys += [digest(base, 0, None, Share(300, 2, 2, node)) for node in (0, 1)]
    assert len(set(keys)) == len(keys)
    for each in ({"batch_size": 9}, {"partition_algo": "orig"}, {"initial_physical_nodes": 3}):
        assert digest(replace(base, **each), 0, None) == digest(base, 0, None)


def test_a_pickled_plan_takes_no_draws_along(tmp_path: Path) -> None:
    params = params_of(streams=(StreamShape(np.full(100, 100), 10_000, 1.0),))
    draws = KeptDraws(params, 0, Keep(str(tmp_path / "other")))
    plan = plan_epoch(params, 1, 1, 1, 0, draws=draws)
    expected = plan.to_array()
    pickled = pickle.dumps(plan)
    assert len(pickled) < 10_000
    assert np.array_equal(pickle.loads(pickled).to_array(), expected)


def test_the_next_epoch_is_drawn_while_this_one_is_used(monkeypatch: Any) -> None:
    monkeypatch.setattr(plans, "_AHEAD_AFTER", 2)
    draws = draws_for(params_of(), 0)
    assert isinstance(draws, KeptDraws)
    for _ in range(2):
        draws.ids(None)
    for thread in threading.enumerate():
        if thread.name == "streaming-next-plan":
            thread.join()
    monkeypatch.setattr(plans, "draw_ids", None)
    later = draws_for(params_of(), 1)
    assert later is not None
    expected = EpochDraws(params_of(), 1).ids(None)
    numbers = np.arange(300)
    assert np.array_equal(later.ids(None)(numbers), expected(numbers))


@pytest.mark.parametrize(("nodes", "canonical"), [(1, 1), (1, 4), (2, 2), (2, 4), (4, 2)])
def test_the_first_samples_are_used_before_the_rest_is_drawn(
    nodes: int, canonical: int, monkeypatch: Any
) -> None:
    """The plan is the same, wherever it is looked at first, and the next epoch's comes later."""
    monkeypatch.setattr(plans, "SLOW", 100)
    monkeypatch.setattr(plans, "_AHEAD_AFTER", 3)
    for name, small in (("_FIRST", 500), ("_BUCKET", 64), ("_CHUNK", 256), ("_MANY", 1000)):
        monkeypatch.setattr(py1e, name, small)
    params = params_of(
        streams=(StreamShape(np.full(200, 100), 20_000, 1.0),),
        num_canonical_nodes=canonical,
        shuffle_block_size=700,
        batch_size=16,
    )
    expected = plan_epoch(params, nodes, 2, 1, 3)
    early = set()
    for node in range(nodes):
        draws = draws_for(params, 3, nodes, node)
        assert isinstance(draws, KeptDraws)
        found = plan_epoch(params, nodes, 2, 1, 3, draws=draws)
        for start, stop in ((0, 64), (64, 500), (5000 // nodes, None), (0, None)):
            ids = found.ids(node, 1, 0, start, stop)
            assert np.array_equal(ids, expected.ids(node, 1, 0, start, stop))
        drawn = draws._drawn[None]
        early.add(type(drawn.own if isinstance(drawn, SharedIds) else drawn))
    # A part of a canonical node has no first part: it is all drawn, and then taken from.
    assert (EarlyIds in early) == (nodes <= canonical)
    for thread in threading.enumerate():
        if thread.name == "streaming-next-plan":
            thread.join()
    monkeypatch.setattr(plans, "draw_ids", None)
    later = [draws_for(params, 4, nodes, node) for node in range(nodes)]
    ids = [
        plan_epoch(params, nodes, 2, 1, 4, draws=draws).ids(node, 1, 0)
        for node, draws in enumerate(later)
    ]
    monkeypatch.undo()
    after = plan_epoch(params, nodes, 2, 1, 4)
    assert all(np.array_equal(own, after.ids(node, 1, 0)) for node, own in enumerate(ids))


def test_an_iteration_has_the_next_epoch_drawn(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(plans, "_AHEAD_AFTER", 2)
    monkeypatch.setattr(planning.sample_blocks, "__defaults__", (0, 50))
    with MDSWriter(out=str(tmp_path / "data"), columns={"x": "int"}, size_limit=200) as writer:
        for x in range(200):
            writer.write({"x": x})
    dataset = StreamingDataset(local=str(tmp_path / "data"), batch_size=4, shuffle=True)
    for epoch in range(2):
        assert sorted(sample["x"] for sample in dataset) == list(range(200))
        for thread in threading.enumerate():
            if thread.name == "streaming-next-plan":
                thread.join()
        assert len(list((tmp_path / "keep").glob("plan-*.keep"))) == epoch + 2
