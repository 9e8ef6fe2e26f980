"""What a physical node keeps of an epoch that is drawn as a whole."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.order import OrderParams, StreamShape, draw_ids, plan_epoch
from streaming.order.draws import EpochDraws, SharedIds
from streaming.order.share import Share, share_of
from streaming.order.shuffle import draw_shuffle
from tests.order.strategies import counts, thorough


class DrawsOfNode(EpochDraws):
    """Draws of which only a node's share is there."""

    def __init__(self, params: OrderParams, epoch: int, nodes: int, node: int) -> None:
        super().__init__(params, epoch)
        self.nodes, self.node = nodes, node

    def _make(self, stream_id: int | None) -> SharedIds:
        share = share_of(self.params, stream_id, self.nodes, self.node)
        assert share is not None
        return SharedIds(share, draw_ids(self.params, self.epoch, stream_id, share), _never)


def _never() -> SharedIds:
    raise AssertionError("a node was given a sample that is not in its share")


@thorough(300)
@given(st.data())
def test_a_node_needs_nothing_but_its_share(data: st.DataObject) -> None:
    fewer, factor = data.draw(counts(4)), data.draw(counts(4))
    pair = fewer, fewer * factor
    canonical, nodes = pair if data.draw(st.booleans()) else pair[::-1]
    sizes = np.array(data.draw(st.lists(counts(60), min_size=1, max_size=12)))
    size = int(sizes.sum())
    choose = data.draw(st.one_of(st.just(size), counts(2 * size)))
    method = data.draw(st.sampled_from(["random", "per_stream"]))
    params = OrderParams(
        *((StreamShape(sizes, choose, 1.0),), choose, data.draw(counts(5)), canonical),
        shuffle=data.draw(st.booleans()),
        shuffle_block_size=20,
        batching_method=method,
        partition_algo=data.draw(st.sampled_from(["orig", "relaxed"])),
    )
    stream = 0 if method == "per_stream" else None
    ranks, workers = data.draw(counts(3)), data.draw(counts(2))
    used = data.draw(st.integers(0, choose))
    if share_of(params, stream, nodes, 0) is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            whole = plan_epoch(params, nodes, ranks, workers, 1, used)
        except ValueError:
            return
        for node in range(nodes):
            draws = DrawsOfNode(params, 1, nodes, node)
            plan = plan_epoch(params, nodes, ranks, workers, 1, used, draws=draws)
            for rank in range(ranks):
                assert np.array_equal(plan.ids(node, rank, 0), whole.ids(node, rank, 0))


@pytest.mark.parametrize(("canonical", "nodes"), [(1, 4), (4, 4), (8, 4), (2, 8)])
def test_shares_are_a_nodes_part(canonical: int, nodes: int) -> None:
    numbers = np.arange(1003)
    shares = [Share(1003, canonical, nodes, node) for node in range(nodes)]
    taken = [share.take(numbers) for share in shares]
    assert np.array_equal(np.unique(np.concatenate(taken)), numbers)
    assert max(map(len, taken)) <= 1003 / nodes + 3 * max(1, nodes // canonical) + 2
    for share, own in zip(shares, taken, strict=True):
        places = share.places(numbers)
        assert np.array_equal(places[own], np.arange(len(own)))
        assert (places >= 0).sum() == len(own)
        assert share.places(np.array([-1, -1])).tolist() == [-1, -1]


@pytest.mark.parametrize("algo", ["py1e", "py1br", "py1s", "py2s", "naive"])
@pytest.mark.parametrize(("canonical", "nodes"), [(3, 3), (6, 3), (1, 3)])
def test_shuffles_of_shares(algo: str, canonical: int, nodes: int) -> None:
    sizes = np.random.default_rng(0).integers(1, 60, 50)
    size = int(sizes.sum())
    whole = draw_shuffle(algo, sizes, canonical, 5, 2, 100)
    for node in range(nodes):
        share = Share(size, canonical, nodes, node)
        own = draw_shuffle(algo, sizes, canonical, 5, 2, 100, share=share)
        assert np.array_equal(own, share.take(whole))


def test_where_any_number_may_be_asked_for() -> None:
    params = OrderParams((StreamShape(np.full(10, 10), 100, 1.0),), 100, 4, 2, shuffle=True)
    assert share_of(params, None, 2, 0) is not None
    assert share_of(params, None, 1, 0) is None
    assert share_of(params, None, 3, 0) is None
    assert share_of(replace(params, pad="none"), None, 2, 0) is None
    assert share_of(replace(params, batching_method="stratified"), None, 2, 0) is None
    assert share_of(replace(params, num_canonical_nodes=200), None, 2, 0) is None


def test_what_others_are_given_is_found_elsewhere() -> None:
    params = OrderParams((StreamShape(np.full(10, 10), 100, 1.0),), 100, 4, 2, shuffle=True)
    share = share_of(params, None, 2, 1)
    assert share is not None
    whole = draw_ids(params, 0)
    ids = SharedIds(share, draw_ids(params, 0, None, share), lambda: whole)
    numbers = np.array([-1, *range(100)])
    assert np.array_equal(ids(numbers), whole(numbers))
