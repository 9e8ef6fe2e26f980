"""Transforms: what they return, what they remember, and what tells one from another."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Iterable
from types import CodeType, MethodType
from typing import Any

from streaming.convert.errors import ConvertError
from streaming.convert.source import Sample

__all__ = ["Transform", "fresh", "identity", "one_or_many"]

Transform = Callable[[Sample], "Sample | Iterable[Sample] | None"]
"""Called with a row, it returns a sample, several, or None."""

_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def one_or_many(made: Sample | Iterable[Sample] | None) -> Iterable[Sample]:
    """What a transform returned, as samples.

    Example:
        >>> [list(one_or_many(made)) for made in (None, {"x": 1}, [{"x": 1}, {"x": 2}])]
        [[], [{'x': 1}], [{'x': 1}, {'x': 2}]]
    """
    if made is None:
        return ()
    return (made,) if isinstance(made, dict) else made


def fresh(transform: Transform | None) -> Transform | None:
    """A copy that remembers nothing: what it has seen of one part must not go into another.

    Raises:
        ConvertError: If it can't be copied.
    """
    try:
        return copy.deepcopy(transform)
    except Exception as exc:
        raise ConvertError(
            f"the transform {_name(transform)} can't be copied, as it is for each part: {exc}; "
            "give it a method __deepcopy__, or make what can't be copied when it is first called"
        ) from exc


def identity(transform: Transform) -> str:
    """What tells a transform from others, as far as it can be seen, in any process.

    That is its name, its code, and the numbers and texts that it was made with: attributes,
    defaults, arguments of a partial, variables of the function around it.

    Example:
        >>> def at_least(least):
        ...     return lambda row: row if row["x"] >= least else None
        >>> [identity(at_least(1)) == identity(at_least(least)) for least in (1, 2)]
        [True, False]
    """
    digest = hashlib.sha256()
    _digest(transform, digest, depth=0)
    return f"{_name(transform)}:{digest.hexdigest()[:16]}"


def _name(transform: Any) -> str:
    target = transform.func if isinstance(transform, functools.partial) else transform
    named = target if hasattr(target, "__qualname__") else type(target)
    return f"{named.__module__}.{named.__qualname__}"


def _digest(value: Any, digest: Any, depth: int) -> None:
    """Note what is plain in a value; objects by their attributes, functions by their code."""
    kind = type(value)
    digest.update(kind.__qualname__.encode())
    if depth > 6:
        return
    if kind in _PLAIN:
        digest.update(repr(value).encode())
    elif kind in (list, tuple):
        for one in value:
            _digest(one, digest, depth + 1)
    elif kind is dict:
        for name in sorted(value, key=repr):
            _digest(name, digest, depth + 1)
            _digest(value[name], digest, depth + 1)
    elif kind is CodeType:
        digest.update(value.co_code + repr(value.co_names).encode())
        _digest(list(value.co_consts), digest, depth)
    elif isinstance(value, functools.partial):
        _digest([value.func, value.args, value.keywords], digest, depth + 1)
    elif kind is MethodType:
        _digest([value.__func__, value.__self__], digest, depth + 1)
    elif hasattr(value, "__code__"):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        _digest([value.__code__, value.__defaults__, cells], digest, depth + 1)
    elif isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, type):
        code = getattr(kind.__call__, "__code__", None) if callable(value) else None
        _digest([code, vars(value)], digest, depth + 1)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
