from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streaming.order.arrays import CHUNK
from streaming.order.partition import get_partitions, make_partition
from tests.order.strategies import partitions, thorough

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def by_arrays(
    num_samples: int,
    num_canonical_nodes: int,
    num_physical_nodes: int,
    ranks_per_node: int,
    workers_per_rank: int,
    batch_size: int,
    drop_first: int,
) -> Any:
    """The partition `orig` as its specification tells it, with whole arrays."""
    nodes, canonical, ranks = num_physical_nodes, num_canonical_nodes, ranks_per_node
    if nodes % canonical and canonical % nodes:
        raise ValueError
    drop_first -= drop_first % nodes
    width = -(-num_samples // canonical)
    ratio = max(1, nodes // canonical)
    pad = -width % ratio
    if num_samples > canonical or (num_samples == canonical and canonical >= nodes):
        rows = []
        for row in range(canonical):
            begin = row * num_samples // canonical
            end = (row + 1) * num_samples // canonical
            samples = list(range(begin, begin + width))
            if end - begin < width:
                samples[-1] -= 1
            if pad:
                if width < ratio + pad - 1:
                    raise ValueError
                first = width - pad - ratio + 1
                samples += samples[first : first + pad]
            rows.append(samples)
        table = np.array(rows)
    else:
        table = np.resize(np.arange(num_samples), (canonical, width + pad))
    of_nodes = table.T.ravel()[drop_first:].reshape(-1, nodes).T
    count = of_nodes.shape[1]
    if count % ranks:
        missing = ranks - count % ranks
        if ranks + missing - 1 <= count:
            more = of_nodes[:, count - ranks - missing + 1 : count - ranks + 1]
        else:
            more = np.tile(of_nodes, -(-missing // count))[:, :missing]
        of_nodes = np.hstack([of_nodes, more])
    of_ranks = of_nodes.reshape(nodes, -1, ranks)
    gap = -of_ranks.shape[1] % (workers_per_rank * batch_size)
    of_ranks = np.pad(of_ranks, ((0, 0), (0, gap), (0, 0)), constant_values=-1)
    dealt = of_ranks.transpose(0, 2, 1).reshape(nodes, ranks, -1, workers_per_rank, batch_size)
    return dealt.transpose(0, 1, 3, 2, 4)


def reference(
    algo: str, drop_first: int, initial_physical_nodes: int | None, **arguments: Any
) -> Any:
    """`get_partitions`, as its specification tells it."""
    samples, canonical, nodes, ranks, workers, batch_size = arguments.values()
    world = nodes * ranks
    if samples + world - samples % world < drop_first:
        raise ValueError
    first = initial_physical_nodes
    fits = canonical % nodes == 0 or nodes % canonical == 0
    if algo == "orig" or first is None or fits:
        return by_arrays(**arguments, drop_first=drop_first)
    if world * batch_size % (first * ranks):
        raise ValueError
    arguments |= {"num_physical_nodes": first, "batch_size": world * batch_size // (first * ranks)}
    dealt = by_arrays(**arguments, drop_first=drop_first)
    in_use = dealt.transpose(3, 2, 0, 1, 4).ravel()
    return in_use.reshape(-1, workers, nodes, ranks, batch_size).transpose(2, 3, 1, 0, 4)


@thorough(1500)
@given(partitions())
def test_arithmetic_is_the_partition_by_arrays(arguments: dict[str, Any]) -> None:
    try:
        expected = reference(**arguments)
    except ValueError:
        with pytest.raises(ValueError):
            get_partitions(**arguments)
        return
    found = get_partitions(**arguments)
    assert found.dtype == np.int64
    assert np.array_equal(found, expected)


@thorough(300)
@given(partitions(), st.data())
def test_any_positions_in_any_order(arguments: dict[str, Any], data: st.DataObject) -> None:
    try:
        partition = make_partition(**arguments)
    except ValueError:
        assume(False)
    everything = partition.samples(np.arange(partition.num_positions))
    assume(len(everything))
    places = st.lists(st.integers(0, len(everything) - 1), max_size=30)
    positions = np.array(data.draw(places), np.int64)
    before = positions.copy()
    assert np.array_equal(partition.samples(positions), everything[positions])
    assert np.array_equal(positions, before)


def test_a_partition_of_a_trillion_samples_is_made_at_once() -> None:
    samples, canonical = 10**12 + 64, 128
    partition = make_partition("orig", samples, canonical, 16, 8, 8, 32)
    global_batch = partition.layout.global_batch
    for batch in (0, 12345, samples // global_batch - 1):
        elements = range(batch * global_batch, (batch + 1) * global_batch)
        common = {
            element % canonical * samples // canonical + element // canonical
            for element in elements
        }
        assert set(partition.samples(np.array(elements)).tolist()) == common


def test_longer_than_a_chunk() -> None:
    found = get_partitions("orig", 3 * CHUNK + 5, 2, 2, 1, 1, 1)
    assert np.array_equal(np.unique(found), np.arange(3 * CHUNK + 5))


def test_an_empty_epoch_is_dealt_out() -> None:
    assert get_partitions("orig", 0, 1, 2, 3, 4, 5).shape == (2, 3, 4, 0, 5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"algo": "other"}, "no partition algorithm 'other'"),
        ({"num_samples": -1}, "can't have -1 samples"),
        ({"num_canonical_nodes": 0}, "`num_canonical_nodes` must be from 1 up"),
        ({"num_canonical_nodes": 3}, "3 canonical nodes can't be dealt out to 2 physical nodes"),
        ({"num_physical_nodes": 0}, "1 or more nodes"),
        ({"ranks_per_node": 0}, "1 or more ranks per node"),
        ({"workers_per_rank": 0}, "1 or more workers per rank"),
        ({"batch_size": 0}, "1 or more samples per batch"),
        ({"drop_first": -1}, "after -1 samples"),
        ({"drop_first": 1000}, "after 1000 samples of an epoch that has 20"),
        ({"num_samples": 3, "num_physical_nodes": 16, "num_canonical_nodes": 1}, "too few"),
        (
            {"algo": "relaxed", "num_canonical_nodes": 3, "initial_physical_nodes": 3},
            "global batch of 4 samples can't be dealt out to the 3 ranks that this run began on",
        ),
    ],
)
def test_errors_say_what_does_not_fit(changed: dict[str, Any], message: str) -> None:
    arguments = {
        "algo": "orig",
        "num_samples": 20,
        "num_canonical_nodes": 2,
        "num_physical_nodes": 2,
        "ranks_per_node": 1,
        "workers_per_rank": 1,
        "batch_size": 2,
    }
    with pytest.raises(ValueError, match=message):
        get_partitions(**{**arguments, **changed})


def test_rounding_down_what_is_dropped_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert get_partitions("orig", 10, 2, 2, 1, 1, 4, drop_first=3)[0, 0, 0, 0].tolist() == [
        *(1, 2, 3, 4)
    ]
    assert "after 3 samples on 2 nodes; resuming after 2" in caplog.text


@pytest.mark.filterwarnings("default::UserWarning")
def test_many_repeats_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="3 samples are few for 4 canonical nodes"):
        get_partitions("orig", 3, 4, 4, 1, 1, 2)
    with pytest.warns(UserWarning, match="2 samples are few for 8 ranks of each node"):
        get_partitions("orig", 2, 1, 1, 8, 1, 2)
