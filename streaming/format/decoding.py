"""Functions that make samples of bytes, compiled for one set of columns.

A loop over columns would cost more than what it does for each. So the steps are written out as
Python source, as :mod:`dataclasses` does it: positions that are known become constants, plain
numbers before the first column of variable size are unpacked together with the sizes, and what is
left for each column is one expression.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.format.encodings.arrays import NDArray as NDArrayEncoding
from streaming.format.encodings.base import Encoding
from streaming.format.encodings.scalars import Bytes, Int, Scalar, Str
from streaming.format.errors import FormatError

__all__ = [
    "Column",
    "Decode",
    "Get",
    "Layout",
    "Put",
    "compile_decode",
    "compile_get",
    "compile_put",
    "compile_rows",
    "reads_rows",
]

Layout = tuple[np.dtype[Any], tuple[int, ...]]
"""The type of an array's elements, and its shape."""
Decode = Callable[[Any, int, int], dict[str, Any]]
"""Makes the sample in ``buffer[begin:end]``."""
Get = Callable[[int], dict[str, Any]]
"""Makes the sample of a number."""
Put = Callable[[Iterable[int], Iterable[int], Mapping[str, Any]], None]
"""Puts the samples of some numbers into places of columns."""

_CHARS = {"i": "bhiq", "u": "BHIQ"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column as it lies in samples."""

    name: str
    coder: Encoding
    size: int | None
    """Bytes that each value takes, None where they differ."""
    layout: Layout | None
    """How each value lies in memory, if it is a number or an array of fixed size."""

    @property
    def is_int(self) -> bool:
        """Whether its values are integers of Python in 8 bytes."""
        return self.layout is not None and type(self.coder).decode is Int.decode

    @property
    def is_scalar(self) -> bool:
        """Whether its values are NumPy's numbers."""
        return self.layout is not None and type(self.coder).decode is Scalar.decode

    @property
    def is_array(self) -> bool:
        """Whether its values are NumPy's arrays of fixed size."""
        return self.layout is not None and type(self.coder).decode is NDArrayEncoding.decode

    def reader(self) -> Callable[[Any, int, int], Any]:
        """What makes a value of ``buffer[start:stop]``."""
        kind = type(self.coder)
        if kind is Str:
            return lambda data, start, stop: str(data[start:stop], "utf-8")
        if kind is Bytes:
            return lambda data, start, stop: data[start:stop]
        if self.is_int:
            unpack = struct.Struct("<q").unpack_from
            return lambda data, start, stop: unpack(data, start)[0]
        if self.layout is not None and self.is_scalar:
            dtype, frombuffer = self.layout[0], np.frombuffer
            return lambda data, start, stop: frombuffer(data, dtype, 1, start)[0]
        if self.layout is not None and self.is_array:
            return _array_reader(*self.layout)
        decode = self.coder.decode
        return lambda data, start, stop: decode(data[start:stop])

    def lister(self) -> Callable[[Any, list[int], list[int]], list[Any]]:
        """What makes the values of ``buffer[starts[k]:stops[k]]``."""
        kind = type(self.coder)
        if kind is Str:
            return lambda data, starts, stops: [
                data[start:stop].decode() for start, stop in zip(starts, stops, strict=True)
            ]
        if kind is Bytes:
            return lambda data, starts, stops: [
                data[start:stop] for start, stop in zip(starts, stops, strict=True)
            ]
        read = self.reader()
        return lambda data, starts, stops: [
            read(data, start, stop) for start, stop in zip(starts, stops, strict=True)
        ]


def _array_reader(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Callable[[Any, int, int], Any]:
    ndarray: Any = np.ndarray
    if dtype.isnative:
        return lambda data, start, stop: ndarray(shape, dtype, data, start).copy()
    native = dtype.newbyteorder("=")
    return lambda data, start, stop: ndarray(shape, dtype, data, start).astype(native)


def compile_decode(columns: Sequence[Column], careful: Decode) -> Decode:
    """Compile the decoding of samples.

    Args:
        columns: The columns in their order.
        careful: Called for samples that are damaged, to raise what says where.

    Returns:
        A function of a buffer (which slices to bytes), and where in it a sample begins and ends,
        which is not less than the least that a sample takes.
    """
    lines, names = _steps(columns)
    decode: Decode = _compile("decode", "data, begin, end", lines, names | {"careful": careful})
    return decode


def compile_get(
    columns: Sequence[Column], careful: Decode
) -> Callable[[Any, memoryview, list[int]], Get]:
    """Compile the reading of samples by number from a shard that is open.

    Args:
        columns: The columns in their order.
        careful: Called for samples that are damaged, to raise what says where.

    Returns:
        A function of the shard's bytes, its offsets, and a list of one number, to which the bytes
        of each sample are added; it gives what reads a sample by its number, which exists.
    """
    lines, names = _steps(columns)
    body = ["def get(number):", *(f"    {line}" for line in [*_FIND, *lines]), "return get"]
    made: Callable[[Any, memoryview, list[int]], Get] = _compile(
        "bind", "data, offsets, count", body, names | {"careful": careful}
    )
    return made


def compile_put(
    columns: Sequence[Column], careful: Decode
) -> Callable[[Any, memoryview, list[int]], Put]:
    """Compile the reading of samples by number into columns, one sample after the other.

    For a few samples that is quicker than a step for each column, which is quicker for many.

    Args:
        columns: The columns in their order.
        careful: Called for samples that are damaged, to raise what says where.

    Returns:
        A function of the shard's bytes, its offsets, and a list of one number, to which the bytes
        of each sample are added; it gives what reads samples by their numbers, which exist, into
        given places of columns: lists, and for numbers and arrays of fixed size, arrays.
    """
    lines, names = _steps(columns, into_columns=True)
    body = [
        "def put(numbers, places, columns):",
        *(f"    c{k} = columns[{column.name!r}]" for k, column in enumerate(columns)),
        "    for number, place in zip(numbers, places, strict=True):",
        *(f"        {line}" for line in [*_FIND, *lines]),
        "return put",
    ]
    made: Callable[[Any, memoryview, list[int]], Put] = _compile(
        "bind", "data, offsets, count", body, names | {"careful": careful}
    )
    return made


_FIND = ["begin = offsets[number]", "end = offsets[number + 1]", "count[0] += end - begin"]


def reads_rows(columns: Sequence[Column]) -> bool:
    """Tell whether :func:`compile_rows` can read such columns."""
    kinds = (column.is_int or column.is_scalar or column.is_array for column in columns)
    return bool(columns) and all(kinds)


def compile_rows(columns: Sequence[Column]) -> Callable[[Any, int, int, list[int]], Get]:
    """Compile the reading of samples by number, of columns of numbers and arrays of fixed size.

    Args:
        columns: The columns in their order, such as :func:`reads_rows` says.

    Returns:
        A function of the shard's bytes, where its first sample begins, how many there are, and a
        list of one number, to which the bytes of each sample are added; it gives what reads a
        sample by its number, which exists.
    """
    width = sum(column.size or 0 for column in columns)
    names: dict[str, Any] = {}
    items = []
    for k, column in enumerate(columns):
        value = f"c{k}(number)" if column.is_int else f"c{k}[number]"
        if column.is_array and column.layout is not None:
            native = column.layout[0].isnative
            value += ".copy()" if native else f".astype(native{k})"
            names[f"native{k}"] = column.layout[0].newbyteorder("=")
        items.append(f"{column.name!r}: {value}")
    body = [
        "def get(number):",
        f"    count[0] += {width}",
        f"    return {{{', '.join(items)}}}",
        "return get",
    ]
    given = ", ".join([*(f"c{k}" for k in range(len(columns))), "count"])
    bind = _compile("bind", given, body, names)

    def reader_of(data: Any, first: int, samples: int, count: list[int]) -> Get:
        parts: list[Any] = []
        for column in columns:
            assert column.layout is not None
            dtype, shape = column.layout
            strides = (width, *np.empty(shape, dtype).strides)
            values: NDArray[Any] = np.ndarray((samples, *shape), dtype, data, first, strides)
            parts.append(values.item if column.is_int else values)
            first += column.size or 0
        get: Get = bind(*parts, count)
        return get

    return reader_of


def _steps(
    columns: Sequence[Column], into_columns: bool = False
) -> tuple[list[str], dict[str, Any]]:
    """The lines that make a sample of ``data[begin:end]``, and the names that they use.

    Args:
        columns: The columns in their order.
        into_columns: Whether to put its values at ``place`` of columns, ``c0`` and so on, instead
            of returning it.
    """
    names: dict[str, Any] = {
        "q": struct.Struct("<q").unpack_from,
        "errors": (FormatError, UnicodeDecodeError),
        "view": np.ndarray,
    }
    variable = [k for k, column in enumerate(columns) if column.size is None]
    unpacked = [f"s{k}" for k in variable]
    form, gap = f"<{len(variable)}I" if variable else "<", 0
    base, at, leading = "begin", 4 * len(variable), True
    lines: list[str] = []
    values: list[str] = []
    for k, column in enumerate(columns):
        start = f"{base} + {at}" if at else base
        char = _char(column)
        if column.size is None:
            leading = False
            lines.append(f"p{k} = {start} + s{k}")
            base, at = f"p{k}", 0
            stop = base
        else:
            at += column.size
            stop = f"{base} + {at}"
        if leading and char is not None:
            form += (f"{gap}x" if gap else "") + char
            gap = 0
            unpacked.append(f"v{k}")
            value = f"v{k}" if column.is_int or into_columns else f"t{k}(v{k})"
        else:
            gap += column.size or 0
            value = _value(column, k, start, stop)
            if into_columns and column.layout is not None:
                value = f"view(shape{k}, dtype{k}, data, {start})"
                names |= {f"dtype{k}": column.layout[0], f"shape{k}": column.layout[1]}
        names |= {f"r{k}": column.reader(), f"t{k}": getattr(type(column.coder), "dtype", None)}
        values.append(value)
    if unpacked:
        names["head"] = struct.Struct(form).unpack_from
        lines.insert(0, f"{', '.join(unpacked)}, = head(data, begin)")
    if into_columns:
        finish = [f"c{k}[place] = {value}" for k, value in enumerate(values)] or ["pass"]
    else:
        items = (f"{column.name!r}: {it}" for column, it in zip(columns, values, strict=True))
        finish = [f"return {{{', '.join(items)}}}"]
    lines += [
        f"if {base} + {at} != end:",
        "    return careful(data, begin, end)",
        "try:",
        *(f"    {line}" for line in finish),
        "except errors:",
        "    return careful(data, begin, end)",
    ]
    return lines, names


def _char(column: Column) -> str | None:
    """How :mod:`struct` reads a number as what the encoding decodes it to, bit for bit."""
    if column.is_int:
        return "q"
    if column.layout is None or not column.is_scalar:
        return None
    dtype = column.layout[0]
    if dtype.kind in _CHARS:
        return _CHARS[dtype.kind][dtype.itemsize.bit_length() - 1]
    return "d" if dtype.itemsize == 8 else None  # a narrower NaN would not keep its bits


def _value(column: Column, k: int, start: str, stop: str) -> str:
    """An expression for the value in ``data[start:stop]``."""
    kind = type(column.coder)
    if kind is Str:
        return f"data[{start}:{stop}].decode()"
    if kind is Bytes:
        return f"data[{start}:{stop}]"
    if column.is_int:
        return f"q(data, {start})[0]"
    return f"r{k}(data, {start}, {stop})"


def _compile(name: str, arguments: str, lines: Sequence[str], names: dict[str, Any]) -> Any:
    source = f"def {name}({arguments}):\n" + "".join(f"    {line}\n" for line in lines)
    scope = dict(names)
    exec(source, scope)
    return scope[name]
