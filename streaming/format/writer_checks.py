"""The checks of what writers are given: their arguments, and samples."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streaming.format.compression import compress
from streaming.format.errors import EncodeError, EncodeRangeError, EncodeTypeError, FormatError
from streaming.format.hashing import get_hashes, is_hash
from streaming.units import bytes_to_int

__all__ = [
    "ColumnError",
    "WriterOptions",
    "check_columns",
    "check_compression",
    "check_hashes",
    "check_size_limit",
    "explain_columns",
    "located",
]


class ColumnError(FormatError, KeyError):
    """A sample has not the columns that the data set has.

    A KeyError as well, because mosaicml-streaming raises that and scripts may catch it.
    """

    __str__ = Exception.__str__


@dataclass(slots=True)
class WriterOptions:
    """The keyword arguments that every writer takes besides those in its signature."""

    progress_bar: bool = False
    max_workers: int | None = None
    retry: int = 2
    exist_ok: bool = False
    storage_options: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, writer: str, kwargs: Mapping[str, Any]) -> WriterOptions:
        """Read a writer's keyword arguments.

        Args:
            writer: The writer's class, for messages.
            kwargs: The arguments.

        Raises:
            TypeError: If one is unknown, or of the wrong type.
            ValueError: If a value makes no sense.
        """
        known = list(cls.__dataclass_fields__)
        for name in kwargs:
            if name not in known:
                raise TypeError(f"{writer}: {_not_among('argument', name, known)}")
        return cls(**kwargs)

    def __post_init__(self) -> None:
        for name, least in (("max_workers", 1), ("retry", 0)):
            value = getattr(self, name)
            if value is None and name == "max_workers":
                continue
            if not isinstance(value, int):
                raise TypeError(f"{name} is {value!r}; it must be an integer")
            if value < least:
                raise ValueError(f"{name} is {value}; it must be {least} or more")

    @property
    def workers(self) -> int:
        """How many uploads there may be at the same time."""
        return self.max_workers or min(32, (os.cpu_count() or 1) + 4)


def check_columns(
    columns: Any, resolve: Callable[[str], object], known: Collection[str]
) -> dict[str, str]:
    """Check a writer's columns.

    Args:
        columns: The argument.
        resolve: Raises FormatError for an encoding that can't be used, or returns False.
        known: Encodings to choose from, for the message.

    Returns:
        The columns.

    Raises:
        TypeError: If it is not a dict of strings, or an encoding is not known.
        ValueError: If there are no columns.
    """
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns is {columns!r}; give a dict of column name to encoding")
    if not columns:
        raise ValueError("columns is empty; a data set needs at least one column")
    for name, encoding in columns.items():
        if not isinstance(name, str) or not isinstance(encoding, str):
            raise TypeError(f"column {name!r}: {encoding!r}: name and encoding must be strings")
        why = _not_among("encoding", encoding, known)
        try:
            if resolve(encoding) is not False:
                continue
        except FormatError as exc:
            # An encoding that is known objects to what comes after its name.
            why = str(exc) if encoding.partition(":")[0] in known else why
        raise EncodeTypeError(f"column {name!r}: {why}")
    return dict(columns)


def explain_columns(sample: Any, names: Iterable[str], number: int) -> None:
    """Raise the error for a sample that does not have exactly these columns; return if it has.

    Args:
        sample: What was given as a sample.
        names: The data set's columns.
        number: The sample's number.

    Raises:
        EncodeTypeError: If it is not a dict.
        ColumnError: If a column is missing, or one too many.
    """
    if not isinstance(sample, Mapping):
        raise EncodeTypeError(
            f"sample {number} is a {type(sample).__name__}; a sample is a dict of column to value"
        )
    wanted, given = set(names), set(sample)
    there = f"; the data set's columns are {', '.join(sorted(wanted))}"
    if wanted - given:
        raise ColumnError(f"sample {number} lacks {_listed(wanted - given)}{there}")
    if given - wanted:
        raise ColumnError(f"sample {number} has {_listed(given - wanted)} too much{there}")


def located(exc: Exception, column: str, number: int) -> EncodeError:
    """The error for a value that could not be encoded, with column and sample.

    Args:
        exc: What its encoding raised.
        column: The column's name.
        number: The sample's number.

    Returns:
        An error of the same class if that is one of ours, else of the nearest that we have.
    """
    kind: type[EncodeError] = EncodeError
    if isinstance(exc, EncodeError):
        kind = type(exc)
    elif isinstance(exc, (TypeError, AttributeError)):
        kind = EncodeTypeError
    elif isinstance(exc, OverflowError):
        kind = EncodeRangeError
    said = str(exc) if isinstance(exc, EncodeError) else f"{type(exc).__name__}: {exc}"
    return kind(f"column {column!r} of sample {number}: {said}")


def check_compression(compression: str | None) -> str | None:
    """See that a compression can be used here and now.

    Args:
        compression: Its name, with a level if you like; None or "" for none.

    Returns:
        The name, or None.

    Raises:
        FormatError: If there is none of that name.
        MissingExtraError: If its package is not installed.
    """
    if not compression:
        return None
    if not isinstance(compression, str):
        raise TypeError(f"compression is {compression!r}; give a name as 'zstd' or 'zstd:7'")
    compress(compression, b"")
    return compression


def check_hashes(hashes: Iterable[str] | None) -> list[str]:
    """See that hashes can be used, and are in order, each once.

    Raises:
        FormatError: If one is unknown.
        TypeError: If it is a string and not a list of them.
        ValueError: If one is named twice, or they are not in order.
    """
    if isinstance(hashes, str):
        raise TypeError(f"hashes is {hashes!r}; give a list: [{hashes!r}]")
    names = list(hashes or ())
    for name in names:
        if not isinstance(name, str) or not is_hash(name):
            raise FormatError(_not_among("hash", str(name), get_hashes()))
    if names != sorted(set(names)):
        raise ValueError(f"hashes is {names}; name each once, in order: {sorted(set(names))}")
    return names


def check_size_limit(size_limit: int | str | None) -> int | None:
    """Read a size limit.

    Returns:
        Bytes; None for no limit, which 0 stands for as well.

    Raises:
        ValueError: If it is negative, or no size.
        TypeError: If it is neither text nor a number.
    """
    limit = bytes_to_int(size_limit) if size_limit is not None else 0
    if limit < 0:
        raise ValueError(f"size_limit is {size_limit!r}; it must not be negative")
    return limit or None


def _listed(columns: set[Any]) -> str:
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(sorted(map(repr, columns)))}"


def _not_among(what: str, given: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(given, names, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"there is no {what} {given!r}; {hint}There are {', '.join(names)}"
