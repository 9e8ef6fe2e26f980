"""What can be converted: a source, which is cut into parts, each read on its own.

Parts depend on the source alone, never on how many workers there are or which engine runs them:
that is what makes every engine write the same bytes, and a broken conversion end like an unbroken
one.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Batch", "Part", "Sample", "Source", "Unreadable", "part_bytes_for"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a source that one worker reads from its beginning to its end."""

    number: int
    """Its place among the source's parts, from 0."""
    label: str
    """How messages call it: `"a.parquet, row groups 0-3"`."""
    spec: tuple[Any, ...] = ()
    """How its source finds it: numbers, strings and tuples of them."""
    rows: int | None = None
    """How many rows it has, if that is known before it is read."""
    bytes: int = 0
    """How much there is to read, or an estimate; for progress, and to begin with what is large."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that could not be read; a conversion raises it or skips it."""

    reason: str


Sample = dict[str, Any]
"""A row, or what is written of it: column name to value."""
Batch = Mapping[str, Any] | list["Sample | Unreadable"]
"""Rows as columns; or one by one, where they have not the same columns."""


def part_bytes_for(total: int, wanted: int | None = None) -> int:
    """How many bytes a part reads, unless it is said.

    Enough parts for a few processes, and not so many that shards get small for nothing.

    Args:
        total: What the whole source has to read.
        wanted: What was asked for; None if nothing was.

    Example:
        >>> [part_bytes_for(total) >> 20 for total in (1 << 20, 1 << 29, 1 << 40)]
        [16, 32, 128]
    """
    return wanted or max(1 << 24, min(1 << 27, total // 16))


class Source(ABC):
    """Where rows come from. It pickles, and reads nothing before it is asked.

    Example:
        >>> class Squares(Source):
        ...     def describe(self):
        ...         return "the squares below 100"
        ...     def columns(self):
        ...         return {"square": "int"}
        ...     def parts(self):
        ...         return [Part(n, f"{n}0s", (10 * n, 10 * n + 10), 10) for n in range(10)]
        ...     def read(self, part):
        ...         return ({"square": x * x} for x in range(*part.spec))
        >>> source = Squares()
        >>> next(source.read(source.parts()[2]))
        {'square': 400}
    """

    engine = "processes"
    """The engine that converts it unless another one is asked for."""

    @abstractmethod
    def describe(self) -> str:
        """What it is, in a few words: `"Parquet, 12 files in s3://bucket/raw"`."""

    @abstractmethod
    def columns(self) -> dict[str, str]:
        """The MDS encoding of each column.

        Raises:
            SchemaError: If a column has no faithful encoding; the message names it and its type.
        """

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """The parts, in order; the same ones each time, wherever it is asked."""

    @abstractmethod
    def read(self, part: Part) -> Iterator[Sample | Unreadable]:
        """The rows of a part, in order, in bounded memory."""

    def batches(self, part: Part) -> Iterator[Batch] | None:
        """The rows of a part as columns, as `Writer.write_batch` takes them.

        Returns:
            Batches of at most some thousand rows (a list of rows where they have not the same
            columns); None if the source has none.
        """
        return None

    def with_columns(self, columns: Mapping[str, str], dropped: Collection[str] = ()) -> Source:
        """The same source, read for other encodings.

        Args:
            columns: Encodings of some of its columns, which its values should suit.
            dropped: Columns that nobody needs.

        Returns:
            A source whose `columns` are these, and the inferred ones of all others; columns that
            it can't do without are left to the writer.
        """
        return _Recast(self, dict(columns))

    def fingerprint(self) -> str:
        """What tells this source, as it is now, from all others: for finding finished parts."""
        digest = hashlib.sha256(self.describe().encode())
        for part in self.parts():
            digest.update(repr((part.number, part.spec, part.rows, part.bytes)).encode())
        return digest.hexdigest()


class _Recast(Source):
    """A source whose values are written under other encodings, as they are."""

    def __init__(self, source: Source, given: dict[str, str]) -> None:
        self._source, self._given = source, given

    def describe(self) -> str:
        return self._source.describe()

    def columns(self) -> dict[str, str]:
        columns = self._source.columns()
        return {name: self._given.get(name, encoding) for name, encoding in columns.items()}

    def parts(self) -> Sequence[Part]:
        return self._source.parts()

    def read(self, part: Part) -> Iterator[Sample | Unreadable]:
        return self._source.read(part)

    def batches(self, part: Part) -> Iterator[Batch] | None:
        return self._source.batches(part)

    def fingerprint(self) -> str:
        return self._source.fingerprint()
