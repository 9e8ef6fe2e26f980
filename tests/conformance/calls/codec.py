"""Values as JSON that keeps their types."""

import base64
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


class Outcome(dict[str, Any]):
    """What a call gave, encoded."""


def encode(value: Any) -> Any:
    """A value as JSON: two values are equal, types included, if their encodings are."""
    if isinstance(value, Outcome):
        return dict(value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        return {"ndarray": str(value.dtype), "shape": list(value.shape), "values": value.tolist()}
    if isinstance(value, np.generic):
        return {"scalar": str(value.dtype), "value": value.item()}
    if isinstance(value, Mapping):
        return {"mapping": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [encode(v) for v in value]}
    if isinstance(value, set | frozenset):
        return {"set": sorted(encode(v) for v in value)}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, type):
        return {"class": value.__name__}
    if dataclasses.is_dataclass(value):
        return {"dataclass": type(value).__name__, "fields": encode(vars(value))}
    if hasattr(value, "getbands"):
        return {"image": value.mode, "size": list(value.size), "pixels": encode(value.tobytes())}
    if hasattr(value, "detach"):
        return {"tensor": str(value.dtype), "values": value.tolist()}
    return {"instance": type(value).__name__}


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Outcome:
    """What a call returns, or the names that the exception it raises can be caught by."""
    try:
        return Outcome(returns=encode(function(*args, **kwargs)))
    except Exception as error:
        return Outcome(raises=[cls.__name__ for cls in type(error).__mro__[:-3]])


def files(folder: Path) -> dict[str, Any]:
    """A folder's files by their path, with their bytes."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def names(folder: Path) -> list[str]:
    """The paths of a folder's files."""
    return list(files(folder))
