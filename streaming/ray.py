"""Ray Data: write a data set's rows into shards, and read shards as a data set of Ray.

`ds.write_datasink(MDSSink("s3://bucket/train"))` and `read_mds("s3://bucket/train")`. To convert
files with Ray, see `streaming.convert.convert(…, engine="ray")`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming.cli.place import Access, Place, open_place
from streaming.cli.shards import opened
from streaming.convert.commit import Report, commit, prepare
from streaming.convert.engines.given import Given, filled
from streaming.convert.errors import ConvertError, SchemaError
from streaming.convert.job import Job, PartReport, write_part
from streaming.convert.schema import columns_of_arrow
from streaming.convert.source import Part
from streaming.convert.sources.values import batch_values, sliced
from streaming.format.errors import MissingExtraError

try:
    from ray.data import DataContext, Dataset, Datasink, Datasource, ReadTask, read_datasource
    from ray.data.block import BlockAccessor, BlockMetadata
except ModuleNotFoundError as exc:
    if (exc.name or "").partition(".")[0] != "ray":
        raise
    raise MissingExtraError(
        "Ray Data needs the package ray: pip install 'shardstream[ray]'"
    ) from exc

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MDSDatasource", "MDSSink", "read_mds"]

_BATCH_BYTES = 1 << 24


class JobSink(Datasink[Any]):
    """Writes what each task is given as a part of a conversion that has begun.

    Args:
        job: The conversion; None if it begins with the writing.
    """

    def __init__(self, job: Job | None) -> None:
        self.job = job
        self.reports: list[PartReport] = []

    def on_write_start(self, schema: Any = None) -> None:
        """Refuse what would publish a data set with holes."""
        if DataContext.get_current().max_errored_blocks:
            raise ValueError(
                "Ray Data is to ignore failed blocks (DataContext.max_errored_blocks), and their "
                "rows would be missing; set it to 0, and leave bad rows out by on_error='skip'"
            )

    def write(self, blocks: Iterable[Any], ctx: Any) -> PartReport:
        """Write a task's blocks, in a folder named by the task's number.

        Args:
            blocks: Arrow tables or pandas DataFrames.
            ctx: Ray's context of the task.
        """
        job, number = self.job, int(ctx.task_idx)
        assert job is not None
        tables = [BlockAccessor.for_block(block).to_arrow() for block in blocks]
        tables = [table for table in tables if table.num_rows]
        if not tables:
            return PartReport(number, 0, 0, ())
        columns = job.columns or _columns(tables[0].schema)
        reads = columns
        if job.transform is not None:  # it may make something of what has no encoding
            reads = _columns(tables[0].schema, lenient=True)
        values = (one for table in tables for one in _values(table, reads))
        source = Given(job.source.describe(), columns, values)
        whole = replace(job, source=source, columns=columns, resume=False)
        return write_part(whole, Part(number, f"task {number}"))

    def on_write_complete(self, write_result: Any) -> None:
        """Keep the reports."""
        self.reports = list(write_result.write_returns)


class MDSSink(JobSink):
    """Writes a data set of Ray as an MDS data set: `ds.write_datasink(MDSSink(out))`.

    Each task's rows go into a folder of its own; when all are written, one index makes them a data
    set, and nothing is readable before. Ray hands out rows in the order in which they are ready,
    unless `ds.context.execution_options.preserve_order` is true: then the same input gives the same
    bytes each time.

    Args:
        out: A folder that all machines share, or a URL.
        columns: The encoding of each column; those that are not named are left out. Inferred from
            the columns' types if it is None.
        compression: Of the shards, as in `"zstd"`.
        hashes: To be kept of their files, as in `["xxh64"]`.
        size_limit: Most bytes of a shard before compression.
        on_error: "raise" ends at the first row that can't be written; "skip" leaves it out.
        max_errors: How many may be left out; None for any number.
        mode: "create", "append" (which needs `columns`) or "overwrite".
        storage_options: Options of the store.

    Raises:
        ConvertError, FileExistsError, SchemaError: See `streaming.convert.convert`; raised while it
            is written.
    """

    report: Report | None
    """What was done, when it has been."""

    def __init__(
        self,
        out: str,
        columns: Mapping[str, str] | None = None,
        *,
        compression: str | None = None,
        hashes: Sequence[str] | None = None,
        size_limit: int | str | None = 1 << 26,
        on_error: str = "raise",
        max_errors: int | None = 100,
        mode: str = "create",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(None)
        if mode == "append" and columns is None:
            raise ValueError('mode="append" needs columns: those of the data set that is there')
        self.columns = dict(columns or {})
        self.report = None
        self._out = out
        self._how: dict[str, Any] = {
            "compression": compression,
            "hashes": hashes,
            "size_limit": size_limit,
            "on_error": on_error,
            "max_errors": max_errors,
            "mode": mode,
            "storage_options": storage_options,
        }

    def get_name(self) -> str:
        """How Ray calls it."""
        return "MDS"

    def on_write_start(self, schema: Any = None) -> None:
        """Look whether the place can be written to, and note that a conversion begins."""
        super().on_write_start(schema)
        source = Given("rows of Ray Data", self.columns)
        # What tasks get can differ from one run to the next: nothing of an earlier one is kept.
        self.job = prepare(source, self._out, columns=self.columns, resume=False, **self._how)

    def on_write_complete(self, write_result: Any) -> None:
        """Make what was written a data set."""
        super().on_write_complete(write_result)
        assert self.job is not None
        columns = _written(self.reports) or self.columns
        job = replace(self.job, columns=columns)
        self.report = commit(job, filled(job, self.reports))


def _written(reports: Iterable[PartReport]) -> dict[str, str]:
    """The columns of parts, which must be the same."""
    found: dict[str, str] = {}
    for report in reports:
        for shard in report.shards:
            names, encodings = shard["column_names"], shard["column_encodings"]
            columns = dict(zip(names, encodings, strict=True))
            if found and columns != found:
                raise ConvertError(
                    f"rows of task {report.number} have the columns {columns}, others {found}; "
                    "give the sink their encodings by columns="
                )
            found = columns
    return found


def _columns(schema: pa.Schema, lenient: bool = False) -> dict[str, str]:
    """The encodings of a block's columns; if it should be lenient, only of those that have one."""
    if not lenient:
        return columns_of_arrow(schema, "Ray Data")
    found: dict[str, str] = {}
    for at, name in enumerate(schema.names):
        try:
            found |= columns_of_arrow(schema.empty_table().select([at]).schema, "Ray Data")
        except SchemaError:
            found[name] = ""
    return found


def _values(table: pa.Table, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A block's columns as their encodings take them."""
    import pyarrow as pa

    missing = sorted(columns.keys() - set(table.schema.names))
    if missing:
        raise ConvertError(
            f"Ray's rows have no column {', '.join(map(repr, missing))}; there are "
            f"{', '.join(table.schema.names)}"
        )
    for batch in sliced(table):
        values = {}
        for name, encoding in columns.items():
            column = batch.column(batch.schema.names.index(name))
            if isinstance(column.type, pa.ExtensionType):  # Ray's tensors, and objects
                part = pa.Table.from_batches([batch.select([name])])
                values[name] = list(BlockAccessor.for_block(part).to_numpy([name])[name])
            elif not encoding or encoding.startswith("str_"):
                values[name] = column.to_pylist()
            else:
                values |= batch_values(batch.select([name]), {name: encoding})
        yield values


class MDSDatasource(Datasource):
    """Reads a data set's shards as a data set of Ray, a read task for each few shards.

    Args:
        url: The data set's folder, which all machines share, or its URL.
        columns: The columns that are wanted; all if it is None.
        allow_unsafe_types: Whether pickled columns are read.
        storage_options: Options of the store.

    Raises:
        FileNotFoundError: If there is no data set.
        FormatError: If its index is damaged, or has a pickled column that is not allowed.
    """

    def __init__(
        self,
        url: str,
        columns: Sequence[str] | None = None,
        *,
        allow_unsafe_types: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._url, self._names = url, None if columns is None else list(columns)
        self._unsafe, self._options = allow_unsafe_types, dict(storage_options or {})
        self._index = open_place(url, Access(options=self._options)).index
        self._index.validate_safe(allow_unsafe_types)

    def get_name(self) -> str:
        """How Ray calls it."""
        return "MDS"

    def estimate_inmemory_data_size(self) -> int | None:
        """Bytes of all shards, decompressed."""
        return int(self._index.raw_bytes.sum())

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Tasks that read shards.

        Args:
            parallelism: How many tasks there should be, at most.
            per_task_row_limit: Most rows of a task.
            data_context: Ray's settings.
        """
        shards = len(self._index.samples)
        groups = np.array_split(np.arange(shards), max(1, min(parallelism, shards)))
        options = tuple(sorted(self._options.items()))
        tasks = []
        for group in groups:
            read = _Read(self._url, options, group.tolist(), self._names, self._unsafe)
            metadata = BlockMetadata(
                num_rows=int(self._index.samples[group].sum()),
                size_bytes=int(self._index.raw_bytes[group].sum()),
                input_files=None,
                exec_stats=None,
            )
            tasks.append(ReadTask(read, metadata, per_task_row_limit=per_task_row_limit))
        return tasks


class _Read:
    """Reads some shards, as Arrow tables."""

    def __init__(
        self,
        url: str,
        options: tuple[tuple[str, Any], ...],
        shards: list[int],
        names: list[str] | None,
        unsafe: bool,
    ) -> None:
        self.url, self.options, self.shards = url, options, shards
        self.names, self.unsafe = names, unsafe

    def __call__(self) -> Iterator[pa.Table]:
        place = _place(self.url, self.options)
        for shard in self.shards:
            count = int(place.index.samples[shard])
            size = max(1, int(place.index.raw_bytes[shard]) // max(count, 1))
            step = max(1, _BATCH_BYTES // size)
            with opened(place, shard, self.unsafe) as reader:
                for start in range(0, count, step):
                    columns = reader.batch(range(start, min(start + step, count)))
                    yield _table(self._chosen(columns))

    def _chosen(self, columns: dict[str, Any]) -> dict[str, Any]:
        if self.names is None:
            return columns
        missing = [name for name in self.names if name not in columns]
        if missing:
            raise ConvertError(
                f"{self.url} has no column {', '.join(map(repr, missing))}; there are "
                f"{', '.join(columns)}"
            )
        return {name: columns[name] for name in self.names}


@lru_cache(maxsize=4)
def _place(url: str, options: tuple[tuple[str, Any], ...]) -> Place:
    return open_place(url, Access(options=dict(options)))


def _table(columns: Mapping[str, Any]) -> pa.Table:
    """Columns as a block of Ray, arrays as its tensors."""
    made = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            made[name] = values
            continue
        column = np.empty(len(values), object)
        column[:] = values
        made[name] = column
    return BlockAccessor.batch_to_arrow_block(made)


def read_mds(
    url: str,
    columns: Sequence[str] | None = None,
    *,
    allow_unsafe_types: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **how: Any,
) -> Dataset:
    """Read a data set's shards as a data set of Ray.

    Args:
        url: The data set's folder, which all machines share, or its URL.
        columns: The columns that are wanted; all if it is None.
        allow_unsafe_types: Whether pickled columns are read.
        storage_options: Options of the store.
        **how: Arguments of `ray.data.read_datasource`, such as `concurrency`.

    Raises:
        FileNotFoundError: If there is no data set.
        FormatError: If its index is damaged, or has a pickled column that is not allowed.
    """
    source = MDSDatasource(
        url, columns, allow_unsafe_types=allow_unsafe_types, storage_options=storage_options
    )
    dataset: Dataset = read_datasource(source, **how)
    return dataset
