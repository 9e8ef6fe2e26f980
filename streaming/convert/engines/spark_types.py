"""What Spark's types become: which MDS encoding holds each, and how its values are read.

Types are told apart by the names of their classes, so that nothing here needs pyspark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from streaming.convert.errors import SchemaError
from streaming.convert.schema import no_encoding
from streaming.convert.sources.values import batch_values
from streaming.format.encodings.mds import is_mds_encoding

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "check_encoding",
    "is_json_compatible",
    "spark_columns",
    "spark_encoding",
    "spark_values",
]

_NUMBERS = {
    "ByteType": "int8",
    "ShortType": "int16",
    "IntegerType": "int32",
    "LongType": "int64",
    "FloatType": "float32",
    "DoubleType": "float64",
}
_SCALARS = {
    **_NUMBERS,
    "StringType": "str",
    "CharType": "str",
    "VarcharType": "str",
    "BinaryType": "bytes",
    "DecimalType": "str_decimal",
    "BooleanType": "json",
    "NullType": "json",
}
_TEXT = {"StringType", "CharType", "VarcharType"}
_TIMES = {
    *("DateType", "TimestampType", "TimestampNTZType", "DayTimeIntervalType"),
    "TimeType",
}
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} | {"int"}
_TO_ARROW_AS_NUMBER = {"DateType", "TimestampType", "TimestampNTZType", "DayTimeIntervalType"}


def _name(kind: Any) -> str:
    return type(kind).__name__


def _plain(kind: Any) -> Any:
    """The type that Spark stores a type of the user's as."""
    while hasattr(kind, "sqlType"):
        kind = kind.sqlType()
    return kind


def spark_encoding(kind: Any) -> str | None:
    """The encoding that holds values of a Spark type.

    Args:
        kind: A `pyspark.sql.types.DataType`.

    Returns:
        Its name; None if no encoding holds them faithfully.
    """
    kind = _plain(kind)
    if _name(kind) == "ArrayType" and _name(_plain(kind.elementType)) in _NUMBERS:
        return f"ndarray:{_NUMBERS[_name(_plain(kind.elementType))]}"
    return _SCALARS.get(_name(kind)) or ("json" if is_json_compatible(kind) else None)


def is_json_compatible(data_type: Any) -> bool:
    """Whether JSON gives all values of a Spark type back as they are (NaN aside).

    Args:
        data_type: A `pyspark.sql.types.DataType`.

    Returns:
        True for numbers, booleans, text and null, and for arrays, structs and maps of text to such.
    """
    kind = _plain(data_type)
    name = _name(kind)
    if name == "ArrayType":
        return is_json_compatible(kind.elementType)
    if name == "MapType":
        return _name(kind.keyType) in _TEXT and is_json_compatible(kind.valueType)
    if name == "StructType":
        return all(is_json_compatible(field.dataType) for field in kind.fields)
    return name in _NUMBERS or name in _TEXT or name in ("BooleanType", "NullType")


def spark_columns(
    schema: Any,
    given: Mapping[str, str] | None = None,
    dropped: Collection[str] = (),
    where: str = "the DataFrame",
) -> dict[str, str]:
    """The encodings of a DataFrame's columns.

    Args:
        schema: Its `StructType`.
        given: Encodings that the user wants, each checked against its column's type.
        dropped: Columns to be left out.
        where: What it is, for messages.

    Raises:
        SchemaError: If a column has no faithful encoding, or not the wanted one, or is not there.
    """
    given = given or {}
    kinds = {field.name: field.dataType for field in schema.fields}
    if len(kinds) != len(schema.fields):
        names = [field.name for field in schema.fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SchemaError(f"{where}: columns have the same name: {', '.join(twice)}; rename one")
    for name in [*given, *dropped]:
        if name not in kinds:
            raise SchemaError(f"{where} has no column {name!r}; there are {', '.join(kinds)}")
    found = {}
    for name, kind in kinds.items():
        if name in given:
            check_encoding(name, kind, given[name], where)
            found[name] = given[name]
        elif name not in dropped:
            encoding = spark_encoding(kind)
            if encoding is None:
                raise SchemaError(no_encoding(name, kind.simpleString(), where))
            found[name] = encoding
    return found


def check_encoding(name: str, kind: Any, encoding: str, where: str = "the DataFrame") -> None:
    """See that a column can be written as the user wants.

    Args:
        name: The column's name.
        kind: Its Spark type.
        encoding: The encoding that is wanted.
        where: What it is in, for messages.

    Raises:
        SchemaError: If there is no such encoding, or it is for values of another type.
    """
    if not is_mds_encoding(encoding):
        raise SchemaError(f"{where}: column {name!r}: there is no encoding {encoding!r}")
    kind = _plain(kind)
    if not _suits(kind, encoding):
        ours = spark_encoding(kind)
        hint = f"; {ours!r} would hold it" if ours else ""
        raise SchemaError(
            f"{where}: column {name!r} is of type {kind.simpleString()}, which can't be written "
            f"as {encoding!r}{hint}. Or cast it in Spark"
        )


def _suits(kind: Any, encoding: str) -> bool:
    name, base = _name(kind), encoding.partition(":")[0]
    if name == "BinaryType":  # images and whatever else is encoded already
        return base not in _INTEGERS and base not in ("str", "json")
    if name in _TIMES:
        return base == "str" or (base in ("int", "int64") and name in _TO_ARROW_AS_NUMBER)
    if base == "json":
        return is_json_compatible(kind)
    if name == "ArrayType":
        element = _NUMBERS.get(_name(_plain(kind.elementType)))
        return element is not None and encoding.split(":")[:2] == ["ndarray", element]
    if name in ("FloatType", "DoubleType"):
        return base in ("float32", "float64", "str_float")
    if name in _NUMBERS:
        return base in _INTEGERS or base == "str_int"
    return base == _SCALARS.get(name)


def spark_values(
    batches: Iterator[pa.RecordBatch], columns: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """The columns of record batches that Spark made, as their encodings take them.

    Args:
        batches: What `DataFrame.mapInArrow` hands over.
        columns: Encodings by column; a column without one is given as Python objects.

    Returns:
        Column name to a NumPy array or a list of as many values.
    """
    for batch in batches:
        yield {
            name: _column(batch, at, name, columns.get(name))
            for at, name in enumerate(batch.schema.names)
        }


def _column(batch: pa.RecordBatch, at: int, name: str, encoding: str | None) -> Any:
    column = batch.column(at)
    if encoding is None or encoding == "json":
        return _objects(column.type, column.to_pylist())
    if encoding.startswith("str_"):
        return column.to_pylist()
    return batch_values(batch.select([at]), {name: encoding})[name]


def _objects(kind: pa.DataType, values: list[Any]) -> list[Any]:
    """Python objects of Arrow values, maps as dicts."""
    import pyarrow as pa

    if not pa.types.is_nested(kind):
        return values
    return [None if value is None else _object(kind, value) for value in values]


def _object(kind: pa.DataType, value: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_map(kind):
        names, items = [name for name, _ in value], [one for _, one in value]
        return dict(zip(names, _objects(kind.item_type, items), strict=True))
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return {field.name: _objects(field.type, [value[field.name]])[0] for field in fields}
    return _objects(kind.value_type, value)
