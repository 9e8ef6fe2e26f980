"""The bytes of MDS encodings, what they refuse, and encodings that users add."""

import json
from collections.abc import Iterator
from decimal import Decimal
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from streaming.base.format.mds import encodings as old_path
from streaming.format.encodings import mds
from streaming.format.encodings.mds import (
    Encoding,
    NDArray,
    get_mds_encoded_size,
    get_mds_encodings,
    is_mds_encoding,
    is_mds_encoding_safe,
    mds_decode,
    mds_encode,
    register_encoding,
)
from streaming.format.errors import (
    EncodeError,
    EncodeRangeError,
    EncodeTypeError,
    FormatError,
)
from tests.format.record_bytes import RECORDED, shown, value_of


def test_bytes_are_those_that_were_recorded() -> None:
    wrong = []
    for encoding, described, recorded in json.loads(RECORDED.read_text()):
        data = mds_encode(encoding, value_of(described))
        if shown(data) != recorded:
            wrong.append((encoding, described, recorded, shown(data)))
    assert not wrong


def test_recorded_bytes_decode_to_their_values() -> None:
    for encoding, described, recorded in json.loads(RECORDED.read_text()):
        if described[0] == "array" and not recorded.startswith("sha256"):
            value = value_of(described)
            found = mds_decode(encoding, bytes.fromhex(recorded))
            assert found.dtype == value.dtype
            assert found.shape == value.shape
            assert (found == value).all()
            assert found.flags.writeable


NAMES = (
    "bytes str int ndarray uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 "
    "float64 str_int str_float str_decimal pil jpeg jpeg_array jpegarray png list[pil] list[jpeg] "
    "list[png] pkl json"
)


def test_names() -> None:
    assert get_mds_encodings() == set(NAMES.split())
    assert all(map(is_mds_encoding, NAMES.split()))
    assert [name for name in NAMES.split() if not is_mds_encoding_safe(name)] == ["pkl"]


@pytest.mark.parametrize(
    ("encoding", "size"),
    [
        ("int", 8),
        ("uint8", 1),
        ("int16", 2),
        ("float32", 4),
        ("float64", 8),
        ("ndarray:int32:2,3", 24),
        ("ndarray:float64:5", 40),
        ("ndarray:int32", None),
        ("ndarray", None),
        ("ndarray:", None),
        ("str", None),
        ("json", None),
        ("list[png]", None),
    ],
)
def test_sizes(encoding: str, size: int | None) -> None:
    assert get_mds_encoded_size(encoding) == size


@pytest.mark.parametrize(
    "encoding",
    [
        *("", "strr", "int:", "int8:3", "Pkl", "list[int]", "jpeg:90", "list["),
        *("ndarray:bool", "ndarray:complex64", "ndarray:<i4", "ndarray:i4", "ndarray::2"),
        *("ndarray:int32:", "ndarray:int32:0", "ndarray:int32:-1", "ndarray:int32:2,x"),
        *("ndarray:int32:2:3", "ndarray:int32:,", "ndarray:int32:1,"),
    ],
)
def test_what_is_no_encoding(encoding: str) -> None:
    assert not is_mds_encoding(encoding)
    for use in (
        lambda: get_mds_encoded_size(encoding),
        lambda: mds_encode(encoding, 1),
        lambda: mds_decode(encoding, b""),
    ):
        with pytest.raises(FormatError, match=r"ncoding|ndarray"):
            use()


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("bytes", "text"),
        ("bytes", None),
        ("bytes", bytearray(b"x")),
        ("str", 1),
        ("str", None),
        ("int", 1.0),
        ("int", "1"),
        ("int", None),
        ("int", np.array([1, 2])),
        ("uint8", None),
        ("uint8", "1"),
        ("int32", 1.5),
        ("int32", float("nan")),
        ("int32", np.float32(0.5)),
        ("int64", np.zeros(2)),
        ("float32", "1"),
        ("float32", None),
        ("float64", [1.0]),
        ("float64", np.zeros(2)),
        ("float64", 1j),
        ("str_int", 1.0),
        ("str_int", "1"),
        ("str_float", 1),
        ("str_float", "1.0"),
        ("str_decimal", 1.5),
        ("ndarray", [1, 2]),
        ("ndarray", np.int32(3)),
        ("ndarray", None),
        ("ndarray", np.zeros(2, bool)),
        ("ndarray", np.zeros(2, complex)),
        ("ndarray", np.array(["x"])),
        ("ndarray", np.array([None])),
        ("ndarray:int32", np.zeros(2, np.int64)),
        ("ndarray:int32:2", np.zeros(3, np.int32)),
        ("ndarray:int32:2", np.zeros((2, 1), np.int32)),
        ("json", {1, 2}),
        ("json", object()),
        ("pkl", (i for i in range(3))),
    ],
)
def test_wrong_types_are_refused(encoding: str, value: Any) -> None:
    with pytest.raises(EncodeTypeError) as caught:
        mds_encode(encoding, value)
    # What code written against 0.13 may catch, and what Python programmers expect.
    assert isinstance(caught.value, (AttributeError, TypeError, ValueError))
    assert str(caught.value)


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("int", 2**63),
        ("int", -(2**63) - 1),
        ("uint8", 256),
        ("uint8", -1),
        ("uint8", np.int64(300)),
        ("int8", 128),
        ("int16", -32769),
        ("uint64", 2**64),
        ("int64", 2**63),
        ("uint32", 2.0**32),
        ("float32", 1e40),
        ("float16", 65520),
        ("float16", np.float32(1e6)),
        ("float64", 10**400),
        ("str", "\ud800"),
        ("json", float("nan")),
        ("json", {"a": [float("inf")]}),
    ],
)
def test_what_does_not_fit_is_refused(encoding: str, value: Any) -> None:
    with pytest.raises(EncodeRangeError) as caught:
        mds_encode(encoding, value)
    assert isinstance(caught.value, (OverflowError, ValueError))


def test_an_integer_beyond_what_python_prints() -> None:
    for encoding in ("str_int", "int", "float64"):
        with pytest.raises(EncodeRangeError):
            mds_encode(encoding, 10**5000)


def test_errors_can_be_made_again_from_their_message() -> None:
    for kind in (FormatError, EncodeError, EncodeTypeError, EncodeRangeError):
        assert str(kind("column x, sample 3: too large")) == "column x, sample 3: too large"


@pytest.mark.parametrize(
    ("encoding", "value", "expected"),
    [
        ("int", np.int64(-5), -5),
        ("int", np.uint8(200), 200),
        ("int", True, 1),
        ("int32", np.array(7), 7),
        ("int32", np.array([7]), 7),
        ("uint8", np.bool_(True), 1),
        ("uint16", np.float64(3.0), 3),
        ("float32", np.array([0.5]), 0.5),
        ("float64", np.int8(-1), -1.0),
        ("str_int", np.int16(-9), -9),
        ("str_int", True, 1),
        ("str_float", np.float32(0.5), 0.5),
        ("str", np.str_("x"), "x"),
        ("bytes", np.bytes_(b"x"), b"x"),
        ("json", np.array([[1, 2]]), [[1, 2]]),
        ("json", {"a": np.float32(0.5), "b": [np.arange(2)]}, {"a": 0.5, "b": [[0, 1]]}),
        ("json", (1, 2), [1, 2]),
        ("ndarray", np.asfortranarray(np.arange(6).reshape(2, 3)), [[0, 1, 2], [3, 4, 5]]),
        ("ndarray:int32", np.arange(3, dtype=">i4"), [0, 1, 2]),
        ("ndarray:int32:3", np.arange(6, dtype="int32")[::2], [0, 2, 4]),
        ("ndarray", np.zeros((0, 3), np.int8), []),
        ("ndarray", np.array(5, np.int16), 5),
    ],
)
def test_values_are_taken_without_loss(encoding: str, value: Any, expected: Any) -> None:
    found = mds_decode(encoding, mds_encode(encoding, value))
    if isinstance(found, np.ndarray):
        assert found.tolist() == expected
        assert found.shape == np.shape(value)
        assert found.dtype.isnative
    else:
        assert found == expected


def test_a_tensor_of_one_element_is_a_number() -> None:
    import torch

    assert mds_decode("int", mds_encode("int", torch.tensor(3))) == 3
    assert mds_decode("float32", mds_encode("float32", torch.tensor(0.5))) == 0.5
    assert mds_decode("uint8", mds_encode("uint8", torch.tensor(200, dtype=torch.uint8))) == 200


def test_nan_keeps_its_bits() -> None:
    odd = np.frombuffer(b"\x01\x00\xa0\x7f", np.float32)[0]
    assert mds_encode("float32", odd) == b"\x01\x00\xa0\x7f"
    assert mds_decode("float32", b"\x01\x00\xa0\x7f").tobytes() == b"\x01\x00\xa0\x7f"


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("int", 7),
        ("str", "é"),
        ("json", [1]),
        ("ndarray", np.arange(3)),
        ("str_decimal", Decimal(1)),
    ],
)
def test_bytes_that_are_encoded_already_pass(encoding: str, value: Any) -> None:
    data = mds_encode(encoding, value)
    assert mds_encode(encoding, data) == data


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("int", b"seven"),
        ("str", b"\xff"),
        ("json", b"{"),
        ("ndarray", b"zz"),
        ("str_int", b"x"),
        ("uint16", b"abc"),
    ],
)
def test_other_bytes_are_refused(encoding: str, data: bytes) -> None:
    with pytest.raises(EncodeTypeError, match="not an encoded value"):
        mds_encode(encoding, data)


def test_pickle_takes_pickles_and_pickles_other_bytes() -> None:
    pickled = mds_encode("pkl", {"a": 1})
    assert mds_encode("pkl", pickled) == pickled
    for data in (b"", b"x", b"\x80", b"\x80\x04x"):
        assert mds_decode("pkl", mds_encode("pkl", data)) == data


DAMAGED = [
    ("int", bytes(7)),
    ("int", bytes(9)),
    ("uint16", b""),
    ("uint16", bytes(4)),
    ("float64", bytes(4)),
    ("str", b"\xff"),
    ("str_int", b""),
    ("str_int", b"1_000"),
    ("str_int", b"9" * 5000),
    ("str_float", b"1.0x"),
    ("str_decimal", b"abc"),
    ("json", b"{"),
    ("json", b"\xff"),
    ("json", b"[" * 100_000),
    ("pkl", b"nonsense"),
    ("ndarray", b""),
    ("ndarray", b"\x21"),
    ("ndarray", b"\xff\x04\x01\x00"),
    ("ndarray", b"\x08\x04"),
    ("ndarray", b"\x08\x04\x02\x00"),
    ("ndarray", b"\x08\x04\x01\x00\x00"),
    ("ndarray:int32", b"\x04\x02" + bytes(7)),
    ("ndarray:int32", b"\x00" + bytes(12)),
    # Dimensions whose product is beyond all memory, and one that is zero beside them.
    ("ndarray:uint8", b"\x0b" + b"\xff" * 16),
    ("ndarray:uint8", b"\x0b" + b"\xff" * 8 + bytes(8)),
    ("ndarray:int32:2", bytes(7)),
    ("ndarray:int32:2", bytes(12)),
]


@pytest.mark.parametrize(("encoding", "data"), DAMAGED)
def test_damaged_bytes_are_an_error(encoding: str, data: bytes) -> None:
    with pytest.raises(FormatError):
        mds_decode(encoding, data)


@pytest.fixture
def registry() -> Iterator[None]:
    before = dict(mds._encodings)
    yield
    mds._encodings.clear()
    mds._encodings.update(before)


class Upper(Encoding):
    def encode(self, obj: str) -> bytes:
        self._validate(obj, str)
        return obj.upper().encode()

    def decode(self, data: bytes) -> str:
        return data.decode()


class Repeated(Encoding):
    size = 2

    def __init__(self, times: int = 1) -> None:
        self.times = times

    @classmethod
    def from_str(cls, text: str) -> "Repeated":
        return cls(int(text))

    def encode(self, obj: bytes) -> bytes:
        return obj * 2

    def decode(self, data: bytes) -> bytes:
        return data[:1] * self.times


@pytest.mark.usefixtures("registry")
def test_an_encoding_of_ones_own() -> None:
    register_encoding("upper", Upper)
    register_encoding("twice", Repeated(2))
    register_encoding("times", Repeated)
    assert mds_decode("upper", mds_encode("upper", "abc")) == "ABC"
    assert mds_decode("twice", mds_encode("twice", b"x")) == b"xx"
    assert mds_decode("times:5", b"xx") == b"xxxxx"
    assert get_mds_encoded_size("times:5") == 2
    assert {"upper", "twice"} < get_mds_encodings()
    assert is_mds_encoding_safe("upper")
    with pytest.raises(EncodeTypeError):
        mds_encode("upper", 1)


@pytest.mark.usefixtures("registry")
def test_the_old_dictionary_is_the_registry() -> None:
    assert old_path._encodings is mds._encodings
    old_path._encodings["upper"] = Upper
    assert mds_decode("upper", mds_encode("upper", "abc")) == "ABC"


@pytest.mark.usefixtures("registry")
def test_registering_again_replaces() -> None:
    register_encoding("mine", Repeated(1))
    assert mds_decode("mine", b"xx") == b"x"
    register_encoding("mine", Repeated(3))
    assert mds_decode("mine", b"xx") == b"xxx"


@pytest.mark.usefixtures("registry")
def test_an_unsafe_encoding_of_ones_own() -> None:
    class Unsafe(Upper):
        safe = False

    register_encoding("unsafe", Unsafe)
    assert not is_mds_encoding_safe("unsafe")


def test_what_cannot_be_registered() -> None:
    with pytest.raises(FormatError, match="colon"):
        register_encoding("a:b", Upper)
    with pytest.raises(TypeError, match="encode"):
        register_encoding("a", int)  # type: ignore[arg-type]


def test_the_array_class_by_itself() -> None:
    assert NDArray("int32", (2, 3)).size == 24
    assert NDArray().size is None
    assert NDArray.from_str("int32:2,3").shape == (2, 3)
    with pytest.raises(FormatError, match="dtype"):
        NDArray(None, (2,))


def test_large_arrays_are_the_same_after_both_ways() -> None:
    value = np.random.default_rng(0).integers(0, 1 << 31, 100_000, dtype=np.int32)
    data = mds_encode("ndarray", value)
    assert sha256(data[6:]).digest() == sha256(value.tobytes()).digest()
    assert (mds_decode("ndarray", data) == value).all()
