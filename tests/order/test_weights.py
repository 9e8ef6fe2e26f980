from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.order import derive_weights, validate_weights
from tests.order.strategies import thorough

NONE = [None, None]


@thorough(300)
@given(
    st.lists(st.tuples(st.floats(0.01, 10), st.integers(1, 500)), min_size=1, max_size=12),
    st.none() | st.integers(1, 5000),
)
def test_relative_weights_fill_the_epoch(
    streams: list[tuple[float, int]], epoch_size: int | None
) -> None:
    weights, samples = zip(*streams, strict=True)
    none = [None] * len(weights)
    found = derive_weights(weights, none, none, samples, epoch_size, seed=3)
    assert found.epoch_size == (sum(samples) if epoch_size is None else epoch_size)
    assert sum(found.choose) == found.epoch_size
    for weight, proportion, repeat, choose, size in zip(
        weights, found.proportion, found.repeat, found.choose, samples, strict=True
    ):
        assert proportion == pytest.approx(weight / sum(weights))
        assert choose - found.epoch_size * proportion == pytest.approx(0, abs=1.001)
        assert repeat == choose / size


def test_absolute_weights_make_the_epoch() -> None:
    found = derive_weights([None] * 3, [1.5, None, None], [None, 7, None], [10, 10, 8], None, 0)
    assert found.choose == [15, 7, 8]
    assert found.epoch_size == 30
    assert found.proportion == [0.5, 7 / 30, 8 / 30]


def test_without_weights_an_epoch_size_is_dealt_out_by_size() -> None:
    assert derive_weights(NONE, NONE, NONE, [30, 10], 8, 0).choose == [6, 2]


def test_plain_numbers_come_back() -> None:
    found = derive_weights(NONE, NONE, NONE, np.array([30, 10]), None, 0)
    assert {type(each) for each in found.choose} == {int}
    assert {type(each) for each in found.proportion + found.repeat} == {float}


def test_a_stream_without_samples_may_give_none() -> None:
    found = derive_weights(NONE, NONE, NONE, [0, 20], None, 0)
    assert (found.choose, found.repeat, found.proportion) == ([0, 20], [0.0, 1.0], [0.0, 1.0])


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (([1.0, 2.0], NONE, NONE), (True, False)),
        ((NONE, [1.0, None], [None, 2]), (False, False)),
        ((NONE, NONE, NONE), (False, True)),
    ],
)
def test_kinds_of_weights(weights: Any, expected: tuple[bool, bool]) -> None:
    assert validate_weights(*weights) == expected


@pytest.mark.parametrize(
    ("proportions", "repeats", "chooses", "samples", "epoch_size", "message"),
    [
        ([1, None], NONE, NONE, [1, 1], None, "every stream needs it, or none; stream 1 has none"),
        ([1, 1], [None, 2], NONE, [1, 1], None, "stream 1 has `proportion` and `repeat`"),
        (NONE, [1, None], [3, None], [1, 1], None, "stream 0 has `repeat` and `choose`"),
        ([1, -1], NONE, NONE, [1, 1], None, "`proportion` of stream 1 .* not -1"),
        (NONE, [float("nan"), 1], NONE, [1, 1], None, "`repeat` of stream 0 .* not nan"),
        (NONE, NONE, [-2, None], [1, 1], None, "`choose` of stream 0 .* not -2"),
        (NONE, [1, None], NONE, [1, 1], 5, "`epoch_size` .5. and the streams' absolute weights"),
        ([1, 1], NONE, NONE, [1, 1], 0, "`epoch_size` must be .* not 0"),
        ([0, 0], NONE, NONE, [1, 1], None, "No stream weighs anything"),
        (NONE, NONE, NONE, [0, 0], 5, "No stream weighs anything"),
        ([1, 1], NONE, NONE, [0, 4], 10, "Stream 0 has no samples, but its weight asks for 5"),
        ([], [], [], [], None, "There are no streams"),
    ],
)
def test_errors(
    proportions: Any, repeats: Any, chooses: Any, samples: Any, epoch_size: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        derive_weights(proportions, repeats, chooses, samples, epoch_size, 0)
