"""The MDS encoding of NumPy arrays, in its three forms.

* ``ndarray``: each value is one byte of dtype, one of rank and width of the dimensions, the
  dimensions, the elements;
* ``ndarray:int32``: the same without the dtype;
* ``ndarray:int32:2,3``: the elements alone, so that all values take the same space.

Elements are little-endian, in C order. The dtype's byte is its width in bits, plus 0 for unsigned
integers, 1 for signed, 2 for floats. The rank's byte is the rank times 4, plus 0 to 3 for
dimensions stored in 1, 2, 4 or 8 bytes, whichever is the least that holds the largest of them.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray as Array

from streaming.format.encodings.base import Encoding, show
from streaming.format.errors import EncodeTypeError, FormatError

_DTYPES = {
    np.dtype(name).itemsize * 8 + code: np.dtype(name)
    for code, names in enumerate(
        (
            ("uint8", "uint16", "uint32", "uint64"),
            ("int8", "int16", "int32", "int64"),
            ("float16", "float32", "float64"),
        )
    )
    for name in names
}
_CODES = {dtype.name: code for code, dtype in _DTYPES.items()}
_DIM_WIDTHS = (1, 2, 4, 8)
_MAX_RANK = 63


class NDArray(Encoding):
    r"""A NumPy array.

    Args:
        dtype: Name of the only dtype taken, or None for any of those supported.
        shape: The only shape taken, or None for any; needs ``dtype``.

    Raises:
        FormatError: Not a supported dtype, or a shape with anything but positive numbers.

    Example:
        >>> coder = NDArray("int16", (3,))
        >>> coder.encode(np.arange(3, dtype="int16"))
        b'\x00\x00\x01\x00\x02\x00'
        >>> coder.decode(b"\x00\x00\x01\x00\x02\x00")
        array([0, 1, 2], dtype=int16)
    """

    def __init__(self, dtype: str | None = None, shape: tuple[int, ...] | None = None) -> None:
        if dtype is not None and dtype not in _CODES:
            raise FormatError(f"ndarray of {dtype!r}: must be one of {', '.join(_CODES)}")
        if shape is not None:
            if dtype is None:
                raise FormatError("ndarray with a shape needs a dtype, as in ndarray:int32:2,3")
            if not shape or len(shape) > _MAX_RANK or any(dim < 1 for dim in shape):
                raise FormatError(f"ndarray of shape {shape}: dimensions must be positive")
        self.dtype = dtype
        self.shape = shape
        self.size = None
        if dtype is not None and shape is not None:
            self.size = np.dtype(dtype).itemsize * prod(shape)
            self.layout = (np.dtype(dtype).newbyteorder("<"), shape)

    @classmethod
    def from_str(cls, text: str) -> NDArray:
        """Make the encoding from what follows ``ndarray:``, such as ``int32`` or ``int32:2,3``.

        Raises:
            FormatError: The text is neither.
        """
        dtype, colon, dims = text.partition(":")
        if not colon:
            return cls(dtype or None)
        try:
            shape = tuple(int(dim) for dim in dims.split(","))
        except ValueError:
            raise FormatError(
                f"ndarray:{text}: the shape must be integers separated by commas"
            ) from None
        return cls(dtype, shape)

    def encode(self, obj: Any) -> bytes:
        """Return the array's bytes, whatever its memory order and byte order were."""
        if not isinstance(obj, np.ndarray):
            hint = "; for single numbers use int32, float64 …" if np.ndim(obj) == 0 else ""
            raise EncodeTypeError(
                f"ndarray needs a NumPy array, got {type(obj).__name__} {show(obj)}{hint}"
            )
        name = obj.dtype.name
        if name not in _CODES:
            raise EncodeTypeError(
                f"ndarray of dtype {obj.dtype}: must be one of {', '.join(_CODES)}"
            )
        if self.dtype is not None and name != self.dtype:
            raise EncodeTypeError(f"needs an array of dtype {self.dtype}, got {name}")
        if self.shape is not None and obj.shape != self.shape:
            raise EncodeTypeError(f"needs an array of shape {self.shape}, got {obj.shape}")
        if obj.ndim > _MAX_RANK:
            raise EncodeTypeError(f"an array of {obj.ndim} dimensions; at most {_MAX_RANK} can be")
        elements = obj.astype(obj.dtype.newbyteorder("<"), copy=False).tobytes()
        if self.shape is not None:
            return elements
        head = b"" if self.dtype is not None else bytes((_CODES[name],))
        return head + _pack_shape(obj.shape) + elements

    def decode(self, data: bytes) -> Array[Any]:
        """Return a new, writable array in the machine's byte order."""
        start = 0
        if self.dtype is None:
            code = data[0] if len(data) else -1
            if code not in _DTYPES:
                raise FormatError(f"ndarray begins with dtype code {code}, which is none")
            dtype = _DTYPES[code]
            start = 1
        else:
            dtype = np.dtype(self.dtype)
        if self.shape is None:
            shape, start = _unpack_shape(data, start)
        else:
            shape = self.shape
        # Compared before anything is allocated: a damaged shape may ask for exabytes.
        needed = start + dtype.itemsize * prod(shape)
        if needed != len(data):
            raise FormatError(
                f"ndarray of {dtype} and shape {shape} takes {needed} bytes, got {len(data)}"
            )
        try:
            found: Array[Any] = np.ndarray(shape, dtype.newbyteorder("<"), data, start)
        except (ValueError, OverflowError) as err:  # an empty array with absurd dimensions
            raise FormatError(f"ndarray of shape {shape}: {err}") from None
        return found.astype(dtype)


def _pack_shape(shape: tuple[int, ...]) -> bytes:
    largest = max(shape, default=0)
    code = next(i for i, width in enumerate(_DIM_WIDTHS) if largest < 1 << 8 * width)
    width = _DIM_WIDTHS[code]
    return bytes((len(shape) << 2 | code,)) + b"".join(
        dim.to_bytes(width, "little") for dim in shape
    )


def _unpack_shape(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the shape stored at ``start``, and where the elements begin."""
    if len(data) <= start:
        raise FormatError(f"ndarray is cut off after {len(data)} bytes, before its shape")
    rank, width = data[start] >> 2, _DIM_WIDTHS[data[start] & 3]
    begin = start + 1
    end = begin + rank * width
    if len(data) < end:
        raise FormatError(f"ndarray is cut off after {len(data)} bytes, within its shape")
    return tuple(
        int.from_bytes(data[at : at + width], "little") for at in range(begin, end, width)
    ), end
