"""Every MDS encoding returns what it was given, and damaged bytes are an error, for any value."""

import decimal
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from streaming.format.encodings.mds import get_mds_encodings, mds_decode, mds_encode
from streaming.format.errors import FormatError

TEXT = st.text()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
DTYPES = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
DTYPES += ["float16", "float32", "float64"]

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(),
    "str": TEXT,
    "int": st.integers(-(2**63), 2**63 - 1),
    "str_int": st.integers(),
    "str_float": st.floats(),
    "str_decimal": st.decimals(),
    "json": JSON,
    "pkl": JSON | st.tuples(st.integers()) | st.sets(st.integers()) | st.binary(),
}
for name in DTYPES:
    if name[0] == "f":
        VALUES[name] = st.floats(width=int(name[5:]))  # type: ignore[arg-type]
    else:
        info = np.iinfo(name)
        VALUES[name] = st.integers(int(info.min), int(info.max))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, decimal.Decimal):
        return str(a) == str(b)
    if isinstance(a, float):
        if math.isnan(a):
            return math.isnan(b)
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


@pytest.mark.parametrize("encoding", VALUES)
def test_what_goes_in_comes_out(encoding: str) -> None:
    @given(VALUES[encoding])
    @settings(max_examples=60, deadline=None)
    def check(value: Any) -> None:
        if encoding == "pkl" and isinstance(value, bytes) and value[:1] == b"\x80":
            return  # what looks like a pickle is taken for one
        found = mds_decode(encoding, mds_encode(encoding, value))
        assert same(value, found)
        if encoding not in DTYPES:
            assert type(found) is type(value)
        else:
            assert found.dtype == encoding

    check()


@pytest.mark.parametrize("form", ["dynamic", "typed", "shaped"])
def test_arrays_come_out(form: str) -> None:
    # A shape of its own needs at least one dimension, and no empty one.
    sides = {"min_dims": 1, "min_side": 1} if form == "shaped" else {"min_dims": 0, "min_side": 0}
    shapes = npst.array_shapes(max_dims=5, max_side=6, **sides)
    dtypes = st.sampled_from(DTYPES).map(np.dtype)

    @given(npst.arrays(dtypes, shapes, elements=None))
    @settings(max_examples=150, deadline=None)
    def check(value: np.ndarray[Any, Any]) -> None:
        encoding = "ndarray"
        if form != "dynamic":
            encoding += f":{value.dtype}"
        if form == "shaped":
            encoding += ":" + ",".join(map(str, value.shape))
        found = mds_decode(encoding, mds_encode(encoding, value))
        assert found.dtype == value.dtype
        assert found.shape == value.shape
        assert found.tobytes() == value.tobytes()
        assert found.flags.writeable

    check()


SAFE = sorted((get_mds_encodings() | {"ndarray:int16", "ndarray:int16:2,2"}) - {"pkl"})


@given(st.sampled_from(SAFE), st.binary(max_size=200))
@settings(max_examples=600, deadline=None)
def test_any_bytes_decode_or_are_an_error(encoding: str, data: bytes) -> None:
    try:
        mds_decode(encoding, data)
    except FormatError:
        pass


@given(st.binary(min_size=1, max_size=60))
@settings(max_examples=300, deadline=None)
def test_array_headers_never_ask_for_memory(data: bytes) -> None:
    try:
        found = mds_decode("ndarray", data)
    except FormatError:
        return
    assert found.nbytes < len(data)
