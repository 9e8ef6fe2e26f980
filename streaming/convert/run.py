"""`convert`: from a source to a data set, from its beginning to its end."""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streaming.convert.commit import Report, commit, prepare
from streaming.convert.engines import Engine, get_engine
from streaming.convert.errors import ConvertError, SchemaError
from streaming.convert.job import guarded
from streaming.convert.ledger import Ledger
from streaming.convert.open import open_source
from streaming.convert.progress import BarWatch, Watch
from streaming.convert.schema import columns_of_samples, show_schema
from streaming.convert.source import Part, Sample, Source, Unreadable
from streaming.convert.transforms import Transform, fresh, one_or_many

__all__ = ["convert"]

_PEEK = 100
"""From how many of a transform's samples columns are inferred."""
_PEEK_ROWS = 10_000
"""How many rows are tried to get them."""


def convert(
    source: Any,
    out: str | os.PathLike[str],
    *,
    columns: Mapping[str, str | None] | None = None,
    transform: Transform | None = None,
    engine: str | Engine = "processes",
    workers: int | None = None,
    resume: bool = True,
    mode: str = "create",
    compression: str | None = None,
    hashes: Sequence[str] | None = None,
    size_limit: int | str | None = 1 << 26,
    on_error: str = "raise",
    max_errors: int | None = 100,
    progress: bool | Callable[[Sequence[Part]], Watch] = True,
    part_size: int | str | None = None,
    format: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    out_options: Mapping[str, Any] | None = None,
) -> Report:
    """Convert anything into an MDS data set.

    The source is cut into parts, which depend on it alone; each goes into a folder of its own below
    `out`. When all are written, one index makes them a data set: until then nothing can be read
    there. Run again after a crash with the same arguments, it goes on where it was, and ends with
    the same bytes. Every engine writes the same bytes as well.

    Args:
        source: What is converted: see `open_source`.
        out: A folder or a URL.
        columns: Encodings by column, where they should be other than what is inferred. None leaves
            a column out. With a transform, they are those of all columns of its samples; if none
            is given, they are inferred from the first samples that it makes.
        transform: Called with each row (a dict), it returns a sample, several, or None. It is
            copied for each part, so it may remember what it has seen of the part; if it has a
            method `flush`, that is called at the part's end, for the samples that are left.
        engine: "processes", "spark", "ray", or an `Engine`. What Spark or Ray has is converted by
            Spark or Ray.
        workers: How many parts are converted at once; None leaves it to the engine.
        resume: Whether to go on from what an earlier run has finished; if not, it is removed.
        mode: "create" wants an empty place; "append" adds to the data set there, in one step, and
            keeps the old index under a version's name; "overwrite" replaces it, in one step.
        compression: Of the shards, as in `"zstd"`, `"zstd:7"`.
        hashes: To be kept of the shards' files, as in `["xxh64"]`.
        size_limit: Most bytes of a shard before compression, as a number or as `"64mb"`.
        on_error: "raise" ends the conversion at the first row that can't be read, transformed or
            written; "skip" leaves it out, and lists it in the report.
        max_errors: How many may be left out before it ends all the same; None for any number.
        progress: Whether to show the columns and a bar; or a function that makes a `Watch`.
        part_size: How many bytes of the source a part reads, about; None is a sixteenth of the
            source, but from 16 MiB to 128 MiB.
        format: Of files, if their names don't say it.
        storage_options: Options of the store of the source.
        out_options: Options of the store of `out`; those of the source if none are given.

    Returns:
        What was done; `skipped` lists what was left out.

    Raises:
        ConvertError: If something can't be converted; what is finished stays, to go on from.
        FileExistsError: If there is something at `out`, and the mode is "create".
        FileNotFoundError: If there is no such source, or nothing to append to.
        SchemaError: If a column has no faithful encoding.
        StoreError: If a store can't be read from or written to.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from streaming import LocalDataset
        >>> out = tempfile.mkdtemp()
        >>> arrays = {"x": np.arange(6, dtype=np.int32), "y": np.ones((6, 2), np.float32)}
        >>> report = convert(arrays, out, progress=False)
        >>> report.samples, report.columns
        (6, {'x': 'int32', 'y': 'ndarray:float32:2'})
        >>> LocalDataset(out)[5]["x"]
        np.int32(5)
    """
    begin = time.monotonic()
    opened = open_source(
        source, format=format, part_size=part_size, storage_options=storage_options
    )
    columns, dropped = _split(columns)
    opened, encodings = resolve_columns(opened, columns, dropped, transform)
    parts = opened.parts()
    if engine == "processes":  # unless its rows are where only another engine can read them
        engine = opened.engine
    runner = get_engine(engine, workers)
    job = prepare(
        opened,
        os.fspath(out),
        columns=encodings,
        dropped=dropped,
        transform=transform,
        compression=compression,
        hashes=hashes,
        size_limit=size_limit,
        on_error=on_error,
        max_errors=max_errors,
        mode=mode,
        resume=resume,
        storage_options=storage_options if out_options is None else out_options,
    )
    with Ledger(job.out, job.storage_options).alone():
        if progress is True:
            show_schema(opened, job.columns, parts, job.out, file=sys.stderr)
        watch = _watch(progress, parts)
        try:
            reports = runner.run(job, parts, watch)
        finally:
            watch.close()
        report = commit(job, reports)
    return dataclasses.replace(report, seconds=time.monotonic() - begin)


def _watch(progress: bool | Callable[[Sequence[Part]], Watch], parts: Sequence[Part]) -> Watch:
    if callable(progress):
        return progress(parts)
    return BarWatch(parts) if progress else Watch(parts)


def _split(columns: Mapping[str, str | None] | None) -> tuple[dict[str, str], frozenset[str]]:
    """Tell the columns to be written from those to be left out."""
    given = dict(columns or {})
    kept = {name: encoding for name, encoding in given.items() if encoding is not None}
    return kept, frozenset(given) - frozenset(kept)


def resolve_columns(
    source: Source,
    given: Mapping[str, str],
    dropped: frozenset[str],
    transform: Transform | None,
) -> tuple[Source, dict[str, str]]:
    """The source as it has to be read, and the columns of what is written.

    Args:
        source: What is converted.
        given: Encodings that the caller wants.
        dropped: Columns that are left out.
        transform: What makes samples of a row.

    Raises:
        SchemaError: If a column is not there, or has no faithful encoding.
    """
    if transform is None:
        source = source.with_columns(given, dropped)
        columns = _columns_of(source)
        missing = given.keys() - columns.keys()
        if missing:
            raise SchemaError(
                f"{source.describe()} has no column {', '.join(map(repr, sorted(missing)))}; "
                f"there are {', '.join(sorted(columns))}"
            )
        return source, {name: columns[name] for name in columns if name not in dropped}
    if given:
        return source, dict(given)
    samples = [
        {name: value for name, value in sample.items() if name not in dropped}
        for sample in _peek(source, transform)
    ]
    if not samples:
        raise SchemaError(
            f"the transform gave no sample for the first {_PEEK_ROWS} rows of "
            f"{source.describe()}: name its columns by columns="
        )
    return source, columns_of_samples(samples, "the transform's samples")


def _columns_of(source: Source) -> dict[str, str]:
    """A source's columns; what hinders reading them is told with the source's name."""
    return next(guarded((source.columns() for _ in range(1)), source.describe()))


def _peek(source: Source, transform: Transform) -> list[Sample]:
    """The first samples that a transform makes."""
    copied = fresh(transform)
    assert copied is not None
    found: list[Sample] = []
    failure: Exception | None = None
    rows = itertools.chain.from_iterable(map(source.read, source.parts()))
    for row in itertools.islice(guarded(rows, source.describe()), _PEEK_ROWS):
        if not isinstance(row, Unreadable):
            try:
                made = one_or_many(copied(row))
                found.extend(itertools.islice(made, _PEEK - len(found)))
            except Exception as exc:  # told when its part is converted, or skipped there
                failure = exc
        if len(found) >= _PEEK:
            break
    if failure is not None and not found:
        raise ConvertError(
            f"the transform failed: {type(failure).__name__}: {failure}"
        ) from failure
    return found
