import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.order import Spanner
from streaming.order import spanner as spanner_module
from tests.order.strategies import thorough


@thorough(200)
@given(st.lists(st.integers(0, 5), max_size=12))
def test_every_sample_is_found(sizes: list[int]) -> None:
    spanner = Spanner(np.array(sizes, np.int64))
    expected = [(shard, place) for shard, size in enumerate(sizes) for place in range(size)]
    assert len(spanner) == len(expected)
    assert [spanner[index] for index in range(len(spanner))] == expected
    shards, places = spanner.locate(np.arange(len(spanner)))
    assert list(zip(shards.tolist(), places.tolist(), strict=True)) == expected


@pytest.mark.parametrize("index", [-1, 7, np.int64(7)])
def test_other_samples_are_not(index: int) -> None:
    spanner = Spanner(np.array([3, 4]))
    message = f"no sample {index}: they number 0 to 6"
    with pytest.raises(IndexError, match=message):
        spanner[index]
    with pytest.raises(IndexError, match=message):
        spanner.locate(np.array([0, index]))


def test_plain_numbers_come_back() -> None:
    shard, place = Spanner(np.array([3, 4]))[np.int64(5)]
    assert type(shard) is type(place) is int


def test_many_shards_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spanner_module, "_LISTED", 2)
    spanner = Spanner(np.array([3, 0, 4]))
    expected = [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (2, 2), (2, 3)]
    for each in (spanner, pickle.loads(pickle.dumps(spanner))):
        assert isinstance(each._bounds, memoryview)
        assert [each[index] for index in range(7)] == expected
