"""The encodings of XSV and JSONL columns."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.format.encodings.json import is_json_encoded, is_json_encoding
from streaming.format.encodings.xsv import is_xsv_encoding, xsv_decode, xsv_encode
from streaming.format.errors import EncodeRangeError, EncodeTypeError, FormatError


def test_names() -> None:
    for known in ("str", "int", "float"):
        assert is_xsv_encoding(known)
        assert is_json_encoding(known)
    for unknown in ("", "bool", "bytes", "Str"):
        assert not is_xsv_encoding(unknown)
        assert not is_json_encoding(unknown)
        for use in (xsv_encode, xsv_decode, is_json_encoded):
            with pytest.raises(FormatError, match="Unsupported"):
                use(unknown, "x")


@given(st.text())
def test_text(value: str) -> None:
    assert xsv_decode("str", xsv_encode("str", value)) == value
    assert is_json_encoded("str", value)


@given(st.integers())
def test_integers(value: int) -> None:
    assert xsv_encode("int", value) == str(value)
    assert xsv_decode("int", str(value)) == value
    assert is_json_encoded("int", value)


@given(st.floats())
def test_floats(value: float) -> None:
    found = xsv_decode("float", xsv_encode("float", value))
    assert found == value or (math.isnan(found) and math.isnan(value))
    if math.isfinite(value):
        assert is_json_encoded("float", value)
    else:
        with pytest.raises(EncodeRangeError, match="JSON"):
            is_json_encoded("float", value)


def test_numpy_numbers_become_text() -> None:
    assert xsv_encode("int", np.int64(-3)) == "-3"
    assert xsv_encode("int", True) == "1"
    assert xsv_encode("float", np.float32(0.5)) == "0.5"
    assert xsv_encode("float", np.float64(0.1)) == "0.1"


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("str", 1),
        ("str", None),
        ("str", b"x"),
        ("int", "1"),
        ("int", 1.0),
        ("int", None),
        ("float", 1),
        ("float", "1.0"),
        ("float", True),
    ],
)
def test_wrong_types_are_refused(encoding: str, value: Any) -> None:
    with pytest.raises(EncodeTypeError):
        xsv_encode(encoding, value)
    with pytest.raises(EncodeTypeError):
        is_json_encoded(encoding, value)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("int", ""),
        ("int", "1.0"),
        ("int", "1_000"),
        ("int", "٣"),
        ("int", "True"),
        ("int", "9" * 5000),
        ("float", ""),
        ("float", "one"),
    ],
)
def test_damaged_text_is_an_error(encoding: str, text: str) -> None:
    with pytest.raises(FormatError):
        xsv_decode(encoding, text)
