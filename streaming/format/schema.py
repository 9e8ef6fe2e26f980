"""How the samples of an MDS shard lie in their bytes, worked out once for each set of columns."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.format.decoding import (
    Column,
    Get,
    Layout,
    Put,
    compile_decode,
    compile_get,
    compile_put,
    compile_rows,
    reads_rows,
)
from streaming.format.encodings.arrays import NDArray as NDArrayEncoding
from streaming.format.encodings.base import Encoding
from streaming.format.encodings.mds import get_mds_encoder
from streaming.format.encodings.scalars import Int, Scalar
from streaming.format.errors import CorruptShardError, FormatError
from streaming.format.gather import Positions, gather, gather_into, gather_rows_into, put

__all__ = ["MDSSchema", "mds_schema"]

_SIZE = np.dtype("<u4")


def mds_schema(
    names: Sequence[str], encodings: Sequence[str], sizes: Sequence[int | None]
) -> MDSSchema:
    """Return the layout of samples with these columns; the same object for the same columns.

    Args:
        names: The columns' names in their order on disk.
        encodings: Their encodings.
        sizes: The bytes that each value takes, None where they differ.

    Raises:
        FormatError: An encoding is unknown, or has another size than the shard says.
    """
    coders = []
    for name, encoding, size in zip(names, encodings, sizes, strict=True):
        try:
            coder = get_mds_encoder(encoding)
        except FormatError as err:
            raise FormatError(f"column {name!r}: {err}") from None
        own = getattr(coder, "size", None)
        if size is not None and own is not None and size != own:
            raise FormatError(
                f"column {name!r}: values of {encoding} take {own} bytes, the shard says {size}"
            )
        coders.append(coder)
    return _schema(tuple(names), tuple(encodings), tuple(sizes), tuple(coders))


class MDSSchema:
    """The columns of a sample, and where they are in its bytes.

    A sample is a uint32 for each column of variable size, then the columns.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        encodings: tuple[str, ...],
        sizes: tuple[int | None, ...],
        coders: tuple[Encoding, ...],
    ) -> None:
        self._encodings = dict(zip(names, encodings, strict=True))
        self._columns = [
            Column(name, coder, size, None if size is None else _layout(coder, size))
            for name, coder, size in zip(names, coders, sizes, strict=True)
        ]
        self._steps = [(column.name, column.size, column.reader()) for column in self._columns]
        self._listers = [column.lister() for column in self._columns]
        self._layouts = [column.layout for column in self._columns]
        self.layouts: dict[str, Layout | None] = {
            name: None if layout is None else (layout[0].newbyteorder("="), layout[1])
            for name, layout in zip(names, self._layouts, strict=True)
        }
        """Of each column, type and shape of its values if they are arrays of fixed size."""
        self._variable = sizes.count(None)
        self._head = struct.Struct(f"<{self._variable}I")
        self._fixed = sum(size for size in sizes if size is not None)
        self.min_bytes = self._head.size + self._fixed
        """The least that a sample can take."""
        self.has_fixed_size = not self._variable
        """Whether that is what every sample takes."""
        self.decode = compile_decode(self._columns, self._decode_with_care)
        """Makes the sample that lies in ``data[begin:end]``, at least ``min_bytes`` of a buffer.

        Raises CorruptShardError if the bytes are not a sample of these columns.
        """
        self._by_row = compile_rows(self._columns) if reads_rows(self._columns) else None
        self._by_offset = compile_get(self._columns, self._decode_with_care)
        self._put_each = compile_put(self._columns, self._decode_with_care)
        layouts = self._layouts
        self._is_one_array = (
            len(names) == 1
            and layouts[0] is not None
            and layouts[0][0].isnative
            and self.min_bytes > 0
        )

    def reader_of(
        self, data: Any, offsets: NDArray[np.uint32], samples: int, count: list[int]
    ) -> Get:
        """Return what reads samples of an open shard by their numbers, which have to exist.

        Args:
            data: The shard's bytes.
            offsets: Where each sample begins, and where the last one ends.
            samples: How many there are.
            count: To its only number the bytes of each sample that is read are added.
        """
        if self._by_row is not None:
            return self._by_row(data, int(offsets[0]), samples, count)
        return self._by_offset(data, offsets.data, count)

    def putter_of(self, data: Any, offsets: NDArray[np.uint32], count: list[int]) -> Put:
        """Return what puts samples of an open shard into columns, one after the other.

        Args:
            data: The shard's bytes.
            offsets: Where each sample begins, and where the last one ends.
            count: To its only number the bytes of each sample that is read are added.
        """
        return self._put_each(data, offsets.data, count)

    def _decode_with_care(self, data: Any, begin: int, end: int) -> dict[str, Any]:
        """Make a sample as :attr:`decode` does, and say which column is damaged."""
        sizes = self._head.unpack_from(data, begin)
        at = begin + self._head.size
        if at + self._fixed + sum(sizes) != end:
            raise CorruptShardError(
                f"the columns' sizes add up to {at + self._fixed + sum(sizes) - begin} bytes, "
                f"the sample has {end - begin}"
            )
        sample: dict[str, Any] = {}
        following = iter(sizes)
        name = ""
        try:
            for name, size, read in self._steps:  # named when it fails
                stop = at + (next(following) if size is None else size)
                sample[name] = read(data, at, stop)
                at = stop
        except (FormatError, UnicodeDecodeError) as err:
            raise CorruptShardError(f"column {name!r} ({self._encodings[name]}): {err}") from err
        return sample

    def columns(
        self, data: Any, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> dict[str, Any]:
        """Make the columns of the samples that lie in ``data[begins[k]:ends[k]]``.

        Returns:
            For each column whose values are numbers or arrays of fixed size, an array of shape
            ``(len(begins), *shape)``, writable and its own; for each other, the list of values.

        Raises:
            FormatError, UnicodeDecodeError: Some of the samples are damaged; :meth:`decode` says
                which and how.
        """
        count = len(begins)
        out: dict[str, Any] = {
            name: [None] * count if layout is None else np.empty((count, *layout[1]), layout[0])
            for name, layout in self.layouts.items()
        }
        self.fill(data, begins, ends, out, slice(0, count))
        return out

    def accepts(self, columns: Mapping[str, Any]) -> bool:
        """Tell whether columns are such as :meth:`fill` fills."""
        if columns.keys() != self.layouts.keys():
            return False
        for name, column in columns.items():
            layout = self.layouts[name]
            if layout is None:
                if type(column) is not list:
                    return False
            elif (
                not isinstance(column, np.ndarray)
                or column.dtype != layout[0]
                or column.shape[1:] != layout[1]
            ):
                return False
        return True

    def fill(
        self,
        data: Any,
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        columns: Mapping[str, Any],
        positions: Positions,
    ) -> None:
        """Put the samples that lie in ``data[begins[k]:ends[k]]`` into places of columns.

        Args:
            data: A buffer.
            begins: Where each sample begins, in bytes.
            ends: Where it ends.
            columns: A column of each name: arrays and lists as :attr:`layouts` says.
            positions: The samples' places in them.

        Raises:
            FormatError, UnicodeDecodeError: Some of the samples are damaged; :meth:`decode` says
                which and how.
        """
        if not len(begins):
            return
        if self._is_one_array:
            (column,) = columns.values()
            if column.flags.c_contiguous:
                base = int(begins[0]) % self.min_bytes
                count = (len(data) - base) // self.min_bytes
                rows: NDArray[Any] = np.ndarray((count, self.min_bytes), np.uint8, data, base)
                gather_rows_into(rows, (begins - base) // self.min_bytes, column, positions)
                return
        bounds = self._bounds(data, begins, ends)
        for column, values_of, start, stop in zip(
            self._columns, self._listers, bounds, bounds[1:], strict=False
        ):
            out = columns[column.name]
            if column.layout is not None:
                gather_into(data, start, column.layout[0], out, positions)
            else:
                put(out, positions, values_of(data, start.tolist(), stop.tolist()))

    def _bounds(
        self, data: Any, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> list[NDArray[np.int64]]:
        """Where the columns of samples begin, and where the last one ends."""
        at = begins + self._head.size
        bounds = [at]
        if self._variable:
            sizes = gather(data, begins, _SIZE, (self._variable,))
        variable = 0
        for _, size, _ in self._steps:
            if size is None:
                at = at + sizes[:, variable]
                variable += 1
            else:
                at = at + size
            bounds.append(at)
        if not np.array_equal(at, ends):
            raise CorruptShardError("the columns' sizes don't add up to the samples'")
        return bounds


_schema = lru_cache(maxsize=256)(MDSSchema)


def _layout(coder: Encoding, size: int) -> Layout | None:
    """Return the layout of a coder's bytes, unless it decodes them in a way of its own."""
    kind = type(coder)
    ours = (Int.decode, Scalar.decode, NDArrayEncoding.decode)
    own_word = "layout" in vars(kind) and not issubclass(kind, Scalar)
    layout = coder.layout if kind.decode in ours or own_word else None
    if layout is None or layout[0].itemsize * prod(layout[1]) != size:
        return None
    return layout
