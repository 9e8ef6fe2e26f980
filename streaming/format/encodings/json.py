"""The encodings of JSONL columns. JSON has types itself, so an encoding only checks them.

Example:
    >>> is_json_encoded("int", 5)
    True
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from streaming.format.encodings.base import check_type, show
from streaming.format.errors import EncodeRangeError, FormatError

__all__ = ["Encoding", "Float", "Int", "Str", "is_json_encoded", "is_json_encoding"]


class Encoding(ABC):
    """The check of one type."""

    @abstractmethod
    def is_encoded(self, value: Any) -> bool:
        """Return True for a value of the type; raises EncodeError for any other."""
        raise NotImplementedError

    @staticmethod
    def _validate(data: Any, expected_type: type | tuple[type, ...]) -> None:
        check_type(data, expected_type)


class Str(Encoding):
    """Text."""

    def is_encoded(self, value: Any) -> bool:
        """Return True for a string."""
        check_type(value, str)
        return True


class Int(Encoding):
    """An integer of any size."""

    def is_encoded(self, value: Any) -> bool:
        """Return True for an integer."""
        check_type(value, int)
        return True


class Float(Encoding):
    """A float, which in JSON is finite."""

    def is_encoded(self, value: Any) -> bool:
        """Return True for a finite float."""
        check_type(value, float)
        if not math.isfinite(value):
            raise EncodeRangeError(f"{show(value)} has no form in JSON")
        return True


_encodings: dict[str, type[Encoding]] = {"str": Str, "int": Int, "float": Float}


def is_json_encoding(encoding: str) -> bool:
    """Tell whether a column can have this encoding: ``str``, ``int`` or ``float``."""
    return encoding in _encodings


def is_json_encoded(encoding: str, value: Any) -> bool:
    """Return True if the value is of the encoding's type.

    Raises:
        FormatError: No such encoding.
        EncodeError: The value is of another type, or a number that JSON lacks.
    """
    kind = _encodings.get(encoding)
    if kind is None:
        raise FormatError(f"Unsupported encoding: {encoding}. Known are {', '.join(_encodings)}.")
    return kind().is_encoded(value)
