"""Reading JSONL shards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from streaming.format.checks import check_config
from streaming.format.errors import CorruptShardError
from streaming.format.info import FileInfo
from streaming.format.read_xsv import line_at, split_arguments
from streaming.format.reader_kinds import SplitReader

__all__ = ["JSONReader"]


class JSONReader(SplitReader):
    """One shard of lines, each a JSON object.

    Args:
        dirname: The stream's directory.
        split: Its subdirectory, or None.
        columns: Name of each column to its encoding: ``str``, ``int`` or ``float``.
        compression: What the files are compressed with, or None.
        hashes: The hash algorithms that the writer applied.
        newline: What ends a line.
        raw_data: The file with the lines.
        raw_meta: The file with the lines' offsets.
        samples: How many samples there are.
        size_limit: The writer's limit for a shard, in bytes.
        zip_data: The first file compressed, or None.
        zip_meta: The second file compressed, or None.
    """

    def __init__(
        self,
        dirname: str,
        split: str | None,
        columns: dict[str, str],
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
            compression,
            hashes,
            raw_data,
            raw_meta,
            samples,
            size_limit,
            zip_data,
            zip_meta,
        )
        self.columns = columns
        self.newline = newline
        self._end = newline.encode()

    @classmethod
    def from_json(cls, dirname: str, split: str | None, obj: dict[str, Any]) -> JSONReader:
        """Make a reader of what an index says of a shard.

        Raises:
            FormatError: A field is missing or wrong.
        """
        return cls.from_checked(dirname, split, check_config(obj, ("json",)))

    @classmethod
    def from_checked(cls, dirname: str, split: str | None, obj: dict[str, Any]) -> JSONReader:
        """Make a reader of what an index says of a shard, which has been checked."""
        return cls(
            dirname,
            split,
            columns=obj["columns"],
            newline=obj["newline"],
            **split_arguments(obj),
        )

    def _min_bytes(self) -> int:
        return 2 + len(self._end)

    def _decode(self, data: Any, begin: int, end: int) -> dict[str, Any]:
        line = line_at(data, begin, end, self._end)
        try:
            found = json.loads(str(line, "utf-8"))
        except (ValueError, RecursionError) as err:
            raise CorruptShardError(f"not JSON: {err}") from None
        if type(found) is not dict:
            raise CorruptShardError(f"a JSON {type(found).__name__}, not an object")
        missing = self.columns.keys() - found.keys()
        if missing:
            raise CorruptShardError(f"no value for the columns {', '.join(sorted(missing))}")
        return {name: value for name, value in found.items() if name in self.columns}

    def _names(self) -> Sequence[str]:
        return list(self.columns)
