"""Parquet files: parts are row groups, and only columns that are wanted are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from streaming.convert.source import Part
from streaming.convert.sources.arrow_files import ArrowFiles
from streaming.convert.sources.files import Piece
from streaming.convert.sources.lookup import FileRef
from streaming.convert.sources.values import BATCH_BYTES

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["ParquetSource"]

_MOST_ROWS = 8192
_BUFFER_BYTES = 1 << 20


class ParquetSource(ArrowFiles):
    """Rows of Parquet files that have the same columns."""

    kind = "Parquet"
    unit = "row groups"
    module = "pyarrow.parquet"

    def _raw(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for number, first, stop in part.spec:
            with self.open(self.files[number]) as stream, _opened(stream) as file:
                for group in range(first, stop):
                    yield from file.iter_batches(
                        _rows_at_once(file.metadata.row_group(group)),
                        row_groups=[group],
                        columns=list(names),
                        use_threads=False,
                    )

    def _footer(self, number: int, ref: FileRef) -> tuple[pa.Schema, list[Piece]]:
        with self.open(ref) as stream, _opened(stream) as file:
            meta = file.metadata
            groups = [meta.row_group(at) for at in range(meta.num_row_groups)]
            pieces = [
                Piece(number, at, at + 1, _compressed_bytes(group), group.num_rows)
                for at, group in enumerate(groups)
            ]
            return file.schema_arrow, pieces

    def _nulls(self) -> dict[str, int]:
        names = set(self._looked[0].names)
        found: Counter[str] = Counter()
        for ref in self.files:
            with self.open(ref) as stream, _opened(stream) as file:
                for at in range(file.metadata.num_row_groups):
                    _count_nulls(file.metadata.row_group(at), names, found)
        return dict(found)


def _opened(stream: Any) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    # With a buffer, a column of a large row group is read as it is decoded, not whole before.
    return pq.ParquetFile(stream, pre_buffer=False, buffer_size=_BUFFER_BYTES)


def _rows_at_once(group: Any) -> int:
    per_row = max(1, int(group.total_byte_size) // max(1, int(group.num_rows)))
    return max(1, min(_MOST_ROWS, BATCH_BYTES // per_row))


def _compressed_bytes(group: Any) -> int:
    return sum(int(group.column(at).total_compressed_size) for at in range(group.num_columns))


def _count_nulls(group: Any, names: set[str], found: Counter[str]) -> None:
    """Count the nulls of whole values; those within nested ones are the values' own matter."""
    for at in range(group.num_columns):
        column = group.column(at)
        statistics = column.statistics
        if column.path_in_schema in names and statistics is not None and statistics.null_count:
            found[column.path_in_schema] += statistics.null_count
