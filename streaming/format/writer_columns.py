"""Columns that are written together: what users hold them in, and their samples' bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.format.errors import FormatError

__all__ = ["column_values", "encode_columns"]

Values = Sequence[Any] | NDArray[Any]


def column_values(columns: Any) -> tuple[dict[str, Values], int]:
    """Take columns apart: those of a mapping, or of an Arrow table or record batch.

    Args:
        columns: Column name to values: a NumPy array or torch tensor whose first axis counts the
            samples, an Arrow array, or a sequence.

    Returns:
        The columns as arrays or sequences, and how many samples they are.

    Raises:
        FormatError: If the columns differ in length, or can't be counted.

    Example:
        >>> column_values({"id": np.arange(2), "text": ["a", "b"]})
        ({'id': array([0, 1]), 'text': ['a', 'b']}, 2)
    """
    if not isinstance(columns, Mapping):
        names = getattr(columns, "column_names", None) or getattr(columns, "schema", columns).names
        columns = {name: columns.column(names.index(name)) for name in names}
    values = {name: _values(name, column) for name, column in columns.items()}
    counts = {name: len(column) for name, column in values.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise FormatError(f"the columns of a batch have as many values each, not {listed}")
    return values, next(iter(counts.values()), 0)


def _values(name: str, column: Any) -> Values:
    if isinstance(column, np.ndarray) and column.ndim:
        return column
    if hasattr(column, "detach"):  # a torch tensor; torch itself need not be imported here
        return _values(name, column.detach().cpu().numpy())
    if hasattr(column, "to_pylist"):  # Arrow
        number = str(column.type).startswith(("int", "uint", "float", "double", "halffloat"))
        if number and not column.null_count:
            return np.asarray(column.to_numpy())
        values: list[Any] = column.to_pylist()
        return values
    if isinstance(column, Sequence) and not isinstance(column, (str, bytes)):
        return column
    raise FormatError(
        f"column {name!r} of a batch is a {type(column).__name__}: give an array, a tensor, an "
        "Arrow array or a list"
    )


def encode_columns(
    columns: Mapping[str, Values],
    steps: Sequence[tuple[str, Callable[[Any], bytes]]],
    layouts: Sequence[tuple[np.dtype[Any], tuple[int, ...]] | None],
    variable: Sequence[int],
    count: int,
) -> list[bytes]:
    """The bytes of an MDS data set's samples, column by column.

    Args:
        columns: The columns' values.
        steps: The columns' names and what encodes a value, in the order of a sample.
        layouts: For columns of plain numbers, dtype and shape of a value.
        variable: Which of the columns are of variable size.
        count: How many samples there are.

    Raises:
        Exception: If a value is not of the kind that its step is sure of.
    """
    parts = [
        _encode(columns[name], encode, layout)
        for (name, encode), layout in zip(steps, layouts, strict=True)
    ]
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts):
        return _pieces(np.concatenate(arrays, axis=1))
    lists = [_pieces(part) if isinstance(part, np.ndarray) else part for part in parts]
    sizes = np.empty((count, len(variable)), "<u4")
    for at, which in enumerate(variable):
        sizes[:, at] = list(map(len, lists[which]))
    return list(map(b"".join, zip(_pieces(sizes.view(np.uint8)), *lists, strict=True)))


def _encode(
    values: Values,
    encode: Callable[[Any], bytes],
    layout: tuple[np.dtype[Any], tuple[int, ...]] | None,
) -> NDArray[np.uint8] | list[bytes]:
    """A column's values as rows of bytes if they are plain numbers, else as a list of bytes."""
    if isinstance(values, np.ndarray) and layout is not None:
        dtype, shape = layout
        if values.dtype == dtype and values.shape[1:] == shape:
            rows = np.ascontiguousarray(values, dtype).reshape(len(values), -1)
            return rows.view(np.uint8)
    return list(map(encode, values))


def _pieces(rows: NDArray[np.uint8]) -> list[bytes]:
    """Rows of bytes as a list."""
    data, width = rows.tobytes(), rows.shape[1]
    return (
        [data[at : at + width] for at in range(0, len(data), width)] if width else [b""] * len(rows)
    )
