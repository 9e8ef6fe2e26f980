"""Data sets of the library `datasets`, in memory or streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from streaming.convert.errors import ConvertError, SchemaError
from streaming.convert.schema import columns_of_arrow, columns_of_samples
from streaming.convert.source import Batch, Part, Sample, Source
from streaming.convert.sources.embedded import embedded_files
from streaming.convert.sources.recast import RecastSource
from streaming.convert.sources.tables import row_parts
from streaming.convert.sources.torch_data import row_value
from streaming.convert.sources.values import batch_values, rows_of, sliced

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DatasetSource", "IterableDatasetSource", "open_dataset"]

_READ_ROWS = 1000
_INFER_ROWS = 100


def open_dataset(dataset: Any, part_bytes: int | None) -> Source:
    """A source of a data set.

    Args:
        dataset: A `Dataset` or an `IterableDataset`.
        part_bytes: What a part has, about.

    Raises:
        ConvertError: If it is a dict of splits, or something else.
    """
    if isinstance(dataset, Mapping):
        raise ConvertError(
            f"this is a dict of splits ({', '.join(map(str, dataset))}): convert each of them on "
            "its own, to a place of its own"
        )
    if hasattr(dataset, "num_rows"):
        return DatasetSource(dataset, part_bytes)
    if hasattr(dataset, "ex_iterable") or hasattr(dataset, "_ex_iterable"):
        return IterableDatasetSource(dataset)
    raise ConvertError(f"a datasets.{type(dataset).__name__} is not a data set with rows")


class _Rows(RecastSource):
    """What both kinds have in common."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def columns(self) -> dict[str, str]:
        """The columns, by the data set's features; files (images, sound) by their first one."""
        return dict(self._columns)

    @cached_property
    def _columns(self) -> dict[str, str]:
        files = embedded_files(self._schema, {*self.given, *self.dropped}, self._first)
        given = {**files, **self.given}
        return columns_of_arrow(self._schema, self.describe(), given, self.dropped, self._nulls())

    def _first(self, names: list[str]) -> pa.Table | None:
        return next((table for part in self.parts() for table in self._tables(part)), None)

    @cached_property
    def _schema(self) -> pa.Schema:
        schema = getattr(self.dataset.features, "arrow_schema", None)
        if schema is None:
            schema = next(self._tables(self.parts()[0]), None)
            schema = None if schema is None else schema.schema
        if schema is None:
            raise SchemaError(f"{self.describe()} has no rows to infer columns from")
        return schema

    def _nulls(self) -> dict[str, int]:
        return {}

    def read(self, part: Part) -> Iterator[Sample]:
        """The rows of a part."""
        return rows_of(self._batches(part))

    def batches(self, part: Part) -> Iterator[Batch]:
        """The rows of a part, in batches of some megabytes."""
        return self._batches(part)

    def _batches(self, part: Part) -> Iterator[Mapping[str, Any]]:
        columns = self._columns
        for table in self._tables(part):
            for batch in sliced(table):
                yield batch_values(batch, columns)

    def _tables(self, part: Part) -> Iterator[pa.Table]:
        raise NotImplementedError


class DatasetSource(_Rows):
    """A `Dataset`; its table is mapped from disk, so that workers need no copy.

    Args:
        dataset: The data set.
        part_bytes: What a part has, about.
    """

    def __init__(self, dataset: Any, part_bytes: int | None) -> None:
        super().__init__(dataset.with_format("arrow"))
        self.part_bytes = part_bytes

    def describe(self) -> str:
        """What it is, and how large."""
        return f"Hugging Face Dataset, {self.dataset.num_rows:,} rows"

    def parts(self) -> Sequence[Part]:
        """Ranges of rows."""
        rows, table = self.dataset.num_rows, self.dataset.data
        # A data set that was shuffled or selected from has a part of its table's rows.
        size = table.nbytes * rows // max(1, table.num_rows)
        return row_parts(rows, size, self.part_bytes)

    def fingerprint(self) -> str:
        """The library's own."""
        return f"{self.describe()} {self.dataset._fingerprint} {self.part_bytes}"

    def _nulls(self) -> dict[str, int]:
        table = self.dataset.data
        return {name: table.column(name).null_count for name in table.column_names}

    def _tables(self, part: Part) -> Iterator[pa.Table]:
        start, stop = part.spec
        for at in range(start, stop, _READ_ROWS):
            yield self.dataset[at : min(at + _READ_ROWS, stop)]


class IterableDatasetSource(_Rows):
    """An `IterableDataset`. Its shards are the parts: one that has a single shard is one part.

    Args:
        dataset: The data set.
    """

    def describe(self) -> str:
        """What it is."""
        return f"Hugging Face IterableDataset of {self._shards} shards"

    @property
    def _shards(self) -> int:
        return int(getattr(self.dataset, "num_shards", None) or 1)

    def parts(self) -> Sequence[Part]:
        """The data set's shards."""
        return [Part(n, f"shard {n} of {self._shards}", (n,)) for n in range(self._shards)]

    @cached_property
    def _columns(self) -> dict[str, str]:
        if self.dataset.features is not None:
            return super()._columns
        rows = list(islice(self.read(self.parts()[0]), _INFER_ROWS))
        if not rows:
            raise SchemaError(f"{self.describe()} has no rows to infer columns from")
        return columns_of_samples(rows, self.describe(), self.given)

    def read(self, part: Part) -> Iterator[Sample]:
        """The rows of a part."""
        if self.dataset.features is not None:
            yield from super().read(part)
            return
        for row in self._shard(part):
            yield {
                name: row_value(value, self.given.get(name, ""))
                for name, value in row.items()
                if name not in self.dropped
            }

    def batches(self, part: Part) -> Iterator[Batch] | None:  # type: ignore[override]
        """The rows of a part as columns, if the library knows what they are."""
        return None if self.dataset.features is None else super().batches(part)

    def _tables(self, part: Part) -> Iterator[pa.Table]:
        yield from self._shard(part).with_format("arrow").iter(_READ_ROWS)

    def _shard(self, part: Part) -> Any:
        if self._shards == 1:
            return self.dataset
        return self.dataset.shard(num_shards=self._shards, index=part.spec[0])
