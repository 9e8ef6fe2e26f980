"""`pad="none"`: every sample once, in the order of the padded epoch."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streaming.order import OrderParams, StreamShape, plan_epoch
from tests.order.strategies import counts, global_batches, lanes, order_params, thorough

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@thorough(400)
@given(order_params(batching_method="random"), counts(4), counts(3), counts(3), st.data())
def test_every_sample_once(
    params: OrderParams, nodes: int, ranks: int, workers: int, data: st.DataObject
) -> None:
    params = replace(params, pad="none")
    samples = sum(stream.choose for stream in params.streams)
    used = data.draw(st.just(0) | st.integers(0, samples))
    try:
        whole = plan_epoch(params, 1, 1, 1, 2).ids(0, 0, 0)
        plan = plan_epoch(params, nodes, ranks, workers, 2, used)
    except ValueError:
        assume(False)
    array = plan.to_array()
    given_out = array[array >= 0]
    # One rank alone goes through the sequence that all worlds have in common.
    left = whole[whole >= 0][used:]
    assert len(given_out) == len(left) == samples - used
    assert sorted(given_out.tolist()) == sorted(left.tolist())
    each = [plan.count(*lane) for lane in lanes(plan)]
    assert each == [(array[lane] >= 0).sum() for lane in lanes(plan)]
    assert max(each) - min(each) <= 1
    size = nodes * ranks * params.batch_size
    for at, batch in enumerate(global_batches(plan)):
        assert sorted(batch) == sorted(left[at * size : (at + 1) * size].tolist())


@thorough(200)
@given(order_params(batching_method="random"), counts(4), counts(3), counts(3))
def test_whole_batches_are_those_of_the_padded_epoch(
    params: OrderParams, nodes: int, ranks: int, workers: int
) -> None:
    params = replace(params, initial_physical_nodes=None)
    samples = sum(stream.choose for stream in params.streams)
    assume(samples > params.num_canonical_nodes)
    try:
        padded = global_batches(plan_epoch(params, nodes, ranks, workers, 1))
        exact = global_batches(plan_epoch(replace(params, pad="none"), nodes, ranks, workers, 1))
    except ValueError:
        assume(False)
    size = nodes * ranks * params.batch_size
    same = samples // params.num_canonical_nodes * params.num_canonical_nodes // size
    assert exact[:same] == padded[:same]


def test_what_it_does_not_go_with() -> None:
    stream = StreamShape(np.array([8]), 8, 1.0)
    params = OrderParams((stream,), 8, 2, 1, pad="none")
    with pytest.raises(ValueError, match="every sample once"):
        plan_epoch(replace(params, batching_method="per_stream"), 1, 1, 1, 0)
    with pytest.raises(ValueError, match="use 'repeat' or 'none'"):
        plan_epoch(replace(params, pad="some"), 1, 1, 1, 0)
    with pytest.raises(ValueError, match="after 20 samples of an epoch that has 8"):
        plan_epoch(params, 1, 1, 1, 0, 20)
    assert plan_epoch(params, 1, 1, 1, 0, 8).empty
