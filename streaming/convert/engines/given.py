"""Rows that an engine brings along, as a source: a partition of Spark, a block of Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streaming.convert.job import Job, PartReport
from streaming.convert.source import Batch, Part, Sample, Source, Unreadable
from streaming.convert.sources.values import rows_of

__all__ = ["Given", "filled"]


class Given(Source):
    """The rows of one part, as columns in batches, which can be read once.

    Args:
        description: What they are.
        columns: Their encodings.
        batches: Column name to values, as `Writer.write_batch` takes them; None only describes.

    Example:
        >>> source = Given("squares", {"x": "int"}, iter([{"x": [0, 1]}, {"x": [4]}]))
        >>> list(source.read(Part(0, "all")))
        [{'x': 0}, {'x': 1}, {'x': 4}]
    """

    def __init__(
        self,
        description: str,
        columns: Mapping[str, str],
        batches: Iterator[Mapping[str, Any]] | None = None,
    ) -> None:
        self._description, self._columns, self._batches = description, dict(columns), batches

    def describe(self) -> str:
        """What they are."""
        return self._description

    def columns(self) -> dict[str, str]:
        """Their encodings."""
        return self._columns

    def parts(self) -> Sequence[Part]:
        """None: only their engine knows them."""
        return ()

    def read(self, part: Part) -> Iterator[Sample | Unreadable]:
        """The rows, one by one."""
        return rows_of(iter(self._batches or ()))

    def batches(self, part: Part) -> Iterator[Batch] | None:
        """The rows in batches."""
        return iter(self._batches or ())


def filled(job: Job, reports: Sequence[PartReport]) -> list[PartReport]:
    """Reports of all parts, where an engine may leave out empty ones, or tell of one twice.

    Args:
        job: The conversion.
        reports: Of the parts that it has told of.
    """
    known = {report.number: report for report in reports}
    empty = (PartReport(number, 0, 0, ()) for number in range(max(known, default=-1) + 1))
    return [known.get(report.number, report) for report in empty]
