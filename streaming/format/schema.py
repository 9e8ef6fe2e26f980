"""How the samples of an MDS shard lie in their bytes, worked out once for each set of columns."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.format.encodings.arrays import NDArray as NDArrayEncoding
from streaming.format.encodings.base import Encoding
from streaming.format.encodings.mds import get_mds_encoder
from streaming.format.encodings.scalars import Bytes, Int, Scalar, Str
from streaming.format.errors import CorruptShardError, FormatError

__all__ = ["MDSSchema", "mds_schema"]

Read = Callable[[Any, int, int], Any]
"""Makes a value of ``buffer[start:stop]``."""


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
        self._layouts = [
            None if size is None else _layout(coder)
            for coder, size in zip(coders, sizes, strict=True)
        ]
        self._steps: list[tuple[str, int | None, Read]] = [
            (name, size, _reader(coder, size))
            for name, size, coder in zip(names, sizes, coders, strict=True)
        ]
        self._variable = sizes.count(None)
        self._head = struct.Struct(f"<{self._variable}I")
        self._fixed = sum(size for size in sizes if size is not None)
        self.min_bytes = self._head.size + self._fixed
        """The least that a sample can take."""
        self.has_fixed_size = not self._variable
        """Whether that is what every sample takes."""

    def decode(self, data: Any, begin: int, end: int) -> dict[str, Any]:
        """Make the sample that lies in ``data[begin:end]``, at least ``min_bytes`` of a buffer.

        Raises:
            CorruptShardError: The bytes are not a sample of these columns.
        """
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
        at = begins + self._head.size
        sizes = _gather(data, begins, self._head.size).view("<u4")
        sizes = sizes.reshape(count, self._variable)
        starts, variable = [], 0
        for _, size, _ in self._steps:
            starts.append(at)
            if size is None:
                at = at + sizes[:, variable]
                variable += 1
            else:
                at = at + size
        if not np.array_equal(at, ends):
            raise CorruptShardError("the columns' sizes don't add up to the samples'")
        starts.append(at)
        out: dict[str, Any] = {}
        for k, (name, size, read) in enumerate(self._steps):
            layout = self._layouts[k]
            if layout is not None and size is not None:
                dtype, shape = layout
                items = _gather(data, starts[k], size).view(dtype)
                out[name] = items.reshape(count, *shape).astype(dtype.newbyteorder("="), copy=False)
            else:
                spans = zip(starts[k].tolist(), starts[k + 1].tolist(), strict=True)
                out[name] = [read(data, start, stop) for start, stop in spans]
        return out


_schema = lru_cache(maxsize=256)(MDSSchema)


def _gather(data: Any, starts: NDArray[np.int64], width: int) -> NDArray[Any]:
    """Copy ``data[start : start + width]`` for each start, one after another, into new memory."""
    if not width or not len(starts):
        return np.empty(len(starts) * width, np.uint8)
    # Every position of the buffer seen as the beginning of an item: NumPy copies those asked for.
    items: NDArray[Any] = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    return items[starts].view(np.uint8)


def _layout(coder: Encoding) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return the layout of a coder's bytes, unless it decodes them in a way of its own."""
    kind = type(coder)
    ours = (Int.decode, Scalar.decode, NDArrayEncoding.decode)
    own_word = "layout" in vars(kind) and not issubclass(kind, Scalar)
    return coder.layout if kind.decode in ours or own_word else None


def _reader(coder: Encoding, size: int | None) -> Read:
    """Return the quickest way to a value of one column."""
    kind = type(coder)
    if kind is Str:
        return lambda data, start, stop: str(data[start:stop], "utf-8")
    if kind is Bytes:
        return lambda data, start, stop: data[start:stop]
    layout = None if size is None else _layout(coder)
    if layout is not None and kind.decode is Int.decode:
        unpack = struct.Struct("<q").unpack_from
        return lambda data, start, stop: unpack(data, start)[0]
    if layout is not None and kind.decode is Scalar.decode:
        return _scalar_reader(layout[0])
    if layout is not None and kind.decode is NDArrayEncoding.decode:
        return _array_reader(*layout)
    decode = coder.decode
    return lambda data, start, stop: decode(data[start:stop])


def _scalar_reader(dtype: np.dtype[Any]) -> Read:
    frombuffer = np.frombuffer
    return lambda data, start, stop: frombuffer(data, dtype, 1, start)[0]


def _array_reader(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Read:
    ndarray: Any = np.ndarray
    if dtype.isnative:
        return lambda data, start, stop: ndarray(shape, dtype, data, start).copy()
    native = dtype.newbyteorder("=")
    return lambda data, start, stop: ndarray(shape, dtype, data, start).astype(native)
