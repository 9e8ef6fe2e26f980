"""JSON lines: an object a line. Parts are ranges of bytes; a line is its first byte's part's."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from operator import itemgetter
from typing import Any, BinaryIO

import numpy as np

from streaming.convert.errors import SchemaError
from streaming.convert.schema import columns_of_samples
from streaming.convert.source import Part, Sample, Unreadable
from streaming.convert.sources.files import Piece
from streaming.convert.sources.text_files import TextFiles, even_ranges

__all__ = ["JSONLSource"]

_CHUNK = 1 << 20
_INFER_ROWS = 1000
_BOM = b"\xef\xbb\xbf"
_LINE_END = ord("\n")

Rows = list[Sample | Unreadable]
Buffer = bytes | memoryview


class JSONLSource(TextFiles):
    """The objects of files of JSON lines."""

    kind = "JSON lines"

    def columns(self) -> dict[str, str]:
        """The columns, by the values of the first rows."""
        return dict(self._columns)

    @cached_property
    def _columns(self) -> dict[str, str]:
        rows = list(itertools.islice(self._first_rows(), _INFER_ROWS))
        samples = [row for row in rows if not isinstance(row, Unreadable)]
        if not samples:
            why = f": {rows[0].reason}" if rows and isinstance(rows[0], Unreadable) else ""
            raise SchemaError(
                f"{self.describe()}: there is no JSON object in the first lines{why}; each line "
                "has to be one"
            )
        return columns_of_samples(samples, self.describe(), self.given)

    def _first_rows(self) -> Iterator[Sample | Unreadable]:
        for number, file in enumerate(self.files):
            for rows in self._row_lists(number, 0, file.size, chunk=1 << 18):
                yield from rows

    def pieces(self) -> Iterator[Piece]:
        """Ranges of bytes; of compressed files, all of them."""
        for number, file in enumerate(self.files):
            most = max(file.size, 1) if self.compressed(file) else self.part_bytes
            for start, stop in even_ranges(file.size, most):
                yield Piece(number, start, stop, stop - start)

    def read(self, part: Part) -> Iterator[Sample | Unreadable]:
        """The rows of a part."""
        for number, start, stop in part.spec:
            for rows in self._row_lists(number, start, stop):
                yield from rows

    def batches(self, part: Part) -> Iterator[Mapping[str, Any] | Rows]:
        """The rows of a part, as columns where all rows have the same ones."""
        names = list(self._columns)
        for number, start, stop in part.spec:
            for rows in self._row_lists(number, start, stop):
                yield _as_columns(rows, names) or rows

    def _row_lists(self, number: int, start: int, stop: int, chunk: int = _CHUNK) -> Iterator[Rows]:
        file = self.files[number]
        arrays = {
            name: encoding.split(":")[1:2]
            for name, encoding in self.given.items()
            if encoding.startswith("ndarray")
        }
        with self.open_text(file) as stream:
            whole = None if self.compressed(file) else stop
            for lines in line_chunks(stream, start, whole, chunk):
                rows = parse_lines(lines)
                for row in rows if self.dropped or arrays else ():
                    if isinstance(row, dict):
                        self._suit(row, arrays)
                yield rows

    def _suit(self, row: Sample, arrays: Mapping[str, list[str]]) -> None:
        for name in self.dropped:
            row.pop(name, None)
        for name, dtype in arrays.items():
            if isinstance(row.get(name), list):
                row[name] = _array(row[name], *dtype)


def _array(value: list[Any], dtype: str | None = None) -> Any:
    """A list as an array; as it is if a number would change, for the writer to refuse."""
    try:
        found = np.array(value)
        cast = found.astype(dtype or found.dtype)
    except (ValueError, TypeError, OverflowError):
        return value
    whole = cast.dtype.kind in "iu"
    return value if whole and not np.array_equal(cast, found) else cast


def line_chunks(
    stream: BinaryIO, start: int, stop: int | None, chunk: int = _CHUNK
) -> Iterator[memoryview]:
    r"""The lines that begin within a range of bytes, about a megabyte of them at a time.

    Args:
        stream: The file.
        start: The first byte.
        stop: The byte to stop before; None for the file's end.
        chunk: How many bytes are read at a time.

    Returns:
        Whole lines, each time in the same memory: they are there until the next are asked for.

    Example:
        >>> import io
        >>> [bytes(lines) for lines in line_chunks(io.BytesIO(b"ab\ncd\nef"), 1, 4)]
        [b'cd\n']
    """
    at = start
    if start:
        stream.seek(start - 1)
        at = start - 1 + len(stream.readline())
    first = not at
    left = None if stop is None else stop - at
    buffer = bytearray(chunk if left is None else max(1, min(chunk, left)))
    filled = 0
    while left is None or left > 0:
        most = len(buffer) - filled if left is None else min(len(buffer) - filled, left)
        count = _read_into(stream, memoryview(buffer)[filled : filled + most])
        filled += count
        left = None if left is None else left - count
        if count < most or left == 0:
            break
        whole = buffer.rfind(b"\n", 0, filled) + 1
        if whole:
            yield _without_bom(buffer, whole) if first else memoryview(buffer)[:whole]
            first = False
            buffer[: filled - whole] = buffer[whole:filled]
            filled -= whole
        elif filled == len(buffer):
            # A line is longer than all that is read at a time. The lines before are seen elsewhere.
            buffer = buffer + bytes(len(buffer))
    if filled:
        # The last line goes on behind the range.
        rest = b"" if buffer[filled - 1] == _LINE_END else stream.readline()
        buffer = buffer[:filled] + rest
        yield _without_bom(buffer, len(buffer)) if first else memoryview(buffer)


def _read_into(stream: BinaryIO, room: memoryview) -> int:
    """Fill some memory from a file; return how much of it, which is less at the file's end."""
    filled = 0
    while filled < len(room):
        count: int = stream.readinto(room[filled:])  # type: ignore[attr-defined]
        if not count:
            break
        filled += count
    return filled


def _without_bom(buffer: bytearray, stop: int) -> memoryview:
    return memoryview(buffer)[len(_BOM) if buffer.startswith(_BOM) else 0 : stop]


def parse_lines(data: Buffer) -> Rows:
    r"""Parse lines of JSON; blank ones are passed over.

    Example:
        >>> parse_lines(b'{"x": 1}\n \n{\n')[0]
        {'x': 1}
    """
    try:
        rows: Rows = _decode_lines(data)
        if set(map(type, rows)) <= {dict}:
            return rows
    except (ValueError, RecursionError):
        pass
    # One by one: that says which of them is at fault.
    return [_parse(line) for line in bytes(data).split(b"\n") if line.strip()]


def _decode_lines_by_json(data: Buffer) -> list[Any]:
    lines = str(data, "utf-8")
    count = lines.count("\n") + (not lines.endswith("\n"))
    # In JSON, strings have no line ends: all that there are stand between objects.
    text = lines.removesuffix("\n").replace("\n", ",")
    rows: list[Any] = json.loads(f"[{text}]")
    if len(rows) != count:
        raise ValueError
    return rows


def _line_decoder() -> Callable[[Buffer], list[Any]]:
    """What parses lines quickly, or raises ValueError where it is not sure.

    msgspec is two to three times as fast as the standard library, and gives the same values; what
    it refuses (NaN, lone surrogates) the standard library is asked about after it.
    """
    try:
        from msgspec.json import Decoder
    except ImportError:
        return _decode_lines_by_json
    decode: Callable[[Buffer], list[Any]] = Decoder().decode_lines
    return decode


_decode_lines = _line_decoder()


def _parse(line: bytes) -> Sample | Unreadable:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as exc:
        return Unreadable(f"not JSON: {exc}: {_shown(line)}")
    if not isinstance(row, dict):
        return Unreadable(f"not a JSON object: {_shown(line)}")
    return row


def _shown(line: bytes) -> str:
    text = line[:60].decode("utf-8", "replace")
    return repr(text) + (" …" if len(line) > 60 else "")


def _as_columns(rows: Rows, names: list[str]) -> dict[str, list[Any]] | None:
    if set(map(type, rows)) != {dict} or set(map(len, rows)) != {len(names)}:  # type: ignore[arg-type]
        return None
    try:
        return {name: list(map(itemgetter(name), rows)) for name in names}  # type: ignore[arg-type]
    except KeyError:
        return None
