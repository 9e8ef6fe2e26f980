"""Reading CSV, TSV and XSV shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from streaming.format.checks import check_config
from streaming.format.encodings.xsv import xsv_decode
from streaming.format.errors import CorruptShardError, FormatError
from streaming.format.info import FileInfo
from streaming.format.reader_kinds import SplitReader

__all__ = ["CSVReader", "TSVReader", "XSVReader"]


class XSVReader(SplitReader):
    """One shard of lines of text, whose values are separated by a string.

    Args:
        dirname: The stream's directory.
        split: Its subdirectory, or None.
        column_encodings: Encoding of each column: ``str``, ``int`` or ``float``.
        column_names: Name of each column.
        compression: What the files are compressed with, or None.
        hashes: The hash algorithms that the writer applied.
        newline: What ends a line.
        raw_data: The file with the lines; the first line names the columns.
        raw_meta: The file with the offsets of the samples' lines.
        samples: How many samples there are.
        separator: What separates values.
        size_limit: The writer's limit for a shard, in bytes.
        zip_data: The first file compressed, or None.
        zip_meta: The second file compressed, or None.
    """

    _formats: ClassVar[tuple[str, ...]] = ("xsv",)

    def __init__(
        self,
        dirname: str,
        split: str | None,
        column_encodings: list[str],
        column_names: list[str],
        compression: str | None,
        hashes: list[str],
        newline: str,
        raw_data: FileInfo,
        raw_meta: FileInfo,
        samples: int,
        separator: str,
        size_limit: int | str | None,
        zip_data: FileInfo | None,
        zip_meta: FileInfo | None,
    ) -> None:
        super().__init__(
            dirname,
            split,
            compression,
            hashes,
            raw_data,
            raw_meta,
            samples,
            size_limit,
            zip_data,
            zip_meta,
        )
        self.column_encodings = column_encodings
        self.column_names = column_names
        self.newline = newline
        self.separator = separator
        self._end = newline.encode()

    @classmethod
    def from_json(cls, dirname: str, split: str | None, obj: dict[str, Any]) -> XSVReader:
        """Make a reader of what an index says of a shard.

        Raises:
            FormatError: A field is missing or wrong.
        """
        return cls.from_checked(dirname, split, check_config(obj, cls._formats))

    @classmethod
    def from_checked(cls, dirname: str, split: str | None, obj: dict[str, Any]) -> XSVReader:
        """Make a reader of what an index says of a shard, which has been checked."""
        own = {"separator": obj["separator"]} if cls._formats == ("xsv",) else {}
        return cls(
            dirname,
            split,
            column_encodings=obj["column_encodings"],
            column_names=obj["column_names"],
            newline=obj["newline"],
            **own,
            **split_arguments(obj),
        )

    def _header_bytes(self) -> int:
        return len((self.separator.join(self.column_names) + self.newline).encode())

    def _min_bytes(self) -> int:
        return len(self._end)

    def _decode(self, data: Any, begin: int, end: int) -> dict[str, Any]:
        line = line_at(data, begin, end, self._end)
        try:
            values = str(line, "utf-8").split(self.separator)
        except UnicodeDecodeError as err:
            raise CorruptShardError(f"not UTF-8: {err}") from None
        if len(values) != len(self.column_names):
            raise CorruptShardError(
                f"{len(values)} values for the {len(self.column_names)} columns "
                f"{self.separator.join(self.column_names)!r}"
            )
        sample: dict[str, Any] = {}
        columns = zip(self.column_names, self.column_encodings, values, strict=True)
        for name, encoding, value in columns:
            try:
                sample[name] = xsv_decode(encoding, value)
            except FormatError as err:
                raise CorruptShardError(f"column {name!r} ({encoding}): {err}") from None
        return sample

    def _names(self) -> Sequence[str]:
        return self.column_names


class _FixedXSVReader(XSVReader):
    """An XSV reader whose format fixes the separator."""

    _separator: ClassVar[str]

    def __init__(
        self,
        dirname: str,
        split: str | None,
        column_encodings: list[str],
        column_names: list[str],
        compression: str | None,
        hashes: list[str],
        newline: str,
        raw_data: FileInfo,
        raw_meta: FileInfo,
        samples: int,
        size_limit: int | str | None,
        zip_data: FileInfo | None,
        zip_meta: FileInfo | None,
    ) -> None:
        super().__init__(
            dirname,
            split,
            column_encodings,
            column_names,
            compression,
            hashes,
            newline,
            raw_data,
            raw_meta,
            samples,
            self._separator,
            size_limit,
            zip_data,
            zip_meta,
        )


class CSVReader(_FixedXSVReader):
    """One shard of comma-separated values; the arguments are those of XSVReader."""

    _formats = ("csv",)
    _separator = ","


class TSVReader(_FixedXSVReader):
    """One shard of tab-separated values; the arguments are those of XSVReader."""

    _formats = ("tsv",)
    _separator = "\t"


def line_at(data: Any, begin: int, end: int, newline: bytes) -> bytes:
    """Return the line in ``data[begin:end]`` without its end.

    Raises:
        CorruptShardError: It does not end there, or the line before it does not end where it
            begins.
    """
    line: bytes = data[begin:end]
    if not line.endswith(newline):
        raise CorruptShardError(f"the line does not end with {newline!r}: {line[-20:]!r}")
    if begin and data[begin - len(newline) : begin] != newline:
        raise CorruptShardError(f"the line begins in the middle of another: {line[:20]!r}")
    return line[: -len(newline)]


def split_arguments(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that all readers of two files take, of what an index says of a shard."""
    return {
        "compression": obj["compression"],
        "hashes": obj["hashes"],
        "raw_data": FileInfo(**obj["raw_data"]),
        "raw_meta": FileInfo(**obj["raw_meta"]),
        "samples": obj["samples"],
        "size_limit": obj["size_limit"],
        "zip_data": FileInfo(**obj["zip_data"]) if obj["zip_data"] else None,
        "zip_meta": FileInfo(**obj["zip_meta"]) if obj["zip_meta"] else None,
    }
