"""What Parquet and Arrow files have in common: a schema, and pieces that their footers list."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streaming.convert.errors import SchemaError
from streaming.convert.schema import columns_of_arrow
from streaming.convert.source import Part, Sample
from streaming.convert.sources.embedded import embedded_files
from streaming.convert.sources.files import Files, Piece
from streaming.convert.sources.lookup import FileRef
from streaming.convert.sources.packages import needed
from streaming.convert.sources.values import batch_values, rows_of, sliced

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowFiles"]


class ArrowFiles(Files):
    """Rows of files that pyarrow reads, and that have the same columns."""

    module = "pyarrow"
    """What is imported to read them."""

    def __init__(
        self,
        files: Sequence[FileRef],
        part_bytes: int | None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        needed(self.module)
        super().__init__(files, part_bytes, options)

    def columns(self) -> dict[str, str]:
        """The columns, by the files' schema; a column that is known to have nulls is JSON."""
        return dict(self._columns)

    def pieces(self) -> Iterator[Piece]:
        """What the files' footers list."""
        yield from self._looked[1]

    def read(self, part: Part) -> Iterator[Sample]:
        """The rows of a part."""
        return rows_of(self.batches(part))

    def batches(self, part: Part) -> Iterator[Mapping[str, Any]]:
        """The rows of a part, in batches of some megabytes."""
        import pyarrow as pa

        columns = self._columns
        for batch in self._raw(part, list(columns)):
            for small in sliced(pa.Table.from_batches([batch])):
                yield batch_values(small, columns)

    @abstractmethod
    def _raw(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a part as they are in the files, and perhaps more columns than named."""

    @abstractmethod
    def _footer(self, number: int, ref: FileRef) -> tuple[pa.Schema, list[Piece]]:
        """A file's schema and pieces."""

    def _nulls(self) -> dict[str, int]:
        """How many nulls columns are known to have."""
        return {}

    @cached_property
    def _columns(self) -> dict[str, str]:
        schema = self._looked[0]
        files = embedded_files(schema, {*self.given, *self.dropped}, self._first)
        given = {**files, **self.given}
        return columns_of_arrow(schema, self.describe(), given, self.dropped, self._nulls())

    def _first(self, names: list[str]) -> pa.RecordBatch | None:
        return next((batch for part in self.parts() for batch in self._raw(part, names)), None)

    @cached_property
    def _looked(self) -> tuple[pa.Schema, list[Piece]]:
        """The files' footers, read once; refused if the schemas differ."""
        schema, pieces = self._footer(0, self.files[0])
        for number, ref in enumerate(self.files[1:], 1):
            other, more = self._footer(number, ref)
            self._check(schema, other, ref)
            pieces.extend(more)
        return schema, pieces

    def _check(self, schema: pa.Schema, other: pa.Schema, ref: FileRef) -> None:
        ours = {field.name: field.type for field in schema}
        theirs = {field.name: field.type for field in other}
        if ours != theirs:
            differing = [n for n in sorted({*ours, *theirs}) if ours.get(n) != theirs.get(n)]
            told = ", ".join(f"{n!r} ({ours.get(n)}, {theirs.get(n)})" for n in differing)
            raise SchemaError(
                f"{ref.url} has not the columns of {self.files[0].url}; they differ in {told}"
            )
