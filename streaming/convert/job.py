"""One part's way into shards: what every engine runs, in whatever process.

A part goes into a folder of its own, `out/00012`, as a data set. When it is finished, a record
says so; only `streaming.convert.commit.commit` makes the parts one data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from streaming.convert.errors import ConvertError
from streaming.convert.ledger import Ledger
from streaming.convert.source import Batch, Part, Sample, Source, Unreadable
from streaming.convert.transforms import Transform, fresh, one_or_many
from streaming.format.errors import FormatError
from streaming.format.writer_columns import column_values
from streaming.format.writer_mds import MDSWriter
from streaming.storage import StoreError

__all__ = [
    "Job",
    "PartReport",
    "Skipped",
    "Tick",
    "Transform",
    "guarded",
    "write_part",
    "write_samples",
]

T = TypeVar("T")
Tick = Callable[[int, int], None]
"""Told how many more rows are done, and how many samples more have failed."""

_TICK_ROWS = 64
_UPLOADS = 4
"""For each worker: there are several."""


@dataclass(frozen=True)
class Job:
    """A conversion, as every worker needs to know it. Made by `streaming.convert.prepare`."""

    source: Source
    out: str
    """The data set's folder or URL."""
    columns: dict[str, str]
    """The encoding of each column that is written."""
    transform: Transform | None = None
    dropped: frozenset[str] = frozenset()
    """Columns of the source that are left out."""
    compression: str | None = None
    hashes: tuple[str, ...] = ()
    size_limit: int | str | None = 1 << 26
    on_error: str = "raise"
    max_errors: int | None = 100
    mode: str = "create"
    resume: bool = True
    first: int = 0
    """The number of the first part's folder: parts that are appended come after those there."""
    fingerprint: str = ""
    """Two jobs that write the same bytes have the same one."""
    storage_options: dict[str, Any] = field(default_factory=dict)

    def folder(self, number: int) -> str:
        """The folder of a part, below `out`."""
        return f"{self.first + number:05}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A sample that was left out."""

    part: int
    row: int
    """Which row of its part, from 0; after the last one for what a transform gave at the end."""
    label: str
    """The part, as messages call it."""
    reason: str


@dataclass(frozen=True, slots=True)
class PartReport:
    """What became of a part."""

    number: int
    rows: int
    """Rows read."""
    samples: int
    """Samples written."""
    shards: tuple[dict[str, Any], ...]
    """Their entries in the index, as seen from the part's folder."""
    skipped: tuple[Skipped, ...] = ()
    failures: int = 0
    """How many samples were left out."""
    resumed: bool = False
    """Whether an earlier run had finished it."""

    @property
    def bytes(self) -> int:
        """Bytes of the shards' files, compressed if they are."""
        files = ((s.get("zip_data") or s["raw_data"]) for s in self.shards)
        return sum(int(file["bytes"]) for file in files)

    def to_json(self) -> dict[str, Any]:
        """As a record holds it."""
        return {
            "number": self.number,
            "rows": self.rows,
            "samples": self.samples,
            "shards": list(self.shards),
            "skipped": [asdict(one) for one in self.skipped],
            "failures": self.failures,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> PartReport:
        """Read back what `to_json` gave, in an earlier run."""
        skipped = tuple(Skipped(**one) for one in record["skipped"])
        shards = tuple(record["shards"])
        plain = {name: record[name] for name in ("number", "rows", "samples", "failures")}
        return cls(shards=shards, skipped=skipped, resumed=True, **plain)


def write_part(job: Job, part: Part, tick: Tick | None = None) -> PartReport:
    """Write a part's shards, unless an earlier run has finished them.

    Args:
        job: The conversion.
        part: One of its source's parts.
        tick: Told of progress, every few rows.

    Returns:
        What became of it.

    Raises:
        ConvertError: If a row can't be read, transformed or written (with `on_error="raise"`), or
            more than `max_errors` can't; the message names the part and the row.
        StoreError, WriteError: If a store can't be read from or written to.
    """
    if job.resume:
        done = finished_part(job, part.number)
        if done is not None:
            return done
    batches = None if job.transform is not None else job.source.batches(part)
    rows = iter(()) if batches is not None else job.source.read(part)
    return _write(job, part.number, part.label, rows, batches, tick)


def write_samples(
    job: Job,
    number: int,
    samples: Iterable[Sample | Unreadable],
    *,
    label: str = "",
    tick: Tick | None = None,
) -> PartReport:
    """Write a part of rows that the caller brings; what an earlier attempt left is replaced.

    Args:
        job: The conversion.
        number: The part's number, from 0.
        samples: Its rows, as `Source.read` would give them.
        label: How messages call it.
        tick: Told of progress, every few rows.

    Returns:
        What became of it; the errors are those of `write_part`.
    """
    return _write(job, number, label or f"part {number}", iter(samples), None, tick)


def finished_part(job: Job, number: int) -> PartReport | None:
    """What an earlier run of the same job noted of a part; None if it has not finished it."""
    record = Ledger(job.out, job.storage_options).part(job.folder(number))
    if record is None or record.get("fingerprint") != job.fingerprint:
        return None
    report = PartReport.from_json(record["report"])
    # What was skipped then is to be an error now.
    return None if report.failures and job.on_error == "raise" else report


def _write(
    job: Job,
    number: int,
    label: str,
    rows: Iterator[Sample | Unreadable],
    batches: Iterator[Batch] | None,
    tick: Tick | None,
) -> PartReport:
    folder = job.folder(number)
    ledger = Ledger(job.out, job.storage_options)
    ledger.forget_part(folder)
    with _PartMDSWriter(
        columns=job.columns,
        out=f"{job.out.rstrip('/')}/{folder}",
        compression=job.compression,
        hashes=list(job.hashes),
        size_limit=job.size_limit,
        exist_ok=True,
        max_workers=_UPLOADS,
        storage_options=job.storage_options or None,
    ) as writer:
        work = _PartWriter(job, number, label, writer, tick)
        if batches is not None:
            work.write_batches(guarded(batches, label))
        else:
            work.write_rows(guarded(rows, label))
    report = PartReport(
        number=number,
        rows=work.row,
        samples=work.samples,
        shards=tuple(writer.shards),
        skipped=tuple(work.skipped),
        failures=len(work.skipped),
    )
    ledger.write_part(folder, {"fingerprint": job.fingerprint, "report": report.to_json()})
    return report


def guarded(items: Iterator[T], label: str) -> Iterator[T]:
    """What a source gives; if it fails, the error says which part it was."""
    try:
        yield from items
    except (ConvertError, FormatError, StoreError):
        raise
    except Exception as exc:
        if isinstance(exc, OSError) and exc.filename is not None:
            raise
        raise ConvertError(
            f"{label}: it can't be read: {type(exc).__name__}: {str(exc) or 'no reason given'}"
        ) from exc


class _PartMDSWriter(MDSWriter):
    """A writer that says nothing when it is given up: the error that ends it says it all."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self._give_up()


class _PartWriter:
    """Puts a part's rows into a writer: transformed, counted, the bad ones refused or skipped."""

    def __init__(
        self, job: Job, number: int, label: str, writer: MDSWriter, tick: Tick | None
    ) -> None:
        self.job, self.number, self.label = job, number, label
        self.writer, self.tick = writer, tick
        # What it remembers (the rest of a document, say) must not go from one part to another.
        self.transform = fresh(job.transform)
        self.row = 0
        self.samples = 0
        self.skipped: list[Skipped] = []
        self._told = (0, 0)

    def write_rows(self, rows: Iterator[Sample | Unreadable]) -> None:
        for row in rows:
            self._write_row(row)
            self.row += 1
            if self.row % _TICK_ROWS == 0:
                self._tell()
        flush = getattr(self.transform, "flush", None)
        if flush is not None:
            self._write_outputs(flush)
        self._tell()

    def write_batches(self, batches: Iterator[Batch]) -> None:
        for batch in batches:
            if isinstance(batch, list):
                for row in batch:
                    self._write_row(row)
                    self.row += 1
                self._tell()
                continue
            columns, count = column_values(batch)
            for name in self.job.dropped:
                columns.pop(name, None)
            try:
                self.writer.write_batch(columns)
            except FormatError:
                # Nothing of it has been written: by row, it is known which one is at fault.
                for at in range(count):
                    self._write_row({name: values[at] for name, values in columns.items()})
                    self.row += 1
            else:
                self.row += count
                self.samples += count
            self._tell()

    def _write_row(self, row: Sample | Unreadable) -> None:
        if isinstance(row, Unreadable):
            self._fail(row.reason, None)
        elif self.transform is None:
            self._write_one(row)
        else:
            transform = self.transform
            self._write_outputs(lambda: transform(row))

    def _write_outputs(self, call: Callable[[], Sample | Iterable[Sample] | None]) -> None:
        """Write what a transform makes of a row, or has left at the end."""
        try:
            made = call()
            for sample in one_or_many(made):
                self._write_one(sample)
        except ConvertError:
            raise
        except Exception as exc:
            self._fail(f"the transform failed: {type(exc).__name__}: {exc}", exc)

    def _write_one(self, sample: Sample) -> None:
        if self.job.dropped and isinstance(sample, Mapping):
            sample = {k: value for k, value in sample.items() if k not in self.job.dropped}
        try:
            self.writer.write(sample)
        except FormatError as exc:
            self._fail(f"{exc}{_null_hint(sample)}", exc)
        else:
            self.samples += 1

    def _fail(self, reason: str, cause: BaseException | None) -> None:
        if self.job.on_error == "raise":
            raise ConvertError(f"{self.label}, row {self.row}: {reason}") from cause
        self.skipped.append(Skipped(self.number, self.row, self.label, reason))
        check_failures(len(self.skipped), self.job.max_errors, self.skipped[-1])

    def _tell(self) -> None:
        if self.tick is not None:
            rows, failures = self.row - self._told[0], len(self.skipped) - self._told[1]
            self._told = self.row, len(self.skipped)
            if rows or failures:
                self.tick(rows, failures)


def _null_hint(sample: Sample) -> str:
    empty = [name for name, value in sample.items() if value is None]
    return f'; the encoding "json" holds null: columns={{{empty[0]!r}: "json"}}' if empty else ""


def check_failures(failures: int, most: int | None, last: Skipped | None) -> None:
    """Refuse to go on when too many samples have failed.

    Raises:
        ConvertError: If there are more than `most` (None for any number).
    """
    if most is not None and failures > most:
        where = f"; the last one, {last.label}, row {last.row}: {last.reason}" if last else ""
        raise ConvertError(
            f"{failures} samples could not be converted, and max_errors is {most}{where}"
        )
