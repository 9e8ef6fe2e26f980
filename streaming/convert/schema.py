"""Which MDS encoding holds a column faithfully: by an Arrow type, or by the values themselves.

What a value is read back as has to equal what it was, type included. Where no encoding does that,
there is an error that names the column, and never a guess.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming.convert.errors import SchemaError
from streaming.convert.source import Part, Sample, Source
from streaming.format.encodings.mds import is_mds_encoding

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "NUMBERS",
    "arrow_encoding",
    "columns_of_arrow",
    "columns_of_samples",
    "show_schema",
    "value_kind",
]

NUMBERS = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""NumPy's numbers that have an encoding of their own."""
_JSON = "json"
_PLAIN = {"json", "int", "float64", "str"}
"""Kinds of values that JSON holds as well."""
_INT64 = range(-(1 << 63), 1 << 63)


def columns_of_arrow(
    schema: pa.Schema,
    where: str,
    given: Mapping[str, str] | None = None,
    dropped: Iterable[str] = (),
    nulls: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """The encodings of an Arrow table's columns.

    Args:
        schema: The table's.
        where: What it is, for messages.
        given: Encodings that the user wants.
        dropped: Columns to be left out.
        nulls: How many nulls a column has, where that is known.

    Raises:
        SchemaError: If a column has no faithful encoding, or a named one is not there.
    """
    given, dropped, nulls = given or {}, set(dropped), nulls or {}
    names = list(schema.names)
    _check_names(names, {*given, *dropped}, where)
    found = {}
    for name, kind in zip(names, schema.types, strict=True):
        if name in given:
            found[name] = given[name]
        elif name not in dropped:
            encoding, why = arrow_encoding(kind), ""
            if encoding is not None and nulls.get(name):
                encoding, why = nullable(encoding), f" with {nulls[name]} nulls"
            if encoding is None:
                raise SchemaError(no_encoding(name, f"{kind}{why}", where))
            found[name] = encoding
    return found


def _check_names(names: Sequence[str], wanted: Iterable[str], where: str) -> None:
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SchemaError(f"{where}: columns have the same name: {', '.join(twice)}")
    missing = sorted(set(wanted) - set(names))
    if missing:
        raise SchemaError(
            f"{where} has no column {', '.join(map(repr, missing))}; there are {', '.join(names)}"
        )


def no_encoding(name: str, kind: str, where: str) -> str:
    """What to say of a column that can't be encoded as it is."""
    hint = f'columns={{{name!r}: "…"}}'
    if kind.startswith(("timestamp", "date", "time", "duration")):
        ways = f'"int64" there stores the number that it is, "str" its ISO form; {name!r}: None'
    elif "nulls" in kind:
        ways = f"fill the nulls by a transform; {name!r}: None"
    else:
        ways = f'convert it by a transform, or (unsafe to read) give "pkl"; {name!r}: None'
    return (
        f"{where}: column {name!r} is of type {kind}, which no encoding holds faithfully. Name one "
        f"by {hint}: {ways} leaves it out"
    )


def arrow_encoding(kind: pa.DataType) -> str | None:
    """The encoding that holds values of an Arrow type; None if there is none.

    Example:
        >>> import pyarrow as pa
        >>> [arrow_encoding(kind) for kind in (pa.int16(), pa.list_(pa.float32(), 3), pa.date32())]
        ['int16', 'ndarray:float32:3', None]
    """
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, pa.ExtensionType):
        shape = getattr(kind, "shape", None)  # Hugging Face's Array2D and so on
        inner = _innermost(kind.storage_type)
        if shape and all(shape) and str(inner) in map(str, _arrow_numbers()):
            return f"ndarray:{_number(inner)}:{','.join(map(str, shape))}"
        return arrow_encoding(kind.storage_type)
    if types.is_dictionary(kind):
        return arrow_encoding(kind.value_type)
    number = _number(kind)
    if number is not None:
        return number
    if types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view":
        return "str"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "bytes"
    if types.is_decimal(kind):
        return "str_decimal"
    if types.is_fixed_size_list(kind):
        return _fixed_list(kind)
    if types.is_list(kind) or types.is_large_list(kind):
        number = _number(kind.value_type)
        if number is not None:
            return f"ndarray:{number}"
    return _JSON if _is_json(kind) else None


def _fixed_list(kind: pa.FixedSizeListType) -> str | None:
    import pyarrow as pa

    shape = []
    inner: pa.DataType = kind
    while pa.types.is_fixed_size_list(inner):
        shape.append(inner.list_size)
        inner = inner.value_type
    number = _number(inner)
    if number is not None and all(shape):
        return f"ndarray:{number}:{','.join(map(str, shape))}"
    return _JSON if _is_json(kind) else None


def _innermost(kind: pa.DataType) -> pa.DataType:
    while hasattr(kind, "value_type"):
        kind = kind.value_type
    return kind


def _arrow_numbers() -> list[pa.DataType]:
    import pyarrow as pa

    return [pa.from_numpy_dtype(np.dtype(name)) for name in NUMBERS]


def _number(kind: pa.DataType) -> str | None:
    """NumPy's name of a numeric Arrow type."""
    import pyarrow as pa

    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return str(np.dtype(kind.to_pandas_dtype()))
    return None


def _is_json(kind: pa.DataType) -> bool:
    """Whether JSON has all values of an Arrow type (but for NaN, which is refused when met)."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return all(_is_json(kind.field(at).type) for at in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _is_json(kind.value_type)
    plain = types.is_boolean(kind) or types.is_null(kind) or _number(kind) is not None
    return plain or types.is_string(kind) or types.is_large_string(kind)


def nullable(encoding: str) -> str | None:
    """The encoding that holds the values of another, and null; None if there is none.

    Example:
        >>> nullable("int64"), nullable("str"), nullable("bytes")
        ('json', 'json', None)
    """
    kind = encoding.partition(":")[0]
    return _JSON if kind in {*NUMBERS, "int", "str", "json"} else None


def columns_of_samples(
    samples: Sequence[Sample], where: str, given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The encodings of samples' columns, by their values.

    Args:
        samples: Some of them. All have the same columns.
        where: What they are, for messages.
        given: Encodings that the user wants.

    Raises:
        SchemaError: If a column has no faithful encoding, or is missing in some samples.

    Example:
        >>> columns_of_samples([{"id": 1, "text": "a"}, {"id": 2, "text": "b"}], "the rows")
        {'id': 'int', 'text': 'str'}
    """
    given = given or {}
    names: dict[str, None] = {}
    for sample in samples:
        if not isinstance(sample, Mapping):
            raise SchemaError(
                f"{where}: a sample is a dict of column name to value, not a "
                f"{type(sample).__name__}"
            )
        names.update(dict.fromkeys(sample))
    found = {}
    for name in names:
        if not isinstance(name, str) or not name:
            raise SchemaError(f"{where}: {name!r} can't name a column; names are strings")
        if name in given:
            found[name] = given[name]
            continue
        absent = sum(name not in sample for sample in samples)
        if absent:
            raise SchemaError(
                f"{where}: column {name!r} is missing in {absent} of the first {len(samples)}; "
                "every sample has all columns: add it by a transform (None under the encoding "
                f'"json" stands for what is missing), or leave it out by columns={{{name!r}: None}}'
            )
        kinds = {value_kind(sample[name]) for sample in samples}
        found[name] = _common(name, kinds, where)
    return found


def _common(name: str, kinds: set[str], where: str) -> str:
    """The encoding for values of several kinds."""
    if kinds <= _PLAIN:
        return next(iter(kinds)) if len(kinds) == 1 else _JSON
    if len(kinds) == 1:
        kind = next(iter(kinds))
        if is_mds_encoding(kind):
            return kind
    elif all(kind.startswith("ndarray:") for kind in kinds):
        return "ndarray"
    raise SchemaError(no_encoding(name, " or ".join(sorted(kinds)), where))


def value_kind(value: Any) -> str:
    """The encoding that holds a value faithfully, or what to call its type if there is none.

    Example:
        >>> [value_kind(v) for v in (1, 1.5, "a", b"a", None, [1], np.float32(1), np.zeros(2))]
        ['int', 'float64', 'str', 'bytes', 'json', 'json', 'float32', 'ndarray:float64']
    """
    kind = type(value)
    if kind is str or kind is bytes:
        return kind.__name__
    if kind is int:
        return "int" if value in _INT64 else _JSON
    if kind is float:
        return "float64"
    if kind is Decimal:
        return "str_decimal"
    if isinstance(value, np.ndarray):
        return _array_kind(value)
    if isinstance(value, np.generic):
        return _JSON if kind is np.bool_ else str(value.dtype)
    if hasattr(value, "detach") and hasattr(value, "dtype"):  # a torch tensor
        return _array_kind(value.detach().cpu().numpy())
    if kind.__module__.partition(".")[0] == "PIL":
        return "pil"
    if is_json(value):
        return _JSON
    return f"{kind.__module__}.{kind.__qualname__}"


def _array_kind(value: np.ndarray[Any, Any]) -> str:
    name = str(value.dtype)
    if name not in NUMBERS:
        return f"an array of {name}"
    return f"ndarray:{name}" if value.ndim else name


def is_json(value: Any) -> bool:
    """Whether JSON gives a value back as it is (NaN aside, which is refused when met)."""
    if value is None or type(value) in (bool, int, float, str):
        return True
    if type(value) is list:
        return all(map(is_json, value))
    return type(value) is dict and all(
        type(name) is str and is_json(one) for name, one in value.items()
    )


def show_schema(
    source: Source, columns: Mapping[str, str], parts: Sequence[Part], out: str, file: Any = None
) -> None:
    """Print what will be done: source, columns, parts.

    Args:
        source: What is converted.
        columns: Its columns' encodings.
        parts: Its parts.
        out: Where to.
        file: Where it is printed; the error output unless given.
    """
    file = file if file is not None else sys.stderr
    rows = [part.rows for part in parts if part.rows is not None]
    counted = f", {sum(rows):,} rows" if rows and len(rows) == len(parts) else ""
    size = sum(part.bytes for part in parts)
    sized = f", {size:,} bytes" if size else ""
    title = f"{source.describe()}{counted}{sized} → {out} ({len(parts)} parts)"
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        width = max([len("column"), *map(len, columns)])
        lines = [f"{name:<{width}}  {encoding}" for name, encoding in sorted(columns.items())]
        print("\n".join([title, f"{'column':<{width}}  encoding", *lines]), file=file)
        return
    table = Table("column", "encoding")
    for name, encoding in sorted(columns.items()):
        table.add_row(Text(name), Text(encoding))
    console = Console(file=file)
    console.print(Text(title))
    console.print(table)
