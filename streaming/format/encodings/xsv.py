"""The encodings of CSV, TSV and XSV columns: values as text.

Example:
    >>> xsv_encode("float", 0.1), xsv_decode("int", "42")
    ('0.1', 42)
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from streaming.format.encodings.base import check_type, show
from streaming.format.errors import EncodeRangeError, FormatError

__all__ = ["Encoding", "Float", "Int", "Str", "is_xsv_encoding", "xsv_decode", "xsv_encode"]


class Encoding(ABC):
    """A value's way to text and back."""

    @abstractmethod
    def encode(self, value: Any) -> str:
        """Turn a value into text; raises EncodeError."""
        raise NotImplementedError

    @abstractmethod
    def decode(self, value: str) -> Any:
        """Turn the text back into a value; raises FormatError."""
        raise NotImplementedError

    @staticmethod
    def _validate(data: Any, expected_type: type | tuple[type, ...]) -> None:
        check_type(data, expected_type)


class Str(Encoding):
    """Text as it is."""

    def encode(self, value: str) -> str:
        """Return the text."""
        check_type(value, str)
        return value

    def decode(self, value: str) -> str:
        """Return the text."""
        return value


_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)


class Int(Encoding):
    """An integer of any size in decimal digits."""

    def encode(self, value: int) -> str:
        """Return the digits."""
        check_type(value, (int, np.integer))
        try:
            return str(int(value))
        except ValueError as err:  # Python's own guard against quadratic conversions
            raise EncodeRangeError(f"int: {err}") from None

    def decode(self, value: str) -> int:
        """Return the integer."""
        if not _INTEGER.fullmatch(value):
            raise FormatError(f"not a decimal integer: {show(value)}")
        try:
            return int(value)
        except ValueError as err:
            raise FormatError(f"int: {err}") from None


class Float(Encoding):
    """A float as the shortest text that reads back as the same float."""

    def encode(self, value: float) -> str:
        """Return the text."""
        check_type(value, (float, np.floating))
        return repr(float(value))

    def decode(self, value: str) -> float:
        """Return the float."""
        try:
            return float(value)
        except ValueError:
            raise FormatError(f"not a float: {show(value)}") from None


_encodings: dict[str, type[Encoding]] = {"str": Str, "int": Int, "float": Float}


def is_xsv_encoding(encoding: str) -> bool:
    """Tell whether a column can have this encoding: ``str``, ``int`` or ``float``."""
    return encoding in _encodings


def _coder(encoding: str) -> Encoding:
    kind = _encodings.get(encoding)
    if kind is None:
        raise FormatError(f"Unsupported encoding: {encoding}. Known are {', '.join(_encodings)}.")
    return kind()


def xsv_encode(encoding: str, value: Any) -> str:
    """Turn a value into its column's text.

    Raises:
        FormatError: No such encoding.
        EncodeError: The value is not one that the encoding can hold.
    """
    return _coder(encoding).encode(value)


def xsv_decode(encoding: str, value: str) -> Any:
    """Turn a column's text back into a value.

    Raises:
        FormatError: No such encoding, or text that can't be its.
    """
    return _coder(encoding).decode(value)
