"""A DataFrame of Spark into MDS shards."""

# Not by name when it is used, as elsewhere: one name here is a module's as well, which would win.
from streaming.base.converters.dataframe_to_mds import (
    dataframe_to_mds,
    infer_dataframe_schema,
    is_json_compatible,
)

__all__ = ["dataframe_to_mds", "infer_dataframe_schema", "is_json_compatible"]
