"""Parquet files: parts are row groups, columns are read as needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streaming.convert.errors import SchemaError
from streaming.convert.schema import columns_of_arrow
from streaming.convert.source import Part, Sample
from streaming.convert.sources.files import FileRef, Files, Piece
from streaming.convert.sources.packages import needed
from streaming.convert.sources.values import BATCH_BYTES, batch_values, rows_of, sliced

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["ParquetSource"]

_MOST_ROWS = 8192


class ParquetSource(Files):
    """Rows of Parquet files that have the same columns."""

    kind = "Parquet"
    unit = "row groups"

    def __init__(
        self, files: Sequence[FileRef], part_bytes: int, options: Mapping[str, Any] | None = None
    ) -> None:
        needed("pyarrow.parquet")
        super().__init__(files, part_bytes, options)
        self._given: dict[str, str] = {}
        self._dropped: frozenset[str] = frozenset()
        self._pieces: list[Piece] = []
        self._nulls: dict[str, int] = {}

    def with_columns(
        self, columns: Mapping[str, str], dropped: Collection[str] = ()
    ) -> ParquetSource:
        """The same files, read for other encodings."""
        other = ParquetSource(self.files, self.part_bytes, self.options)
        other._given, other._dropped = {**self._given, **columns}, frozenset(dropped)
        return other

    def columns(self) -> dict[str, str]:
        """The columns, by the files' schema; a column that has nulls is JSON."""
        self._look()
        return columns_of_arrow(
            self._schema, self.describe(), self._given, self._dropped, self._nulls
        )

    def pieces(self) -> Iterator[Piece]:
        """The row groups."""
        self._look()
        yield from self._pieces

    def read(self, part: Part) -> Iterator[Sample]:
        """The rows of a part."""
        return rows_of(self.batches(part))

    def batches(self, part: Part) -> Iterator[Mapping[str, Any]]:
        """The rows of a part, in batches of some megabytes."""
        columns = self._columns
        for number, first, stop in part.spec:
            with self.open(self.files[number]) as stream, self._file(stream) as file:
                meta = file.metadata
                for group in range(first, stop):
                    rows = meta.row_group(group)
                    per_row = max(1, rows.total_byte_size // max(1, rows.num_rows))
                    for batch in file.iter_batches(
                        max(1, min(_MOST_ROWS, BATCH_BYTES // per_row)),
                        row_groups=[group],
                        columns=list(columns),
                        use_threads=False,
                    ):
                        for small in sliced(_table(batch), _MOST_ROWS):
                            yield batch_values(small, columns)

    @cached_property
    def _columns(self) -> dict[str, str]:
        return self.columns()

    @cached_property
    def _schema(self) -> pa.Schema:
        with self.open(self.files[0]) as stream, self._file(stream) as file:
            return file.schema_arrow

    @staticmethod
    def _file(stream: Any) -> pq.ParquetFile:
        import pyarrow.parquet as pq

        return pq.ParquetFile(stream, pre_buffer=False)

    def _look(self) -> None:
        """Read the files' footers, once: row groups, nulls, and whether the schemas agree."""
        if self._pieces:
            return
        pieces = []
        for number, ref in enumerate(self.files):
            with self.open(ref) as stream, self._file(stream) as file:
                self._check(file.schema_arrow, ref)
                for group in range(file.metadata.num_row_groups):
                    rows = file.metadata.row_group(group)
                    self._count_nulls(rows)
                    size = sum(
                        rows.column(at).total_compressed_size for at in range(rows.num_columns)
                    )
                    pieces.append(Piece(number, group, group + 1, size, rows.num_rows))
        self._pieces = pieces

    def _check(self, schema: pa.Schema, ref: FileRef) -> None:
        ours = {field.name: field.type for field in self._schema}
        theirs = {field.name: field.type for field in schema}
        if ours != theirs:
            differing = sorted(
                name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)
            )
            told = ", ".join(f"{n!r} ({ours.get(n)}, {theirs.get(n)})" for n in differing)
            raise SchemaError(
                f"{ref.url} has not the columns of {self.files[0].url}; they differ in {told}"
            )

    def _count_nulls(self, rows: Any) -> None:
        for at in range(rows.num_columns):
            column = rows.column(at)
            if "." in column.path_in_schema and column.path_in_schema not in self._schema.names:
                continue  # nulls within nested values are those values' matter
            statistics = column.statistics
            if statistics is not None and statistics.has_null_count and statistics.null_count:
                name = column.path_in_schema
                self._nulls[name] = self._nulls.get(name, 0) + statistics.null_count


def _table(batch: pa.RecordBatch) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches([batch])
