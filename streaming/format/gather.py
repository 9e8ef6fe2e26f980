"""Values of fixed size gathered out of a shard's bytes, straight into the arrays that want them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Positions", "as_slice", "gather", "gather_into", "gather_rows_into", "put"]

Positions = slice | NDArray[np.integer[Any]]
"""Places in an array: a slice of known ends and step 1, or one place for each value."""

_ROW_BYTES = 12 << 10
"""Values from this size on are copied one by one: the step in between would cost more."""
_CHUNK_BYTES = 1 << 18
"""What is copied in two steps, to stay in the processor's cache in between."""


def as_slice(positions: NDArray[np.integer[Any]]) -> Positions:
    """Return places that count up by one as a slice, and others as they are.

    Example:
        >>> as_slice(np.array([4, 5, 6]))
        slice(4, 7, None)
        >>> as_slice(np.array([4, 6, 5]))
        array([4, 6, 5])
    """
    count = len(positions)
    if not count:
        return slice(0, 0)
    first, last = int(positions[0]), int(positions[-1])
    if last - first + 1 == count and first >= 0 and bool((positions[1:] > positions[:-1]).all()):
        return slice(first, last + 1)
    return positions


def gather(
    data: Any, starts: NDArray[np.int64], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    """Copy the arrays that begin at some bytes of a buffer into one.

    Args:
        data: The buffer.
        starts: Where each begins, in bytes; all lie within the buffer.
        dtype: Their type in the buffer.
        shape: The shape of each.

    Returns:
        A new array of shape ``(len(starts), *shape)`` in the machine's byte order.

    Example:
        >>> gather(bytes([1, 0, 2, 0, 3, 0]), np.array([4, 1]), np.dtype("<u2"), ())
        array([  3, 512], dtype=uint16)
    """
    out = np.empty((len(starts), *shape), dtype.newbyteorder("="))
    gather_into(data, starts, dtype, out, slice(0, len(starts)))
    return out


def gather_into(
    data: Any,
    starts: NDArray[np.int64],
    dtype: np.dtype[Any],
    out: NDArray[Any],
    positions: Positions,
) -> None:
    """Copy the arrays that begin at some bytes of a buffer into places of ``out``.

    Args:
        data: The buffer.
        starts: Where each begins, in bytes; all lie within the buffer.
        dtype: Their type in the buffer; but for its byte order, that of ``out``.
        out: An array whose first axis counts values.
        positions: Where in it each belongs.
    """
    width = out.dtype.itemsize * int(np.prod(out.shape[1:], dtype=np.int64))
    if not width or not len(starts):
        return
    if not dtype.isnative or not out.flags.c_contiguous:
        native = np.empty((len(starts), *out.shape[1:]), dtype)
        gather_into(
            data, starts, np.dtype(out.dtype), native.view(out.dtype), slice(0, len(starts))
        )
        out[positions] = native
        return
    if width >= _ROW_BYTES:
        source = np.frombuffer(data, np.uint8)
        rows: NDArray[Any] = np.ndarray((len(out), width), np.uint8, out)
        for place, start in zip(_listed(positions), starts.tolist(), strict=True):
            rows[place] = source[start : start + width]
        return
    # Every position of the buffer seen as the beginning of an item: NumPy copies those asked for.
    items: NDArray[Any] = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    places: NDArray[Any] = np.ndarray((len(out),), f"V{width}", out)
    step = max(1, _CHUNK_BYTES // width)
    for begin in range(0, len(starts), step):
        places[_part(positions, begin, step)] = items[starts[begin : begin + step]]


def gather_rows_into(
    rows: NDArray[Any], indices: NDArray[np.int64], out: NDArray[Any], positions: Positions
) -> None:
    """Copy rows of a two-dimensional array of bytes into places of ``out``, whose values they are.

    Args:
        rows: The rows, C-contiguous.
        indices: Which ones; all exist.
        out: A C-contiguous array whose first axis counts values, each as large as a row.
        positions: Where in it each belongs.
    """
    width = rows.shape[1]
    if not width or not len(indices):
        return
    items = rows.view(f"V{width}")[:, 0]
    places: NDArray[Any] = np.ndarray((len(out),), f"V{width}", out)
    if isinstance(positions, slice):
        # `clip`, since nothing is out of range: NumPy then writes without a buffer in between, and
        # leaves the interpreter to others meanwhile.
        items.take(indices, out=places[positions], mode="clip")
    elif width >= _ROW_BYTES:
        flat: NDArray[Any] = np.ndarray((len(out), width), np.uint8, out)
        for place, index in zip(positions.tolist(), indices.tolist(), strict=True):
            flat[place] = rows[index]
    else:
        step = max(1, _CHUNK_BYTES // width)
        passing = np.empty(min(step, len(indices)), items.dtype)
        for begin in range(0, len(indices), step):
            part = indices[begin : begin + step]
            items.take(part, out=passing[: len(part)], mode="clip")
            places[positions[begin : begin + step]] = passing[: len(part)]


def put(column: list[Any], positions: Positions, values: list[Any]) -> None:
    """Put values into places of a list."""
    if isinstance(positions, slice):
        column[positions] = values
    else:
        for place, value in zip(positions.tolist(), values, strict=True):
            column[place] = value


def _listed(positions: Positions) -> Any:
    if isinstance(positions, slice):
        return range(positions.start, positions.stop)
    return positions.tolist()


def _part(positions: Positions, begin: int, step: int) -> Positions:
    """The places of the values from one on, for so many at most."""
    if isinstance(positions, slice):
        start = int(positions.start) + begin
        return slice(start, min(start + step, int(positions.stop)))
    return positions[begin : begin + step]
