"""`dataframe_to_mds`: a DataFrame of Spark into MDS shards, a folder for each partition."""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streaming.convert.engines.spark_types import (
    is_json_compatible,
    spark_columns,
    spark_values,
)
from streaming.convert.progress import Watch
from streaming.format.destination import split_out
from streaming.format.errors import FormatError
from streaming.format.merge import merge_index
from streaming.format.replace import INDEX
from streaming.format.writer_mds import MDSWriter
from streaming.storage import NotFound, store_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["dataframe_to_mds", "infer_dataframe_schema", "is_json_compatible"]

_COMPRESSION = "zstd"
"""Unless `mds_kwargs` says otherwise, as in mosaicml-streaming."""


def infer_dataframe_schema(
    dataframe: DataFrame, user_defined_cols: dict[str, Any] | None = None
) -> dict[str, str] | None:
    """Find the encodings of a DataFrame's columns, or check those that the user wants.

    Args:
        dataframe: A DataFrame of Spark.
        user_defined_cols: Encodings by column. Not all columns need to be among them.

    Returns:
        The encoding of each column; None if `user_defined_cols` was given, and suits the DataFrame.

    Raises:
        SchemaError: If a column has no faithful encoding, or not the one that is wanted, or is not
            there. It is a ValueError.
    """
    if user_defined_cols is None:
        return spark_columns(dataframe.schema)
    others = [name for name in dataframe.columns if name not in user_defined_cols]
    spark_columns(dataframe.schema, user_defined_cols, others)
    return None


def dataframe_to_mds(
    dataframe: DataFrame,
    merge_index: bool = True,
    mds_kwargs: dict[str, Any] | None = None,
    udf_iterable: Callable[..., Iterable[dict[str, Any]]] | None = None,
    udf_kwargs: dict[str, Any] | None = None,
) -> tuple[str, str]:
    """Write a DataFrame's rows as an MDS data set, each partition on the machine that has it.

    Each partition becomes a data set of its own, in a folder named by its number (`00000`), and one
    index makes a data set of them all. A task that Spark runs twice writes the same files.
    `streaming.convert.convert` does this too, with more ways to go on after errors.

    Args:
        dataframe: A DataFrame of Spark, with at least one row.
        merge_index: Whether to write the index over all partitions.
        mds_kwargs: Arguments of `MDSWriter`: `out`, a folder that all machines share, a URL, or a
            pair (local, remote); `columns`, unless they are to be inferred: columns that it does
            not name are left out; and `compression` (zstd if it is not given), `hashes`,
            `size_limit`, `keep_local`, and so on.
        udf_iterable: A function of a pandas DataFrame, some rows of a partition, that yields the
            samples to be written. Then `mds_kwargs` has to name the columns.
        udf_kwargs: More arguments of this function, by name.

    Returns:
        The local folder and the remote URL, each empty if there is none. Of a URL alone, the local
        folder is a temporary one, where it could be cached.

    Raises:
        ConvertError: If Spark has given up; the message says why.
        EncodeError: If a row can't be written; the message names partition, row and column.
        FileExistsError: If `out` is not empty, unless `mds_kwargs` has `exist_ok=True`.
        FileNotFoundError: If the indexes are not where they can be merged.
        SchemaError: If a column has no faithful encoding, or not the wanted one, or is not there.
        ValueError: If the DataFrame is None or empty, or an argument is missing.
    """
    kwargs = dict(mds_kwargs or {})
    if dataframe is None or dataframe.isEmpty():
        raise ValueError("the DataFrame is None or empty: there is nothing to write")
    if not kwargs.get("out"):
        raise ValueError('mds_kwargs has no "out": name a folder or a URL')
    if udf_iterable is None:
        infer_dataframe_schema(dataframe, kwargs.get("columns"))
        kwargs.setdefault("columns", infer_dataframe_schema(dataframe))
    elif not kwargs.get("columns"):
        raise ValueError(
            'with udf_iterable, mds_kwargs needs "columns": the encodings of what it yields'
        )
    place = _Place.of(kwargs.pop("out"), kwargs.get("storage_options"))
    kwargs.setdefault("compression", _COMPRESSION)
    _check_kwargs(kwargs, place)
    place.prepare(bool(kwargs.pop("exist_ok", False)))
    task = _Task(place, kwargs, udf_iterable, udf_kwargs or {})
    numbers = _run(dataframe, task)
    if merge_index:
        _merge(place, numbers, bool(kwargs.get("keep_local", False)))
    return place.local or tempfile.mkdtemp(prefix="shardstream-"), place.remote or ""


@dataclass(frozen=True)
class _Place:
    """Where the data set goes to."""

    local: str | None
    remote: str | None
    options: Mapping[str, Any]

    @classmethod
    def of(cls, out: Any, options: Mapping[str, Any] | None) -> _Place:
        local, remote = split_out(out)
        return cls(local, remote, dict(options or {}))

    def part(self, number: int) -> Any:
        """Where a partition goes to, as `MDSWriter` takes it."""
        folder = f"{number:05}"
        local = None if self.local is None else os.path.join(self.local, folder)
        remote = None if self.remote is None else posixpath.join(self.remote, folder)
        return (local or "", remote) if remote is not None else local

    def prepare(self, replace: bool) -> None:
        """See that nothing is there; or remove what makes it readable, before it is replaced."""
        if self.local is not None and os.path.isdir(self.local) and os.listdir(self.local):
            self._refuse(replace, self.local)
            if os.path.exists(os.path.join(self.local, INDEX)):
                os.unlink(os.path.join(self.local, INDEX))
        if self.remote is not None:
            store = store_for(self.remote, **self.options)
            if store.can_list and next(store.list(), None) is not None:
                self._refuse(replace, self.remote)
                try:
                    store.delete(INDEX)
                except NotFound:
                    pass

    @staticmethod
    def _refuse(replace: bool, where: str) -> None:
        if not replace:
            raise FileExistsError(
                f'{where} is not empty; name another place, or pass exist_ok=True in "mds_kwargs" '
                "to replace the data set in it"
            )


def _check_kwargs(kwargs: dict[str, Any], place: _Place) -> None:
    """See in this process what a writer would refuse in all others."""
    folder = tempfile.mkdtemp(prefix="shardstream-")
    try:
        MDSWriter(**{**kwargs, "out": os.path.join(folder, "check")}).finish()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class _Task:
    """What Spark runs for each partition."""

    place: _Place
    kwargs: dict[str, Any]
    udf: Callable[..., Iterable[dict[str, Any]]] | None
    udf_kwargs: dict[str, Any]

    def __call__(self, batches: Iterator[Any]) -> Iterator[int]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        # What an earlier attempt at this partition has left is replaced.
        writer = MDSWriter(**self.kwargs, out=self.place.part(number), exist_ok=True)
        with writer:
            try:
                self._write(writer, batches)
            except FormatError as exc:
                raise type(exc)(f"partition {number} of the DataFrame: {exc}") from exc
        yield number

    def _write(self, writer: MDSWriter, batches: Iterator[Any]) -> None:
        if self.udf is not None:
            for frame in batches:
                for sample in self.udf(frame, **self.udf_kwargs):
                    writer.write(sample)
            return
        columns = self.kwargs["columns"]
        for values in spark_values(batches, columns):
            writer.write_batch(values)


def _run(frame: DataFrame, task: _Task) -> list[int]:
    """Run the task on each partition; return the numbers of those that were written."""
    from streaming.convert.engines.spark import collect

    watch = Watch(())
    if task.udf is None:
        chosen = frame.select(*[_quoted(name) for name in task.kwargs["columns"]])
        return sorted(collect(chosen, task, None, watch))
    return sorted(collect(frame, task, None, watch, pandas=True))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _merge(place: _Place, numbers: list[int], keep_local: bool) -> None:
    out: Any = (place.local or "", place.remote) if place.remote is not None else place.local
    parts = [place.part(number) for number in numbers]
    try:
        merge_index(
            parts,
            out,
            keep_local=keep_local or place.remote is None,
            storage_options=place.options or None,
        )
    except FileNotFoundError as exc:
        raise FileNotFoundError(
            f"{exc}. On a cluster `out` has to be a URL, or a folder that all its machines share"
        ) from exc
