"""Choices within many shards at once, held against NumPy's within each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.order import choices
from streaming.order.choices import choose_sorted, draw_below_each
from tests.order.strategies import thorough


def one_by_one(rng: np.random.Generator, sizes: list[int], counts: list[int]) -> list[int]:
    return [
        place
        for size, count in zip(sizes, counts, strict=True)
        for place in sorted(rng.choice(size, count, replace=False).tolist())
    ]


def check_same(sizes: list[int], counts: list[int], seed: int) -> None:
    ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
    expected = one_by_one(theirs, sizes, counts)
    assert choose_sorted(ours, np.array(sizes), np.array(counts)).tolist() == expected
    # The generators go on alike, half-used words included.
    assert ours.integers(100, size=3).tolist() == theirs.integers(100, size=3).tolist()


def test_this_numpy_draws_as_it_is_known_to() -> None:
    assert choices._is_known()


@thorough(300)
@given(st.lists(st.tuples(st.integers(2, 60), st.floats(0, 1)), max_size=40), st.integers(0, 99))
def test_small_shards(shards: list[tuple[int, float]], seed: int) -> None:
    sizes = [size for size, _ in shards]
    counts = [1 + int(part * (size - 2)) for size, part in shards]
    check_same(sizes, counts, seed)


@pytest.mark.parametrize("size", [9_999, 10_000, 10_001, 20_050])
@pytest.mark.parametrize("more", [-1, 0, 1, 500])
def test_where_numpy_changes_its_algorithm(size: int, more: int) -> None:
    check_same([size] * 10, [size // 50 + more] * 10, 7)


def test_kinds_that_take_turns() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.choice([2, 30, 3000, 12_000], 200).tolist()
    check_same(
        sizes,
        [
            max(1, int(part * size))
            for part, size in zip(rng.random(200) ** 3 * 0.999, sizes, strict=True)
        ],
        1,
    )


def test_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "_CHUNK", 5000)
    sizes = np.random.default_rng(0).integers(2, 1500, 400)
    check_same(sizes.tolist(), (sizes // 2).tolist(), 3)


def test_an_unknown_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "_is_known", lambda: False)
    monkeypatch.setattr(choices, "_choose_together", None)
    check_same([20] * 30, [7] * 30, 3)


@pytest.mark.parametrize("limit", [(1 << 31) + 1, 3 << 30, (1 << 32) - 1, 1000])
def test_numbers_that_are_rejected(limit: int) -> None:
    """For large ranges up to half of all words are drawn anew."""
    ours, theirs = np.random.default_rng(5), np.random.default_rng(5)
    found = draw_below_each(ours, np.full(300, limit, np.uint64)).tolist()
    assert found == [int(theirs.integers(limit)) for _ in range(300)]
    assert ours.integers(10) == theirs.integers(10)
