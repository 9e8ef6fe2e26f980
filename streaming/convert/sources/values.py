"""Arrow columns as the values that a writer takes under given encodings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming.convert.source import Sample

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["batch_values", "rows_of", "sliced"]

BATCH_BYTES = 1 << 24
"""What a batch holds, about."""


def rows_of(batches: Iterator[Mapping[str, Any]]) -> Iterator[Sample]:
    """The rows of batches, one by one."""
    for batch in batches:
        names = list(batch)
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(names, values, strict=True))


def sliced(table: pa.Table, most_rows: int = 8192) -> Iterator[pa.RecordBatch]:
    """A table in batches that are small enough to be made into Python's own objects."""
    if not table.num_rows:
        return
    per_row = max(1, table.nbytes // table.num_rows)
    yield from table.to_batches(max(1, min(most_rows, BATCH_BYTES // per_row)))


def batch_values(batch: pa.RecordBatch | pa.Table, columns: Mapping[str, str]) -> dict[str, Any]:
    """The columns of a batch, as their encodings take them.

    Args:
        batch: It may have more columns.
        columns: Encodings by column.

    Returns:
        Column name to a NumPy array or a list of as many values. What can't be cast to what its
        encoding takes is left as it is, for the writer to say which row is at fault.
    """
    names = batch.schema.names
    return {
        name: _values(batch.column(names.index(name)), encoding)
        for name, encoding in columns.items()
    }


def _values(column: Any, encoding: str) -> Any:
    import pyarrow as pa

    column = _plain(column)
    base, _, rest = encoding.partition(":")
    if base == "ndarray" and rest:
        return _arrays(column, rest)
    target = _TARGETS.get(base, base)
    if target in _NUMPY_NAMES:
        cast = _cast(column, pa.from_numpy_dtype(np.dtype(target)))
        if cast is None or cast.null_count:
            return column.to_pylist()
        return cast.to_numpy(zero_copy_only=False)
    if base == "str" and not _is_text(column.type):
        cast = _cast(column, pa.large_string())
        column = column if cast is None else cast
    elif base in ("jpeg", "png", "pil", "bytes") and pa.types.is_struct(column.type):
        return _image_bytes(column)
    return column.to_pylist()


_NUMPY_NAMES = {
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
}
_ARROW_NUMBERS = ("halffloat", "float", "double", *_NUMPY_NAMES)
_TARGETS = {"int": "int64"}


def _plain(column: Any) -> Any:
    """A column as one array, without extension types and dictionaries."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # Arrow could not join the chunks
            column = pa.concat_arrays(column.chunks)
    if isinstance(column.type, pa.ExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def _is_text(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _cast(column: Any, target: pa.DataType) -> Any:
    """A column as another type; None if a value would change, which the writer is to refuse."""
    import pyarrow as pa

    if column.type == target:
        return column
    narrower = pa.types.is_floating(column.type) and pa.types.is_floating(target)
    try:
        if pa.types.is_date32(column.type) and pa.types.is_int64(target):
            column = column.cast(pa.int32())
        return column.cast(target, safe=not narrower)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _arrays(column: Any, rest: str) -> Any:
    """Lists of numbers as arrays; all of one shape as one array, whose first axis is the rows'."""
    dtype, _, dims = rest.partition(":")
    if column.null_count:
        return column.to_pylist()
    if dims:
        shape = tuple(int(dim) for dim in dims.split(","))
        flat = _flat(column, len(column), int(np.prod(shape)), dtype)
        return column.to_pylist() if flat is None else flat.reshape(len(column), *shape)
    import pyarrow as pa

    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return [_array(value, dtype) for value in column.to_pylist()]
    inner = column.flatten()
    if inner.null_count or str(inner.type) not in _ARROW_NUMBERS:
        return [_array(value, dtype) for value in column.to_pylist()]
    values = inner.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    ends = np.cumsum(column.value_lengths().to_numpy(zero_copy_only=False))
    begins = np.concatenate([[0], ends[:-1]])
    return [values[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]


def _array(value: Any, dtype: str) -> Any:
    """A list as an array if that loses nothing; else as it is, for the writer to refuse."""
    if value is None or any(one is None for one in value):
        return value
    return np.array(value, dtype)


def _flat(column: Any, rows: int, width: int, dtype: str) -> np.ndarray[Any, Any] | None:
    """The numbers in lists of lists, if there are as many in each row and none is null."""
    import pyarrow as pa

    while hasattr(column.type, "value_type") and not pa.types.is_dictionary(column.type):
        if column.null_count:
            return None
        if (
            not pa.types.is_fixed_size_list(column.type)
            and len(set(column.value_lengths().to_pylist())) > 1
        ):
            return None
        column = column.flatten()
    if column.null_count or len(column) != rows * width:
        return None
    return np.asarray(column.to_numpy(zero_copy_only=False).astype(dtype, copy=False))


def _image_bytes(column: Any) -> list[bytes | None]:
    """The files in a column of Hugging Face's images: their bytes, or a path to them."""
    found = []
    for value in column.to_pylist():
        data = None if value is None else value.get("bytes")
        if data is None and value and value.get("path"):
            with open(value["path"], "rb") as file:
                data = file.read()
        found.append(data)
    return found
