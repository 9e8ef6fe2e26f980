"""MDS encodings of bytes, text, numbers and Python objects."""

from __future__ import annotations

import json
import operator
import pickle
import re
import struct
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

import numpy as np

from streaming.format.encodings.base import Encoding, check_type, show
from streaming.format.errors import EncodeRangeError, EncodeTypeError, FormatError

PICKLE_PROTOCOL = 4
"""What every supported Python reads, fixed so that all of them write the same bytes."""


class Bytes(Encoding):
    """Bytes as they are."""

    def encode(self, obj: bytes) -> bytes:
        """Return the bytes."""
        check_type(obj, bytes)
        return bytes(obj)

    def decode(self, data: bytes) -> bytes:
        """Return the bytes."""
        return bytes(data)


class Str(Encoding):
    """Text as UTF-8."""

    def encode(self, obj: str) -> bytes:
        """Return the text in UTF-8; a lone surrogate has no such form and is refused."""
        check_type(obj, str)
        try:
            return obj.encode()
        except UnicodeEncodeError as err:
            raise EncodeRangeError(f"{show(obj)} cannot be written as UTF-8: {err}") from None

    def decode(self, data: bytes) -> str:
        """Return the text."""
        return _text(data)


def _text(data: bytes) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as err:
        raise FormatError(f"not UTF-8: {err}") from None


def _as_integer(obj: Any, name: str) -> int:
    """Return what an integer column takes as a Python integer, or refuse it."""
    if isinstance(obj, np.ndarray) and obj.size == 1:
        obj = obj.item()
    if isinstance(obj, (float, np.floating)) and obj == obj and float(obj).is_integer():
        return int(obj)
    if isinstance(obj, np.bool_):
        return int(obj)
    try:
        return int(operator.index(obj))
    except TypeError:
        raise EncodeTypeError(
            f"{name} needs an integer, got {type(obj).__name__} {show(obj)}"
        ) from None


class Int(Encoding):
    """A Python integer in 64 bits."""

    size = 8
    layout = (np.dtype("<i8"), ())

    def encode(self, obj: int) -> bytes:
        """Return 8 bytes, little-endian; takes integers of Python, NumPy and torch."""
        if isinstance(obj, (float, np.floating)):  # no silent change of type on the way back
            check_type(obj, int)
        value = _as_integer(obj, "int")
        try:
            return value.to_bytes(8, "little", signed=True)
        except OverflowError:
            raise EncodeRangeError(
                f"{show(value)} does not fit in 64 bits; use str_int for integers of any size"
            ) from None

    def decode(self, data: bytes) -> int:
        """Return the integer."""
        if len(data) != 8:
            raise FormatError(f"an int takes 8 bytes, got {len(data)}")
        return int.from_bytes(data, "little", signed=True)


class Scalar(Encoding):
    """A NumPy number of one width; the subclasses name it."""

    dtype: ClassVar[type[np.generic]]
    size = 0

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        wire = np.dtype(cls.dtype).newbyteorder("<")
        cls.size = wire.itemsize
        cls.layout = (wire, ())

    def decode(self, data: bytes) -> Any:
        """Return the number as a NumPy scalar."""
        if len(data) != self.size:
            raise FormatError(f"a {self.dtype.__name__} takes {self.size} bytes, got {len(data)}")
        assert self.layout is not None
        return self.dtype(np.frombuffer(data, self.layout[0])[0])


class _IntScalar(Scalar):
    dtype = np.int64

    def encode(self, obj: Any) -> bytes:
        """Return the number little-endian; a fraction or an overflow is refused, never cut."""
        name = self.dtype.__name__
        value = _as_integer(obj, name)
        try:
            return value.to_bytes(self.size, "little", signed=name[0] == "i")
        except OverflowError:
            info = np.iinfo(self.dtype)
            raise EncodeRangeError(
                f"{show(value)} does not fit in {name} ({info.min} to {info.max})"
            ) from None


class UInt8(_IntScalar):
    """An unsigned integer of 8 bits."""

    dtype = np.uint8


class UInt16(_IntScalar):
    """An unsigned integer of 16 bits."""

    dtype = np.uint16


class UInt32(_IntScalar):
    """An unsigned integer of 32 bits."""

    dtype = np.uint32


class UInt64(_IntScalar):
    """An unsigned integer of 64 bits."""

    dtype = np.uint64


class Int8(_IntScalar):
    """A signed integer of 8 bits."""

    dtype = np.int8


class Int16(_IntScalar):
    """A signed integer of 16 bits."""

    dtype = np.int16


class Int32(_IntScalar):
    """A signed integer of 32 bits."""

    dtype = np.int32


class Int64(_IntScalar):
    """A signed integer of 64 bits."""

    dtype = np.int64


class _FloatScalar(Scalar):
    dtype = np.float64

    def encode(self, obj: Any) -> bytes:
        """Return the number little-endian, rounded to nearest; an overflow is refused."""
        if type(obj) is self.dtype:
            assert self.layout is not None
            return np.asarray(obj, self.layout[0]).tobytes()  # a NaN keeps its bits
        name = self.dtype.__name__
        if isinstance(obj, np.ndarray) and obj.size == 1:
            obj = obj.item()
        numeric = hasattr(obj, "__float__") or hasattr(obj, "__index__")
        if isinstance(obj, (str, bytes)) or not numeric:
            raise EncodeTypeError(f"{name} needs a number, got {type(obj).__name__} {show(obj)}")
        try:
            return struct.pack("<" + np.dtype(self.dtype).char, float(obj))
        except OverflowError:
            raise EncodeRangeError(f"{show(obj)} is too large for {name}") from None
        except (TypeError, ValueError):  # such as an array or a tensor of several elements
            raise EncodeTypeError(
                f"{name} needs one number, got {type(obj).__name__} {show(obj)}"
            ) from None


class Float16(_FloatScalar):
    """A floating-point number of 16 bits."""

    dtype = np.float16


class Float32(_FloatScalar):
    """A floating-point number of 32 bits."""

    dtype = np.float32


class Float64(_FloatScalar):
    """A floating-point number of 64 bits."""

    dtype = np.float64


class StrEncoding(Encoding):
    """A number as decimal text: any size, at the price of speed."""


_INTEGER = re.compile(rb"[+-]?[0-9]+")


class StrInt(StrEncoding):
    """An integer of any size as decimal text."""

    def encode(self, obj: int) -> bytes:
        """Return the digits."""
        if isinstance(obj, (float, np.floating)):
            check_type(obj, int)
        value = _as_integer(obj, "str_int")
        try:
            return str(value).encode()
        except ValueError as err:  # Python's own guard against quadratic conversions
            raise EncodeRangeError(f"str_int: {err}") from None

    def decode(self, data: bytes) -> int:
        """Return the integer."""
        data = bytes(data)
        if not _INTEGER.fullmatch(data):
            raise FormatError(f"not a decimal integer: {show(data)}")
        try:
            return int(data)
        except ValueError as err:
            raise FormatError(f"str_int: {err}") from None


class StrFloat(StrEncoding):
    """A float as the shortest decimal text that reads back as the same float."""

    def encode(self, obj: float) -> bytes:
        """Return the text."""
        check_type(obj, (float, np.floating))
        return repr(float(obj)).encode()

    def decode(self, data: bytes) -> float:
        """Return the float."""
        try:
            return float(_text(data))
        except ValueError:
            raise FormatError(f"not a float: {show(bytes(data))}") from None


class StrDecimal(StrEncoding):
    """A :class:`decimal.Decimal` as text, all its digits kept."""

    def encode(self, obj: Decimal) -> bytes:
        """Return the text."""
        check_type(obj, Decimal)
        return str(obj).encode()

    def decode(self, data: bytes) -> Decimal:
        """Return the decimal."""
        try:
            return Decimal(_text(data))
        except InvalidOperation:
            raise FormatError(f"not a decimal: {show(bytes(data))}") from None


class Pickle(Encoding):
    """Any Python object. Reading it runs whatever its author put there: refused by default."""

    safe = False

    def encode(self, obj: Any) -> bytes:
        """Return the object pickled."""
        try:
            return pickle.dumps(obj, protocol=PICKLE_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError) as err:
            raise EncodeTypeError(f"{show(obj)} cannot be pickled: {err}") from err

    def decode(self, data: bytes) -> Any:
        """Return the object."""
        try:
            return pickle.loads(data)
        except Exception as err:  # a damaged pickle raises whatever its opcodes lead to
            raise FormatError(f"cannot be unpickled: {type(err).__name__}: {err}") from err


class JSON(Encoding):
    """A JSON value: null, true, false, numbers, strings, lists, objects; arrays become lists."""

    def encode(self, obj: Any) -> bytes:
        """Return the text, all ASCII; NaN and infinities, which JSON lacks, are refused."""
        try:
            return json.dumps(obj, allow_nan=False, default=_plain).encode()
        except ValueError as err:
            raise EncodeRangeError(f"no JSON for {show(obj)}: {err}") from None
        except TypeError as err:
            raise EncodeTypeError(f"no JSON for {show(obj)}: {err}") from None
        except RecursionError:
            raise EncodeRangeError(f"nested too deeply for JSON: {show(obj)}") from None

    def decode(self, data: bytes) -> Any:
        """Return the value. NaN and infinities are read, as older writers let them through."""
        try:
            return json.loads(_text(data))
        except ValueError as err:
            raise FormatError(f"not JSON: {err}") from None
        except RecursionError:
            raise FormatError("not JSON: nested too deeply") from None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} {show(value)} is not a JSON value")
