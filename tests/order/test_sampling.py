from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.order import OrderParams, StreamShape, get_sampling, resample
from streaming.order.sampling import resample_narrow
from tests.order.strategies import counts, order_params, thorough


def reference_sampling(sizes: Any, choose: int, granularity: int, seed: int) -> Any:
    """Pick after pick, as the specification tells it."""
    total = sizes.sum()
    taken = sizes * (choose // total)
    picks = [
        (shard, min(granularity, size - begin))
        for shard, size in enumerate(sizes.tolist())
        for begin in range(0, size, granularity)
    ]
    left = choose % total
    for pick in np.random.default_rng(seed).permutation(len(picks)):
        shard, size = picks[pick]
        taken[shard] += min(size, left)
        left -= min(size, left)
    return taken


@thorough(400)
@given(
    st.lists(counts(30), min_size=1, max_size=20),
    st.integers(0, 1000),
    counts(12),
    st.integers(0, 9),
    st.booleans(),
)
def test_picks(
    sizes: list[int], choose: int, granularity: int, epoch: int, use_epoch: bool
) -> None:
    shards = np.array(sizes)
    found = get_sampling(shards, choose, granularity, 5, epoch, use_epoch)
    assert found.sum() == choose
    seed = 5 + epoch * use_epoch
    assert np.array_equal(found, reference_sampling(shards, choose, granularity, seed))


@pytest.mark.parametrize("granularity", [1, 3])
def test_picks_of_empty_shards(granularity: int) -> None:
    sizes = np.array([0, 4, 0, 0, 5, 0])
    for choose in range(10):
        found = get_sampling(sizes, choose, granularity, 5, 1, True)
        assert np.array_equal(found, reference_sampling(sizes, choose, granularity, 6))


def reference_resample(params: OrderParams, epoch: int, stream_ids: list[int]) -> Any:
    """Shard after shard, as the specification tells it."""
    balanced = params.sampling_method == "balanced"
    rng = np.random.default_rng(params.shuffle_seed + epoch * balanced)
    units, ids = [], []
    for stream_id in stream_ids:
        stream = params.streams[stream_id]
        at = sum(int(each.shard_sizes.sum()) for each in params.streams[:stream_id])
        counts = get_sampling(
            stream.shard_sizes,
            stream.choose,
            params.sampling_granularity,
            params.shuffle_seed,
            epoch,
            balanced and params.shuffle,
        )
        for size, count in zip(stream.shard_sizes.tolist(), counts.tolist(), strict=True):
            units += [size] * (count // size)
            ids += list(range(at, at + size)) * (count // size)
            if count % size:
                units.append(count % size)
                ids += sorted((at + rng.choice(size, count % size, replace=False)).tolist())
            at += size
    return units, ids


@thorough(300)
@given(order_params().filter(lambda params: not params.is_computed), st.integers(0, 5))
def test_resampling(params: OrderParams, epoch: int) -> None:
    everything = list(range(len(params.streams)))
    for stream_id, stream_ids in [(None, everything), *((each, [each]) for each in everything)]:
        units, ids = resample(params, epoch, stream_id)
        assert units.dtype == ids.dtype == np.int64
        expected = reference_resample(params, epoch, stream_ids)
        assert (units.tolist(), ids.tolist()) == expected
        narrow = resample_narrow(params, epoch, stream_id)
        if narrow.ids is None:
            assert ids.tolist() == list(range(narrow.offset, narrow.offset + len(ids)))
        else:
            assert narrow.ids.dtype == np.uint8


def test_nothing_is_kept_where_nothing_is_resampled() -> None:
    sizes = np.array([4, 4, 2])
    streams = (StreamShape(sizes, 10, 0.5), StreamShape(sizes, 10, 0.5))
    params = OrderParams(streams, 20, 1, 1)
    assert resample_narrow(params, 0).ids is None
    assert resample_narrow(params, 0, 1).offset == 10


def test_shards_without_samples_give_none() -> None:
    stream = StreamShape(np.array([0, 3, 0]), 5, 1.0)
    units, ids = resample(OrderParams((stream,), 5, 1, 1), 0)
    assert units.tolist() == [3, 2]
    assert set(ids.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"choose": -1}, "`choose` from 0 up, not -1"),
        ({"granularity": 0}, "`granularity` from 1 up, not 0"),
        ({"seed": -1}, "`seed` from 0 up, not -1"),
        ({"epoch": -1}, "`epoch` from 0 up, not -1"),
        ({"samples_per_shard": np.array([0])}, "choose 3 samples of a stream that has none"),
    ],
)
def test_errors(changed: dict[str, Any], message: str) -> None:
    arguments = {
        "samples_per_shard": np.array([3, 4]),
        "choose": 3,
        "granularity": 1,
        "seed": 0,
        "epoch": 0,
        "use_epoch": True,
    }
    with pytest.raises(ValueError, match=message):
        get_sampling(**{**arguments, **changed})
