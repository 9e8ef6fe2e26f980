"""Our own shuffle: the same order in any world, at any place, for little memory."""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from math import factorial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.order import EpochDraws, OrderParams, StreamShape, get_shuffle, plan_epoch, resample
from streaming.order.mixing import draw, key_of, permute
from streaming.order.shuffle.blockwise import Blockwise
from streaming.order.units import Sampling, share_out
from tests.order.strategies import counts, order_params, thorough

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def computed(**fixed: Any) -> st.SearchStrategy[OrderParams]:
    return order_params(shuffle=True, shuffle_algo="blockwise", **fixed)


# Permutations of single places.


@thorough(200)
@given(st.lists(counts(700), min_size=1, max_size=8), st.integers(0, 2**70))
def test_places_are_permuted(sizes: list[int], seed: int) -> None:
    """Each size by a key of its own, all at once and one by one."""
    of = np.repeat(sizes, sizes)
    keys = draw(key_of(seed), np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes))
    places = np.concatenate([np.arange(size) for size in sizes])
    found = permute(places, of, keys)
    for begin, end in zip(np.cumsum([0, *sizes]), np.cumsum(sizes), strict=False):
        assert np.array_equal(np.sort(found[begin:end]), np.arange(end - begin))
    some = np.arange(0, len(places), 7)
    assert np.array_equal(permute(places[some], of[some], keys[some]), found[some])


def test_places_of_huge_permutations() -> None:
    places, size = np.arange(10**5), 10**15
    found = permute(places, np.full(10**5, size), np.full(10**5, key_of(1)))
    assert len(np.unique(found)) == 10**5
    assert 0 <= found.min() < found.max() < size
    assert abs(found.mean() / size - 0.5) < 0.01


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_all_permutations_come_equally_often(size: int) -> None:
    each, kinds = 200, factorial(size)
    keys = np.repeat(draw(key_of(3), np.arange(each * kinds, dtype=np.uint64)), size)
    found = permute(np.tile(np.arange(size), each * kinds), np.full(len(keys), size), keys)
    codes = found.reshape(-1, size) @ size ** np.arange(size)
    seen = np.unique(codes, return_counts=True)[1]
    assert len(seen) == kinds
    # Chi-square: its mean is kinds - 1, its variance twice that.
    spread = ((seen - each) ** 2 / each).sum()
    assert abs(spread - (kinds - 1)) < 4 * np.sqrt(2 * (kinds - 1))


@pytest.mark.parametrize("size", [64, 255, 256, 1000, 4099])
@pytest.mark.parametrize("apart", [1, 2, 32])
def test_neighbours_land_independently(size: int, apart: int) -> None:
    rows = 2_000_000 // size
    keys = np.repeat(draw(key_of(4), np.arange(rows, dtype=np.uint64)), size)
    found = permute(np.tile(np.arange(size), rows), np.full(len(keys), size), keys)
    found = found.reshape(rows, size)
    gaps = np.bincount(((found[:, apart:] - found[:, :-apart]) % size).ravel(), minlength=size)[1:]
    mean = gaps.sum() / (size - 1)
    spread = ((gaps - mean) ** 2 / mean).sum()
    assert abs(spread - (size - 2)) < 4.5 * np.sqrt(2 * (size - 2))


# The shuffle.


@thorough(150)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=20), counts(5), st.integers(2, 90), st.data()
)
def test_any_place_is_that_of_the_whole(
    sizes: list[int], nodes: int, block: int, data: st.DataObject
) -> None:
    whole = get_shuffle("blockwise", np.array(sizes), nodes, 7, 2, block)
    shuffle = Blockwise.draw(np.array(sizes), nodes, 7, 2, block)
    places = data.draw(st.lists(st.integers(0, max(len(whole) - 1, 0)), max_size=20))
    if len(whole):
        assert np.array_equal(shuffle(np.array(places, np.int64)), whole[places])


def test_it_is_the_same_for_ever() -> None:
    """Checkpoints depend on it."""
    assert get_shuffle("blockwise", np.array([5, 3, 4]), 2, 9176, 1, 6).tolist() == GOLDEN
    streams = (StreamShape(np.array([5, 3, 4]), 6, 0.5), StreamShape(np.array([6]), 9, 0.5))
    params = OrderParams(streams, 15, 3, 1, shuffle=True, shuffle_algo="blockwise")
    assert plan_epoch(params, 1, 1, 1, 1).ids(0, 0, 0).tolist() == GOLDEN_MIX


GOLDEN = [8, 11, 10, 6, 9, 5, 0, 1, 2, 7, 3, 4]
GOLDEN_MIX = [15, 0, 12, 17, 16, 13, 15, 5, 13, 8, 9, 3, 7, 16, 14]


def test_a_node_within_half_a_block_is_shuffled_evenly() -> None:
    """Where a sample comes from says nothing of where it stands."""
    runs = [get_shuffle("blockwise", np.full(10, 10), 1, seed, 0, 200) for seed in range(2000)]
    moved = np.abs(np.stack(runs) - np.arange(100))
    assert abs(moved.mean() - 33.33) < 0.2


def test_streams_that_are_alike_come_in_different_orders() -> None:
    alike = tuple(StreamShape(np.full(10, 10), 100, 0.5) for _ in range(2))
    params = OrderParams(
        alike, 200, 4, 1, shuffle=True, shuffle_algo="blockwise", batching_method="stratified"
    )
    drawn = EpochDraws(params, 0)
    one, other = (drawn.ids(stream)(np.arange(100)) for stream in range(2))
    assert sorted(one + 100) == sorted(other)
    assert ((one + 100) == other).sum() < 10


def mixing(algo: str, block: int) -> tuple[float, float]:
    """The mean number of shards at hand, and that of distinct shards in windows of 512 samples."""
    need, distinct = [], []
    for epoch in range(3):
        order = get_shuffle(algo, np.full(800, 200), 1, 5, epoch, block) // 200
        by_shard = np.argsort(order, kind="stable").reshape(800, -1)
        need.append((by_shard[:, -1] - by_shard[:, 0] + 1).sum() / len(order))
        windows = np.sort(order[20_000:-20_000].reshape(-1, 500), axis=1)
        distinct.append(1 + (np.diff(windows, axis=1) != 0).sum(axis=1).mean())
    return float(np.mean(need)), float(np.mean(distinct))


def test_it_mixes_as_well_as_py1br_with_the_same_cache() -> None:
    need, distinct = mixing("py1br", 20_000)
    ours, found = mixing("blockwise", 20_000)
    ours, found = mixing("blockwise", round(20_000 * need / ours))
    assert abs(ours / need - 1) < 0.02
    assert found > 0.99 * distinct


def downloads(order: Any, shard_size: int, parts: int) -> Any:
    """How many shards come in each part of an order."""
    _, first = np.unique(order // shard_size, return_index=True)
    return np.bincount(first * parts // len(order), minlength=parts)


def test_downloads_are_balanced_over_time_and_nodes() -> None:
    """Nodes begin their blocks at evenly staggered places, so that no step needs many shards."""
    nodes, shards = 8, 400
    order = get_shuffle("blockwise", np.full(nodes * shards, 100), nodes, 1, 0, 4000)
    of_nodes = order.reshape(nodes, -1)
    block = 2000
    came = np.stack([downloads(of_node, 100, shards * 100 // (block // 4)) for of_node in of_nodes])
    totals = came.sum(axis=1)
    assert totals.max() - totals.min() <= 1
    steps = came.sum(axis=0)[8:-8]
    assert steps.max() <= 1.5 * steps.mean()


# Streams in part, and several times.


@thorough(150)
@given(computed(), st.integers(0, 2))
def test_a_plan_gives_what_is_sampled_in_the_order_of_the_shuffle(
    params: OrderParams, epoch: int
) -> None:
    units, ids = resample(params, epoch)
    taken = [stream.choose for stream in params.streams]
    bounds = params.stream_offsets
    given_by = np.bincount(
        np.searchsorted(bounds, ids, side="right") - 1, minlength=len(params.streams)
    )
    assert given_by.tolist() == taken
    shuffle = get_shuffle(
        "blockwise",
        units,
        params.num_canonical_nodes,
        params.shuffle_seed,
        epoch,
        params.shuffle_block_size,
    )
    drawn = EpochDraws(params, epoch).ids(None)
    assert drawn.table is None
    assert np.array_equal(drawn(np.arange(len(ids))), ids[shuffle])
    # Nobody is taken much more often than anybody of the same stream, within a unit never twice.
    for begin, end in zip(np.cumsum(units) - units, np.cumsum(units), strict=True):
        assert len(np.unique(ids[begin:end])) == end - begin


@thorough(200)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(sum),
    st.integers(0, 2000),
    counts(60),
    st.integers(0, 9),
)
def test_shards_share_out_what_is_chosen(
    sizes: list[int], choose: int, granularity: int, seed: int
) -> None:
    total = sum(sizes)
    found = share_out(np.array(sizes), choose, granularity, np.random.default_rng(seed))
    assert found.sum() == choose
    whole = np.array(sizes) * (choose // total)
    assert (found >= whole).all()
    assert (found <= whole + np.array(sizes)).all()


def test_with_granularity_few_shards_give_much() -> None:
    sizes = np.full(1000, 100)
    fine = share_out(sizes, 10_000, 1, np.random.default_rng(0))
    assert fine.min() >= 9
    assert fine.max() <= 11
    coarse = share_out(sizes, 10_000, 100, np.random.default_rng(0))
    assert (coarse > 0).sum() == 100


@pytest.mark.parametrize(("method", "same"), [("fixed", True), ("balanced", False)])
def test_which_samples_are_taken_changes_by_epoch_if_balanced(method: str, same: bool) -> None:
    stream = StreamShape(np.full(20, 10), 50, 1.0)
    params = OrderParams(
        (stream,), 50, 1, 1, shuffle=True, shuffle_algo="blockwise", sampling_method=method
    )
    taken = [np.sort(EpochDraws(params, epoch).ids(None)(np.arange(50))) for epoch in range(2)]
    assert np.array_equal(*taken) == same


def test_every_sample_is_taken_equally_often() -> None:
    seen = np.zeros(70, int)
    stream = StreamShape(np.array([10, 20, 40]), 30, 1.0)
    params = OrderParams((stream,), 30, 1, 1, shuffle=True, shuffle_algo="blockwise")
    for epoch in range(2000):
        sampling = Sampling.draw(params, epoch)
        seen[sampling(np.arange(30))] += 1
    # Each has a chance of 3/7 in each epoch.
    assert np.abs(seen - 2000 * 3 / 7).max() < 4.5 * np.sqrt(2000 * 12 / 49)


def test_what_cant_be_shared_out() -> None:
    rng = np.random.default_rng(0)
    for sizes, choose, granularity in ([0], 1, 1), ([3], -1, 1), ([3], 1, 0):
        with pytest.raises(ValueError, match="Can't choose"):
            share_out(np.array(sizes), choose, granularity, rng)


# At scale.

PROGRAM = """
import sys, time
import numpy as np
from streaming.order import OrderParams, StreamShape, plan_epoch
shards, size, nodes, at = map(int, sys.argv[1:])
epoch = shards * size
stream = StreamShape(np.full(shards, size), epoch, 1.0)
params = OrderParams((stream,), epoch, 32, nodes, shuffle=True, shuffle_algo="blockwise",
                     shuffle_block_size=4_000_000 // nodes)
best = 9.0
for _ in range(3):
    start = time.process_time()
    plan = plan_epoch(params, nodes, 8, 8, 0, at * (nodes * 256))
    ids = plan.ids(nodes - 1, 7, 7, 0, 64)
    best = min(best, time.process_time() - start)
assert len(np.unique(ids)) == 64 and ids.min() >= 0
with open("/proc/self/status") as status:  # a child's ru_maxrss begins with its parent's
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(best, int(peak) >> 10)
"""


def scales() -> Iterator[tuple[int, int, int, int]]:
    for shards, size in (10**6, 10**3), (10**6, 10**6):
        for nodes in 1, 64:
            for percent in 0, 90:
                yield shards, size, nodes, shards * size * percent // 100 // (nodes * 256)


@pytest.mark.long
@pytest.mark.parametrize("scale", list(scales()), ids=str)
def test_a_million_shards(scale: tuple[int, int, int, int]) -> None:
    """Of a billion and of a trillion samples: the first ids, and those at 90 %.

    The bound is of the time that the CPU takes; `make bench-scale` measures it.
    """
    command = [sys.executable, "-c", PROGRAM, *map(str, scale)]
    seconds, mebibytes = subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.split()
    assert float(seconds) < 0.5
    assert int(mebibytes) < 200


def test_slices_take_time_by_their_length() -> None:
    stream = StreamShape(np.full(1000, 10**9), 10**12, 1.0)
    params = OrderParams((stream,), 10**12, 32, 128, shuffle=True, shuffle_algo="blockwise")
    plan = plan_epoch(params, 16, 8, 8, 0, 5 * 10**11)
    begin = time.process_time()
    ids = plan.ids(15, 7, 7, 10**7, 10**7 + 100)
    assert time.process_time() - begin < 1
    assert len(np.unique(ids)) == 100


def test_resumed_in_another_world() -> None:
    stream = StreamShape(np.full(100, 100), 10_000, 1.0)
    params = OrderParams(
        (stream,), 10_000, 8, 4, shuffle=True, shuffle_algo="blockwise", shuffle_block_size=1000
    )
    whole = plan_epoch(params, 1, 1, 1, 0).ids(0, 0, 0)
    rest = plan_epoch(replace(params, batch_size=2), 2, 2, 3, 0, 800).to_array()
    assert set(rest[rest >= 0]) == set(whole[800:])
