"""What stays the same when the world changes, while global batch and canonical nodes don't.

The rules are those of docs/ordering.md.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streaming.order import EpochPlan, OrderParams, StreamShape, plan_epoch
from streaming.order.epoch_plan import BatchPlan
from tests.order.strategies import counts, global_batches, order_params, thorough

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

World = tuple[int, int, int, int]
"""Nodes, ranks per node, workers per rank, samples in a device's batch."""


@st.composite
def worlds(draw: st.DrawFn, global_batch: int) -> World:
    """Any world with this global batch."""
    nodes = draw(st.sampled_from([n for n in range(1, 9) if global_batch % n == 0]))
    each = global_batch // nodes
    ranks = draw(st.sampled_from([n for n in range(1, 7) if each % n == 0]))
    return nodes, ranks, draw(counts(3)), each // ranks


def plan(params: OrderParams, world: World, used: int = 0) -> EpochPlan:
    nodes, ranks, workers, batch_size = world
    params = replace(params, batch_size=batch_size)
    return plan_epoch(params, nodes, ranks, workers, 2, used)


def plan_or_reject(params: OrderParams, world: World, used: int = 0) -> EpochPlan:
    try:
        return plan(params, world, used)
    except ValueError:
        assume(False)
        raise


def run(params: OrderParams, pieces: list[tuple[World, int]], global_batch: int) -> list[list[int]]:
    """Go through an epoch on several worlds, on each for so many global batches or to the end."""
    seen: list[list[int]] = []
    for world, stop_after in pieces:
        batches = global_batches(plan_or_reject(params, world, len(seen) * global_batch))
        assert all(len(batch) == global_batch for batch in batches[:-1])
        seen += batches[:stop_after]
        if len(batches) < stop_after or len(seen[-1]) < global_batch:
            break
    return seen


def in_any_order(batches: list[list[int]]) -> list[list[int]]:
    return [sorted(batch) for batch in batches]


def common_length(samples: int, canonical: int) -> int:
    """Elements of the sequence that all worlds have in common."""
    return canonical * -(-samples // canonical)


GLOBAL_BATCHES = st.sampled_from([4, 6, 8, 12, 24])


@thorough(800)
@given(st.data())
def test_random(data: st.DataObject) -> None:
    """Every global batch but the last is the same set of samples, across resumptions too."""
    size = data.draw(GLOBAL_BATCHES)
    params = data.draw(order_params(batching_method="random"))
    first = data.draw(worlds(size))
    params = replace(params, initial_physical_nodes=None)
    samples = sum(stream.choose for stream in params.streams)
    # With fewer samples than canonical nodes there is no more than one such sequence.
    assume(samples > params.num_canonical_nodes)
    unbroken = global_batches(plan_or_reject(params, first))
    params = replace(params, initial_physical_nodes=first[0])
    pieces = [(first, data.draw(counts(4)))]
    pieces += [(data.draw(worlds(size)), stop_after) for stop_after in (2, 1000)]
    resumed = run(params, pieces, size)
    same = common_length(samples, params.num_canonical_nodes) // size
    assert in_any_order(resumed[:same]) == in_any_order(unbroken[:same])
    for batches in (unbroken, resumed):
        assert same <= len(batches) <= same + 1


@thorough(500)
@given(st.data())
def test_stratified(data: st.DataObject) -> None:
    """The same sequence, up to the first batch for which a stream repeats samples to come out."""
    size = data.draw(GLOBAL_BATCHES)
    params = data.draw(order_params(batching_method="stratified"))
    one, other = data.draw(worlds(size)), data.draw(worlds(size))
    unbroken = plan_or_reject(params, one)
    assert isinstance(unbroken, BatchPlan)
    same = min(
        common_length(stream.choose, params.num_canonical_nodes) // part
        for stream, part in zip(params.streams, unbroken.parts.tolist(), strict=True)  # type: ignore[attr-defined]
    )
    batches = global_batches(unbroken)
    assert len(batches) >= same
    used = data.draw(st.integers(0, same))
    resumed = global_batches(plan_or_reject(params, other, used * size))
    assert len(resumed) >= same - used
    assert resumed[: same - used] == batches[used:same]


@thorough(400)
@given(st.data())
def test_per_stream(data: st.DataObject) -> None:
    """Each stream's batches are the same; so is their order if each has equally many of them."""
    size = data.draw(GLOBAL_BATCHES)
    params = data.draw(order_params(batching_method="per_stream"))
    one, other = data.draw(worlds(size)), data.draw(worlds(size))
    canonical = params.num_canonical_nodes
    assume(all(stream.choose > canonical for stream in params.streams))
    plans = [plan_or_reject(params, world) for world in (one, other)]
    batches = [in_any_order(global_batches(each)) for each in plans]
    ends = params.stream_offsets[1:]
    of_stream = [
        [
            [batch for batch in each if np.searchsorted(ends, batch[0], side="right") == stream]
            for stream in range(len(params.streams))
        ]
        for each in batches
    ]
    whole = [common_length(stream.choose, canonical) // size for stream in params.streams]
    for stream, same in enumerate(whole):
        assert of_stream[0][stream][:same] == of_stream[1][stream][:same]
        assert all(same <= len(each[stream]) <= same + 1 for each in of_stream)
    if [len(each) for each in of_stream[0]] != [len(each) for each in of_stream[1]]:
        return
    differ = sum(len(each) - same for each, same in zip(of_stream[0], whole, strict=True))
    assert sum(left != right for left, right in zip(*batches, strict=True)) <= differ
    used = data.draw(st.integers(0, len(batches[0])))
    resumed = in_any_order(global_batches(plan(params, other, used * size)))
    assert resumed == batches[1][used:]


def test_per_stream_counts_its_batches_by_the_rule_of_the_docs() -> None:
    """63 samples fill a global batch of 64 only where the ranks repeat one of them."""
    stream = StreamShape(np.full(9, 7), 63, 1.0)
    params = OrderParams((stream,), 63, 1, 1, batching_method="per_stream")
    assert len(global_batches(plan(params, (1, 8, 1, 8)))) == 1
    with pytest.raises(ValueError, match="fill no global batch of 64"):
        plan(params, (1, 1, 1, 64))


@thorough(200)
@given(st.data())
def test_device_per_stream(data: st.DataObject) -> None:
    """The same sequence whatever the number of workers, with the same nodes and ranks."""
    params = data.draw(order_params(batching_method="device_per_stream"))
    nodes, ranks, workers, batch_size = data.draw(worlds(data.draw(GLOBAL_BATCHES)))
    batches = global_batches(plan_or_reject(params, (nodes, ranks, workers, batch_size)))
    used = data.draw(st.integers(0, len(batches)))
    other = nodes, ranks, data.draw(counts(4)), batch_size
    resumed = plan(params, other, used * nodes * ranks * batch_size)
    assert global_batches(resumed) == batches[used:]


@thorough(200)
@given(order_params(), counts(3), counts(3), st.data())
def test_a_resumed_run_is_the_rest_of_the_unbroken_one(
    params: OrderParams, nodes: int, ranks: int, data: st.DataObject
) -> None:
    """On the same nodes and ranks, with any number of workers, the sequence is the same."""
    world = nodes, ranks, data.draw(counts(3)), params.batch_size
    size = nodes * ranks * params.batch_size
    batches = global_batches(plan_or_reject(params, world))
    assume(batches)
    used = data.draw(st.integers(0, len(batches) - 1))
    other = nodes, ranks, data.draw(counts(3)), params.batch_size
    resumed = global_batches(plan(params, other, used * size))
    # The last batch holds what `random` repeats for the ranks to come out.
    assert resumed[:-1] == batches[used:-1]
