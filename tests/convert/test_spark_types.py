"""What Spark's types become; nothing here starts Spark."""

import pytest
from pyspark.sql import types

from streaming.base.converters import infer_dataframe_schema, is_json_compatible
from streaming.convert import SchemaError
from streaming.convert.engines.spark_types import check_encoding, spark_columns, spark_encoding

STRUCT = types.StructType([types.StructField("a", types.IntegerType())])
DATED = types.StructType([types.StructField("a", types.DateType())])
MAPPED = [
    (types.ByteType(), "int8"),
    (types.ShortType(), "int16"),
    (types.IntegerType(), "int32"),
    (types.LongType(), "int64"),
    (types.FloatType(), "float32"),
    (types.DoubleType(), "float64"),
    (types.DecimalType(10, 2), "str_decimal"),
    (types.StringType(), "str"),
    (types.VarcharType(9), "str"),
    (types.CharType(3), "str"),
    (types.BinaryType(), "bytes"),
    (types.BooleanType(), "json"),
    (types.NullType(), "json"),
    (types.ArrayType(types.ByteType()), "ndarray:int8"),
    (types.ArrayType(types.IntegerType()), "ndarray:int32"),
    (types.ArrayType(types.DoubleType()), "ndarray:float64"),
    (types.ArrayType(types.StringType()), "json"),
    (types.ArrayType(types.BooleanType()), "json"),
    (types.ArrayType(types.ArrayType(types.LongType())), "json"),
    (types.MapType(types.StringType(), types.LongType()), "json"),
    (STRUCT, "json"),
    (types.ArrayType(STRUCT), "json"),
]
UNMAPPED = [
    types.DateType(),
    types.TimestampType(),
    types.TimestampNTZType(),
    types.DayTimeIntervalType(),
    types.YearMonthIntervalType(),
    types.ArrayType(types.BinaryType()),
    types.ArrayType(types.DecimalType(10, 2)),
    types.MapType(types.IntegerType(), types.StringType()),
    DATED,
    types.ArrayType(DATED),
]


@pytest.mark.parametrize(("kind", "encoding"), MAPPED, ids=str)
def test_type_maps(kind, encoding):
    assert spark_encoding(kind) == encoding
    check_encoding("x", kind, encoding)


@pytest.mark.parametrize("kind", UNMAPPED, ids=str)
def test_type_without_a_faithful_encoding_is_refused(kind):
    assert spark_encoding(kind) is None
    schema = types.StructType([types.StructField("x", kind)])
    with pytest.raises(SchemaError, match=r"column 'x' is of type .*no encoding holds faithfully"):
        spark_columns(schema)
    assert spark_columns(schema, dropped=["x"]) == {}


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        (types.DateType(), "int64"),
        (types.TimestampType(), "str"),
        (types.DayTimeIntervalType(), "int"),
        (types.ByteType(), "uint8"),
        (types.IntegerType(), "int64"),
        (types.LongType(), "str_int"),
        (types.FloatType(), "float64"),
        (types.LongType(), "json"),
        (types.ArrayType(types.IntegerType()), "ndarray:int32:4"),
        (types.ArrayType(types.IntegerType()), "json"),
        (types.BinaryType(), "jpeg"),
        (types.BinaryType(), "pkl"),
    ],
)
def test_other_encodings_that_suit_a_type(kind, encoding):
    check_encoding("x", kind, encoding)


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        (types.IntegerType(), "str"),
        (types.StringType(), "bytes"),
        (types.StringType(), "pkl"),
        (types.FloatType(), "int32"),
        (types.ArrayType(types.IntegerType()), "ndarray:int64"),
        (types.ArrayType(types.IntegerType()), "ndarray"),
        (types.BinaryType(), "json"),
        (types.BooleanType(), "int8"),
        (types.MapType(types.IntegerType(), types.StringType()), "json"),
    ],
)
def test_encoding_for_other_values_is_refused(kind, encoding):
    with pytest.raises(SchemaError, match=f"column 'x' is of type .* as '{encoding}'"):
        check_encoding("x", kind, encoding)


def test_unknown_encoding_and_column_are_named():
    schema = types.StructType([types.StructField("x", types.LongType())])
    with pytest.raises(SchemaError, match="'x': there is no encoding 'nope'"):
        spark_columns(schema, {"x": "nope"})
    with pytest.raises(SchemaError, match="no column 'y'; there are x"):
        spark_columns(schema, {"y": "int"})
    with pytest.raises(SchemaError, match="no column 'y'"):
        spark_columns(schema, dropped=["y"])
    twice = types.StructType([*schema.fields, *schema.fields])
    with pytest.raises(SchemaError, match="same name: x"):
        spark_columns(twice)


def test_infer_dataframe_schema_checks_only_the_columns_that_are_named():
    class Frame:
        schema = types.StructType(
            [types.StructField("x", types.LongType()), types.StructField("day", types.DateType())]
        )
        columns = ["x", "day"]

    frame = Frame()
    assert infer_dataframe_schema(frame, {"x": "int64"}) is None
    with pytest.raises(ValueError, match="'day' is of type date"):
        infer_dataframe_schema(frame)
    with pytest.raises(ValueError, match="as 'str'"):
        infer_dataframe_schema(frame, {"x": "str"})


def test_is_json_compatible():
    assert is_json_compatible(types.IntegerType())
    assert is_json_compatible(types.ArrayType(STRUCT))
    assert not is_json_compatible(types.BinaryType())
    assert not is_json_compatible(DATED)
    assert not is_json_compatible(types.MapType(types.LongType(), types.StringType()))
