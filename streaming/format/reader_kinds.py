"""Shard readers by their files: one for each shard, or a plain one and one of offsets."""

from __future__ import annotations

from streaming.format.errors import CorruptShardError
from streaming.format.info import FileInfo
from streaming.format.opening import Opened
from streaming.format.reader import Reader

__all__ = ["JointReader", "SplitReader"]


class JointReader(Reader):
    """A shard that is one file: table of offsets, header and samples.

    Args:
        dirname: The stream's directory.
        split: Its subdirectory, or None.
        compression: What the file is compressed with, or None.
        hashes: The hash algorithms that the writer applied.
        raw_data: The file.
        samples: How many samples there are.
        size_limit: The writer's limit for a shard, in bytes.
        zip_data: The compressed file, or None.
    """

    def __init__(
        self,
        dirname: str,
        split: str | None,
        compression: str | None,
        hashes: list[str],
        raw_data: FileInfo,
        samples: int,
        size_limit: int | str | None,
        zip_data: FileInfo | None,
    ) -> None:
        self.raw_data, self.zip_data = raw_data, zip_data
        super().__init__(dirname, split, compression, hashes, samples, size_limit)
        self.file_pairs = [(raw_data, zip_data)]

    def _open(self) -> Opened:
        file = self._open_pair(self.raw_data, self.zip_data)
        offsets = self._offsets(file, self.first_offset(), last=len(file.data))
        return Opened(file, offsets)


class SplitReader(Reader):
    """A shard that is two files: a plain one with the samples, and one with offsets and header.

    Args:
        dirname: The stream's directory.
        split: Its subdirectory, or None.
        compression: What the files are compressed with, or None.
        hashes: The hash algorithms that the writer applied.
        raw_data: The file with the samples.
        raw_meta: The file with the table of offsets and the header.
        samples: How many samples there are.
        size_limit: The writer's limit for a shard, in bytes.
        zip_data: The first file compressed, or None.
        zip_meta: The second file compressed, or None.
    """

    def __init__(
        self,
        dirname: str,
        split: str | None,
        compression: str | None,
        hashes: list[str],
        raw_data: FileInfo,
        raw_meta: FileInfo,
        samples: int,
        size_limit: int | str | None,
        zip_data: FileInfo | None,
        zip_meta: FileInfo | None,
    ) -> None:
        self.raw_data, self.zip_data = raw_data, zip_data
        self.raw_meta, self.zip_meta = raw_meta, zip_meta
        super().__init__(dirname, split, compression, hashes, samples, size_limit)
        self.file_pairs = [(raw_meta, zip_meta), (raw_data, zip_data)]

    def _open(self) -> Opened:
        meta = self._open_pair(self.raw_meta, self.zip_meta)
        file = self._open_pair(self.raw_data, self.zip_data)
        first = self.first_offset()
        offsets = self._offsets(meta, first, last=len(file.data))
        if offsets[0] != first:
            raise CorruptShardError(
                f"{meta.path}: the first sample is said to be at byte {offsets[0]}, not {first}"
            )
        return Opened(file, offsets)

    def first_offset(self) -> int:
        """The only thing that the first offset in the table can be."""
        return self._header_bytes()

    def _header_bytes(self) -> int:
        """The bytes that precede the samples in their file."""
        return 0
