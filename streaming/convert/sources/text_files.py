"""What JSON lines and CSV files have in common: lines, in files that may be compressed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

from streaming.convert.sources.files import Files
from streaming.convert.sources.lookup import FileRef, stem_and_ending
from streaming.convert.sources.packages import needed

__all__ = ["TextFiles", "even_ranges"]


class TextFiles(Files):
    """Files of lines of text. Compressed ones can only be read from their beginning."""

    unit = "bytes"

    def __init__(
        self,
        files: Sequence[FileRef],
        part_bytes: int | None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(files, part_bytes, options)
        if any(stem_and_ending(file.key)[2] == ".zst" for file in self.files):
            needed("zstandard")

    def compressed(self, file: FileRef) -> bool:
        """Whether a file is compressed, by its name."""
        return bool(stem_and_ending(file.key)[2])

    def open_text(self, file: FileRef) -> BinaryIO:
        """A file's text as bytes, decompressed if need be."""
        raw = self.open(file)
        compression = stem_and_ending(file.key)[2]
        if compression == ".gz":
            return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
        if compression == ".bz2":
            return cast(BinaryIO, bz2.BZ2File(raw))
        if compression == ".xz":
            return cast(BinaryIO, lzma.LZMAFile(raw))
        if compression == ".zst":
            import zstandard

            reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
            return cast(BinaryIO, io.BufferedReader(reader, 1 << 20))
        return raw


def even_ranges(size: int, most: int) -> Iterator[tuple[int, int]]:
    """Cut a number of bytes into ranges of nearly equal length.

    Example:
        >>> list(even_ranges(10, 4)), list(even_ranges(0, 4))
        ([(0, 3), (3, 6), (6, 10)], [])
    """
    count = -(-size // most)
    for at in range(count):
        yield size * at // count, size * (at + 1) // count
