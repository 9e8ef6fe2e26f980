"""The contract of an MDS encoding, for ours and for those that users register."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from streaming.format.errors import EncodeTypeError

__all__ = ["Encoding", "check_type", "show"]


def show(value: Any) -> str:
    """Return a value's representation, short enough for an error message."""
    try:
        text = repr(value)
    except Exception:  # what we are about to report is the value, not its broken __repr__
        text = object.__repr__(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_type(value: Any, expected: type | tuple[type, ...], hint: str = "") -> None:
    """Refuse a value of another type.

    Raises:
        EncodeTypeError: It is not an instance of ``expected``.
    """
    if not isinstance(value, expected):
        kinds = expected if isinstance(expected, tuple) else (expected,)
        names = " or ".join(kind.__name__ for kind in kinds)
        raise EncodeTypeError(f"needs {names}, got {type(value).__name__} {show(value)}{hint}")


class Encoding(ABC):
    """A value's way to bytes and back.

    A subclass implements :meth:`encode` and :meth:`decode`, and, where every value takes the same
    number of bytes, sets ``size``: columns of fixed size have no length stored beside them. See
    :func:`streaming.format.encodings.mds.register_encoding` for an example.
    """

    size: int | None = None
    """Bytes of every encoded value, or None if they differ."""

    layout: tuple[np.dtype[Any], tuple[int, ...]] | None = None
    """If a value's bytes are a little-endian array in C order: its dtype on disk, and its shape."""

    safe: ClassVar[bool] = True
    """Whether bytes from a stranger can be decoded without running the stranger's code."""

    @abstractmethod
    def encode(self, obj: Any) -> bytes:
        """Turn a value into bytes; raise EncodeError if that can't be done without loss."""
        raise NotImplementedError

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """Turn the bytes of one value back into it; raise FormatError if they are damaged."""
        raise NotImplementedError

    @staticmethod
    def _validate(data: Any, expected_type: type | tuple[type, ...]) -> None:
        check_type(data, expected_type)
