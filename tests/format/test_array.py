"""Indexing as with a list."""

from typing import Any

import numpy as np
import pytest

from streaming.base.array import Array as OldPath
from streaming.format.array import Array


class Tens(Array):
    seen: list[Any]

    def __init__(self) -> None:
        self.seen = []

    @property
    def size(self) -> int:
        return 5

    def get_item(self, idx: int) -> int:
        assert type(idx) is int
        return idx * 10


class Watched(Tens):
    def __getitem__(self, at: Any) -> Any:
        self.seen.append(type(at).__name__)
        return super().__getitem__(at)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (0, 0),
        (4, 40),
        (-1, 40),
        (-5, 0),
        (np.int64(3), 30),
        (np.uint8(3), 30),
        (np.array(3), 30),
        (True, 10),
        (slice(None), [0, 10, 20, 30, 40]),
        (slice(1, 100, 2), [10, 30]),
        (slice(None, None, -1), [40, 30, 20, 10, 0]),
        (slice(-2, None), [30, 40]),
        (slice(3, 3), []),
        ([], []),
        ([1, -1], [10, 40]),
        ([[1], [2]], [[10], [20]]),
        (np.array([1, -1]), [10, 40]),
        (np.array([[1, 2], [3, 4]]), [[10, 20], [30, 40]]),
        (np.array([]), []),
    ],
)
def test_what_can_be_asked_for(at: Any, expected: Any) -> None:
    assert Tens()[at] == expected


@pytest.mark.parametrize("at", [5, -6, [0, 5], np.array([-6]), 10**30])
def test_out_of_range(at: Any) -> None:
    with pytest.raises(IndexError, match="Tens has 5"):
        Tens()[at]


@pytest.mark.parametrize("at", ["1", 1.0, None, (1, 2), np.array([1.0]), np.array([True]), {}])
def test_what_is_no_index(at: Any) -> None:
    for kind in (TypeError, ValueError):
        with pytest.raises(kind, match="Tens"):
            Tens()[at]


def test_iteration_ends_and_goes_through_an_override() -> None:
    watched = Watched()
    assert list(watched) == [0, 10, 20, 30, 40]
    assert watched.seen == ["int"] * 5


def test_lists_go_through_an_override_slices_come_whole() -> None:
    watched = Watched()
    assert watched[[1, 2]] == [10, 20]
    assert watched.seen == ["list", "int", "int"]
    watched.seen.clear()
    assert watched[1:3] == [10, 20]
    assert watched.seen == ["slice"]


def test_the_base_class_needs_its_methods() -> None:
    assert OldPath is Array
    with pytest.raises(NotImplementedError):
        len(Array()[:])
    with pytest.raises(NotImplementedError):
        Array().get_item(0)
