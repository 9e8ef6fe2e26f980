"""Tables in memory: pandas, polars, Arrow. All become Arrow tables, mostly without a copy."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import xxhash

from streaming.convert.errors import ConvertError
from streaming.convert.schema import columns_of_arrow
from streaming.convert.source import Part, Sample, Source, part_bytes_for
from streaming.convert.sources.embedded import embedded_files
from streaming.convert.sources.packages import needed
from streaming.convert.sources.recast import RecastSource
from streaming.convert.sources.values import batch_values, rows_of, sliced

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TableSource", "open_table"]


def open_table(table: Any, part_bytes: int | None) -> Source:
    """A source of a table.

    Args:
        table: A DataFrame of pandas or polars (a lazy one is collected), an Arrow table, record
            batch, or data set.
        part_bytes: What a part has, about.

    Raises:
        ConvertError: If it is something else.
    """
    needed("pyarrow")
    import pyarrow as pa

    package = type(table).__module__.partition(".")[0]
    if isinstance(table, pa.Table):
        return TableSource(table, part_bytes, "Arrow table")
    if isinstance(table, pa.RecordBatch):
        return TableSource(pa.Table.from_batches([table]), part_bytes, "Arrow record batch")
    if package == "pandas" and hasattr(table, "columns"):
        _check_names(table.columns)
        return TableSource(
            pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None),
            part_bytes,
            "pandas DataFrame",
        )
    if package == "polars":
        if hasattr(table, "collect"):
            table = table.collect()
        if hasattr(table, "to_arrow") and hasattr(table, "columns"):
            return TableSource(table.to_arrow(), part_bytes, "polars DataFrame")
    if hasattr(table, "to_table"):  # pyarrow.dataset
        files = getattr(table, "files", None)
        if files:
            raise ConvertError(
                "an Arrow data set of files is converted from its files: give their paths"
            )
        return TableSource(table.to_table(), part_bytes, "Arrow data set")
    raise ConvertError(
        f"a {type(table).__module__}.{type(table).__qualname__} is not a table: give a DataFrame "
        "or an Arrow table"
    )


def _check_names(names: Any) -> None:
    for name in names:
        if not isinstance(name, str):
            raise ConvertError(
                f"the column {name!r} of the DataFrame is named by a {type(name).__name__}; names "
                "are strings: rename it"
            )


class TableSource(RecastSource):
    """Rows of an Arrow table.

    Args:
        table: The table.
        part_bytes: What a part has, about.
        kind: How messages call it.
    """

    def __init__(self, table: pa.Table, part_bytes: int | None, kind: str = "table") -> None:
        self.table, self.part_bytes, self.kind = table, part_bytes, kind

    def describe(self) -> str:
        """What it is, and how large."""
        return f"{self.kind}, {self.table.num_rows:,} rows of {self.table.num_columns} columns"

    def columns(self) -> dict[str, str]:
        """The columns, by the table's schema; a column that has nulls is JSON."""
        return self._columns

    @cached_property
    def _columns(self) -> dict[str, str]:
        names = self.table.schema.names
        nulls = {name: self.table.column(at).null_count for at, name in enumerate(names)}
        known = {*self.given, *self.dropped}
        files = embedded_files(self.table.schema, known, lambda _: self.table)
        given = {**files, **self.given}
        return columns_of_arrow(self.table.schema, self.kind, given, self.dropped, nulls)

    def parts(self) -> Sequence[Part]:
        """Ranges of rows."""
        return row_parts(self.table.num_rows, self.table.nbytes, self.part_bytes)

    def read(self, part: Part) -> Iterator[Sample]:
        """The rows of a part."""
        return rows_of(self.batches(part))

    def batches(self, part: Part) -> Iterator[Mapping[str, Any]]:
        """The rows of a part, in batches of some megabytes."""
        start, stop = part.spec
        for batch in sliced(self.table.slice(start, stop - start)):
            yield batch_values(batch, self._columns)

    def fingerprint(self) -> str:
        """What tells it from other tables: its content."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        import pyarrow as pa

        digest = xxhash.xxh3_128(super().fingerprint().encode())

        sink = pa.PythonFile(_Sink(digest), mode="w")
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return digest.hexdigest()


class _Sink(io.RawIOBase):
    """A file whose content goes into a digest."""

    def __init__(self, digest: Any) -> None:
        self._digest = digest

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return len(data)


def row_parts(rows: int, total_bytes: int, part_bytes: int | None = None) -> list[Part]:
    """Parts of as many rows each.

    Args:
        rows: How many there are.
        total_bytes: What they take.
        part_bytes: What a part should take, about; None leaves it to `part_bytes_for`.

    Example:
        >>> [part.spec for part in row_parts(10, 1000, 400)]
        [(0, 4), (4, 8), (8, 10)]
    """
    size = part_bytes_for(total_bytes, part_bytes)
    each = max(1, rows * size // max(total_bytes, 1))
    return [
        Part(
            number=number,
            label=f"rows {start} to {min(start + each, rows) - 1}",
            spec=(start, min(start + each, rows)),
            rows=min(start + each, rows) - start,
            bytes=total_bytes * (min(start + each, rows) - start) // rows,
        )
        for number, start in enumerate(range(0, rows, each))
    ]
