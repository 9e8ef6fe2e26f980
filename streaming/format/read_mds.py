"""Reading MDS shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.format.checks import check_config
from streaming.format.encodings.mds import is_mds_encoding_safe
from streaming.format.errors import FormatError
from streaming.format.gather import Positions
from streaming.format.info import FileInfo
from streaming.format.mapping import Positioned
from streaming.format.opening import Opened
from streaming.format.reader_kinds import JointReader
from streaming.format.schema import MDSSchema, mds_schema

__all__ = ["MDSReader"]


class MDSReader(JointReader):
    """One MDS shard: binary, any type, fixed-size columns at known places.

    Args:
        dirname: The stream's directory.
        split: Its subdirectory, or None.
        column_encodings: Encoding of each column, as listed in
            :mod:`streaming.format.encodings.mds`.
        column_names: Name of each column.
        column_sizes: Bytes that each value of a column takes, None where they differ.
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
        column_encodings: list[str],
        column_names: list[str],
        column_sizes: list[int | None],
        compression: str | None,
        hashes: list[str],
        raw_data: FileInfo,
        samples: int,
        size_limit: int | str | None,
        zip_data: FileInfo | None,
    ) -> None:
        super().__init__(
            dirname, split, compression, hashes, raw_data, samples, size_limit, zip_data
        )
        self.column_encodings = column_encodings
        self.column_names = column_names
        self.column_sizes = column_sizes
        self._unsafe_allowed = False
        self._compiled: MDSSchema | None = None

    @classmethod
    def from_json(cls, dirname: str, split: str | None, obj: dict[str, Any]) -> MDSReader:
        """Make a reader of what an index says of a shard.

        Raises:
            FormatError: A field is missing or wrong.
        """
        return cls.from_checked(dirname, split, check_config(obj, ("mds",)))

    @classmethod
    def from_checked(cls, dirname: str, split: str | None, obj: dict[str, Any]) -> MDSReader:
        """Make a reader of what an index says of a shard, which has been checked."""
        return cls(
            dirname,
            split,
            obj["column_encodings"],
            obj["column_names"],
            obj["column_sizes"],
            obj["compression"],
            obj["hashes"],
            FileInfo(**obj["raw_data"]),
            obj["samples"],
            obj["size_limit"],
            FileInfo(**obj["zip_data"]) if obj["zip_data"] else None,
        )

    def validate(self, allow_unsafe_types: bool) -> None:
        """Say whether encodings that can run code when read, ``pkl``, are allowed here.

        Until they have been allowed, reading them is refused.

        Raises:
            FormatError: The shard has one and they are not.
        """
        self._unsafe_allowed = allow_unsafe_types
        self._compiled = None
        if self._opened is not None:
            # They were made for what was allowed then.
            self._opened = replace(self._opened, get=None, put=None)
        if not allow_unsafe_types:
            self._refuse_unsafe()

    def _refuse_unsafe(self) -> None:
        for name, encoding in zip(self.column_names, self.column_encodings, strict=True):
            if not is_mds_encoding_safe(encoding):
                raise FormatError(
                    f"{self.name}: column {name!r} is {encoding}, which runs code of whoever wrote "
                    f"it when it is read. If you trust the data, set allow_unsafe_types=True (for "
                    f"a single reader, call validate(True))."
                )

    def _schema(self) -> MDSSchema:
        compiled = self._compiled
        if compiled is None:
            if not self._unsafe_allowed:
                self._refuse_unsafe()
            try:
                compiled = mds_schema(self.column_names, self.column_encodings, self.column_sizes)
            except FormatError as err:
                raise FormatError(f"{self.name}: {err}") from None
            self._compiled = compiled
        return compiled

    def _open(self) -> Opened:
        opened = super()._open()
        data = opened.file.data
        if isinstance(data, Positioned):
            return opened
        schema, offsets = self._schema(), opened.offsets
        return replace(
            opened,
            get=schema.reader_of(data, offsets, self.samples, self._read),
            put=schema.putter_of(data, offsets, self._read),
        )

    def _min_bytes(self) -> int:
        return self._schema().min_bytes

    def _has_fixed_size(self) -> bool:
        return self._schema().has_fixed_size

    def _decode(self, data: Any, begin: int, end: int) -> dict[str, Any]:
        return (self._compiled or self._schema()).decode(data, begin, end)

    def _columns(
        self, data: Any, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> dict[str, Any]:
        return self._schema().columns(data, begins, ends)

    def column_layouts(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]] | None]:
        """Return how :meth:`batch` gives each column: type and shape, or None for a list."""
        return dict(self._schema().layouts)

    def _accepts(self, columns: Mapping[str, Any]) -> bool:
        return self._schema().accepts(columns)

    def _fill(
        self,
        data: Any,
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        columns: Mapping[str, Any],
        positions: Positions,
    ) -> None:
        self._schema().fill(data, begins, ends, columns, positions)

    def _names(self) -> Sequence[str]:
        return self.column_names

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_compiled": None}
