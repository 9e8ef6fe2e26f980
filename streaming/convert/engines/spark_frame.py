"""A DataFrame of Spark as a source."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streaming.convert.engines.spark_types import spark_columns, spark_encoding
from streaming.convert.source import Part, Sample, Source, Unreadable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SparkFrame"]


class SparkFrame(Source):
    """The rows of a DataFrame, each of its partitions a part.

    What a partition holds can differ from one run to the next, so a conversion that is taken up
    again writes all of them again; give the files under a DataFrame instead, with `engine="spark"`,
    for one that goes on where it was.

    Args:
        frame: The DataFrame.
    """

    engine = "spark"

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame
        self._given: dict[str, str] = {}
        self._dropped: frozenset[str] = frozenset()

    def describe(self) -> str:
        """What it is."""
        return f"Spark DataFrame of {len(self.frame.columns)} columns"

    def with_columns(self, columns: Mapping[str, str], dropped: Collection[str] = ()) -> Source:
        """The same DataFrame, read for other encodings, without the dropped columns."""
        spark_columns(self.frame.schema, columns, dropped, self.describe())
        other = SparkFrame(self.frame.drop(*dropped) if dropped else self.frame)
        other._given = {**self._given, **columns}
        return other

    def columns(self) -> dict[str, str]:
        """The columns, by their types. Any column may have nulls; only JSON ones hold them."""
        return spark_columns(self.frame.schema, self._given, (), self.describe())

    def encodings(self) -> dict[str, str]:
        """The encodings that values are made for; columns that have none are left out.

        For a transform, which may make something of them.
        """
        found = {f.name: spark_encoding(f.dataType) for f in self.frame.schema.fields}
        return {**{name: one for name, one in found.items() if one}, **self._given}

    def parts(self) -> Sequence[Part]:
        """One: how many partitions there are is known when Spark has computed them."""
        return [Part(0, "all partitions")]

    def read(self, part: Part) -> Iterator[Sample | Unreadable]:
        """All rows, one by one, for looking at the first ones."""
        from streaming.convert.engines.spark_types import spark_values
        from streaming.convert.sources.values import rows_of

        frame: Any = self.frame.limit(_PEEK_ROWS)
        old = not hasattr(frame, "toArrow")  # Spark before 4.0
        batches = frame._collect_as_arrow() if old else frame.toArrow().to_batches()
        return rows_of(spark_values(iter(batches), self.encodings()))

    def fingerprint(self) -> str:
        """What tells it from DataFrames of other columns; no part of it is ever taken as done."""
        return hashlib.sha256(self.frame.schema.json().encode()).hexdigest()


_PEEK_ROWS = 1000
