"""Sizes and numbers as people write them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.units import bytes_to_int, get_list_arg, number_abbrev_to_int

# Recorded from mosaicml-streaming 0.13.
BYTES: list[tuple[Any, int]] = [
    (1, 1),
    (1.9, 1),
    (-1, -1),
    (True, 1),
    (0, 0),
    ("0", 0),
    ("1", 1),
    ("1b", 1),
    ("1kb", 1 << 10),
    ("1 kb", 1 << 10),
    (" 1kb ", 1 << 10),
    ("1.5mb", 1572864),
    ("1MB", 1 << 20),
    ("10gb", 10 << 30),
    ("2tb", 2 << 40),
    ("1pb", 1 << 50),
    ("1eb", 1 << 60),
    ("1zb", 1 << 70),
    ("1yb", 1 << 80),
    ("-1kb", -1024),
]
NO_BYTES = ["1.5", "", "kb", "-1", "1k", "1e3", "1_000", "100,000", "1kib", "1.0001b", "0.1b"]
NO_BYTES += ["nan", "inf", "0x10", "1kb1", "1bb", "infkb", "1e3kb", "1_0kb", "x", "٣", "٣kb", "²"]
NUMBERS: list[tuple[Any, int]] = [
    (1, 1),
    (1.9, 1),
    (-1, -1),
    (True, 1),
    ("0", 0),
    ("1", 1),
    ("1k", 1000),
    ("1 k", 1000),
    (" 1k ", 1000),
    ("1.0k", 1000),
    ("1.5m", 1_500_000),
    ("1M", 10**6),
    ("10b", 10**10),
    ("2t", 2 * 10**12),
    ("-1k", -1000),
    ("2.3k", int(2.3 * 1000)),
]
NO_NUMBERS = ["1.5", "1g", "", "k", "-1", "1kb", "1e3", "1_000", "100,000", "nan", "ba", "1,5m"]


@pytest.mark.parametrize(("text", "value"), BYTES)
def test_bytes(text: Any, value: int) -> None:
    assert bytes_to_int(text) == value
    assert type(bytes_to_int(text)) is int


@pytest.mark.parametrize("text", NO_BYTES)
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of bytes") as caught:
        bytes_to_int(text)
    assert repr(text) in str(caught.value)
    assert "b, kb, mb" in str(caught.value)


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_numbers(text: Any, value: int) -> None:
    assert number_abbrev_to_int(text) == value


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="k, m, b, t"):
        number_abbrev_to_int(text)


@pytest.mark.parametrize("parse", [bytes_to_int, number_abbrev_to_int])
def test_other_types(parse: Any) -> None:
    for value in (None, [], {}):
        with pytest.raises(TypeError, match=r"give an integer or text"):
            parse(value)
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"give an integer or text"):
            parse(value)


@given(st.integers(0, 10**9), st.sampled_from(["kb", "mb", "gb", "tb"]), st.booleans())
def test_a_size_is_a_multiple_of_its_unit(number: int, unit: str, upper: bool) -> None:
    text = f"{number}{unit.upper() if upper else unit}"
    assert bytes_to_int(text) == number << 10 * (1 + ["kb", "mb", "gb", "tb"].index(unit))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ["a", "b"]),
        ("a, b", ["a", " b"]),
        ("", []),
        ("a,,b", ["a", "", "b"]),
        ("a b", ["a b"]),
        (None, []),
    ],
)
def test_lists(text: Any, parts: list[str]) -> None:
    assert get_list_arg(text) == parts
