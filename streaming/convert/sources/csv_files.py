"""CSV and TSV files: a header, then records. Parts are ranges of bytes, cut between records."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, BinaryIO

from streaming.convert.errors import SchemaError
from streaming.convert.source import Batch, Part, Sample, Unreadable
from streaming.convert.sources.files import Piece
from streaming.convert.sources.lookup import FileRef
from streaming.convert.sources.text_files import TextFiles

__all__ = ["CSVSource", "TSVSource", "record_starts"]

_INFER_ROWS = 1000
_BATCH_ROWS = 2048
_CHUNK = 1 << 20
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][+-]?[0-9]+)?")
_INT64 = range(-(1 << 63), 1 << 63)


class CSVSource(TextFiles):
    """The records of CSV files that have the same header.

    CSV has no types. A column whose first values are all integers, written as integers are (007 is
    not), is one of integers; one of decimal numbers is one of floats; any other is text. A later
    value that is not of that kind is an error, not a guess.
    """

    kind = "CSV"
    delimiter = ","

    def columns(self) -> dict[str, str]:
        """The columns, by the header and the first values."""
        return dict(self._columns)

    @cached_property
    def _columns(self) -> dict[str, str]:
        names = self._header
        missing = sorted({*self.given, *self.dropped} - set(names))
        if missing:
            raise SchemaError(
                f"{self.describe()} has no column {', '.join(map(repr, missing))}; there are "
                f"{', '.join(names)}"
            )
        rows = list(itertools.islice(self._first_records(), _INFER_ROWS))
        inferred = {
            name: _kind([row[at] for row in rows if len(row) == len(names)])
            for at, name in enumerate(names)
        }
        return {n: self.given.get(n, inferred[n]) for n in names if n not in self.dropped}

    @cached_property
    def _header(self) -> list[str]:
        names = self._header_of(self.files[0])
        if not names:
            raise SchemaError(f"{self.files[0].url} is empty: its first line names the columns")
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise SchemaError(f"{self.files[0].url}: columns have the same name: {twice}")
        for file in self.files[1:]:
            other = self._header_of(file)
            if other != names:
                raise SchemaError(
                    f"{file.url} has the columns {', '.join(other)}, but {self.files[0].url} has "
                    f"{', '.join(names)}"
                )
        return names

    def _header_of(self, file: FileRef) -> list[str]:
        with self.open_text(file) as stream:
            return next(self._records(stream, None), [])

    def _first_records(self) -> Iterator[list[str]]:
        for file in self.files:
            with self.open_text(file) as stream:
                yield from itertools.islice(self._records(stream, None), 1, None)

    def pieces(self) -> Iterator[Piece]:
        """Ranges of bytes that begin where a record does; of compressed files, all of them.

        To find these places, a file that makes more than one part is read through once.
        """
        for number, file in enumerate(self.files):
            if not file.size:
                continue
            starts = [0]
            if not self.compressed(file) and file.size > self.part_bytes:
                with self.open(file) as stream:
                    starts += record_starts(stream, file.size, self.part_bytes)
            for start, stop in itertools.pairwise([*starts, file.size]):
                yield Piece(number, start, stop, stop - start)

    def read(self, part: Part) -> Iterator[Sample | Unreadable]:
        """The rows of a part."""
        for rows in self._rows(part):
            for row in rows:
                values = self._parsed(row)
                names = self._columns
                if isinstance(values, Unreadable):
                    yield values
                else:
                    yield dict(zip(names, values, strict=True))

    def batches(self, part: Part) -> Iterator[Batch]:
        """The rows of a part, a few thousand at a time."""
        names, width = self._columns, len(self._header)
        for rows in self._rows(part):
            columns = list(zip(*rows, strict=True)) if all(len(r) == width for r in rows) else []
            try:
                yield {
                    name: list(map(parse, columns[at]))
                    for name, (at, parse) in zip(names, self._parsers, strict=True)
                }
            except (ValueError, IndexError, OverflowError):
                found = map(self._parsed, rows)
                yield [
                    one if isinstance(one, Unreadable) else dict(zip(names, one, strict=True))
                    for one in found
                ]

    @cached_property
    def _parsers(self) -> list[tuple[int, Callable[[str], Any]]]:
        """For each column that is written, its place in the file and what reads its text."""
        at = {name: place for place, name in enumerate(self._header)}
        return [(at[name], _parser(encoding)) for name, encoding in self._columns.items()]

    def _parsed(self, row: list[str]) -> list[Any] | Unreadable:
        if len(row) != len(self._header):
            return Unreadable(f"{len(row)} values for {len(self._header)} columns: {row!r:.100}")
        values = []
        for name, (at, parse) in zip(self._columns, self._parsers, strict=True):
            try:
                values.append(parse(row[at]))
            except (ValueError, OverflowError):
                return Unreadable(
                    f"column {name!r}: {row[at]!r} is not of the kind {self._columns[name]}; "
                    f'columns={{{name!r}: "str"}} keeps the text'
                )
        return values

    def _rows(self, part: Part) -> Iterator[list[list[str]]]:
        for number, start, stop in part.spec:
            file = self.files[number]
            with self.open_text(file) as stream:
                records = self._records(stream, None if self.compressed(file) else stop, start)
                if start == 0:
                    next(records, None)
                while rows := list(itertools.islice(records, _BATCH_ROWS)):
                    yield [row for row in rows if row]

    def _records(self, stream: BinaryIO, stop: int | None, start: int = 0) -> Iterator[list[str]]:
        if start:
            stream.seek(start)
        raw: Any = stream if stop is None else _Bounded(stream, stop - start)
        text = io.TextIOWrapper(
            raw,
            encoding="utf-8" if start else "utf-8-sig",
            errors="surrogateescape",  # bad bytes are the writer's to refuse, row by row
            newline="",
        )
        csv.field_size_limit(sys.maxsize if sys.maxsize < 1 << 31 else (1 << 31) - 1)
        yield from csv.reader(text, delimiter=self.delimiter)


class TSVSource(CSVSource):
    """The records of TSV files."""

    kind = "TSV"
    delimiter = "\t"


class _Bounded(io.RawIOBase):
    """The next bytes of a stream, and no more."""

    def __init__(self, stream: BinaryIO, left: int) -> None:
        super().__init__()
        self._stream, self._left = stream, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(self._left, len(buffer)))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def record_starts(stream: BinaryIO, size: int, each: int) -> list[int]:
    r"""Where to cut a CSV file: at records, about as far from each other as asked for.

    A line's end is a record's end if there is an even number of quotes before it.

    Args:
        stream: The file, at its beginning.
        size: Its size in bytes.
        each: Bytes of a piece, about.

    Example:
        >>> text = b'a,b\n1,"x\ny"\n2,z\n'
        >>> [text[at:] for at in record_starts(io.BytesIO(text), len(text), 6)]
        [b'2,z\n']
    """
    found: list[int] = []
    count = -(-size // each)
    targets = [size * at // count for at in range(1, count)]
    at, odd = 0, 0
    while targets and (chunk := stream.read(_CHUNK)):
        begin = 0
        while targets and targets[0] < at + len(chunk):
            wanted = max(begin, targets[0] - at)
            odd ^= chunk.count(b'"', begin, wanted) & 1
            begin = wanted
            end = chunk.find(b"\n", begin)
            if end < 0:
                break
            odd ^= chunk.count(b'"', begin, end) & 1
            begin = end + 1
            if not odd:
                found.append(at + begin)
                targets = [target for target in targets if target >= at + begin]
        odd ^= chunk.count(b'"', begin) & 1
        at += len(chunk)
    return [place for place in found if place < size]


def _kind(values: list[str]) -> str:
    """The encoding of a column, by its first values."""
    if values and all(map(_INTEGER.fullmatch, values)):
        return "int" if all(int(value) in _INT64 for value in values) else "str"
    if values and all(map(_FLOAT.fullmatch, values)) and not any(map(_padded, values)):
        return "float64"
    return "str"


def _padded(value: str) -> bool:
    """Whether a number is written with zeros before it, as numbers that are names are."""
    digits = value.lstrip("-")
    return len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()


def _parser(encoding: str) -> Callable[[str], Any]:
    base = encoding.partition(":")[0]
    if base.lstrip("u").startswith("int"):
        return _integer
    if base.startswith("float"):
        return _float
    if base == "json":
        return json.loads
    if base == "bytes":
        return _bytes
    return str


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _float(text: str) -> float:
    return float(text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
