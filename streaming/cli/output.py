"""Results as JSON, and numbers as people read them."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import Any

__all__ = ["as_json", "plain", "size", "spoken", "text"]


def plain(value: Any) -> Any:
    """A result as JSON's own types: fields by name, properties too.

    Args:
        value: A dataclass, or anything in one.

    Example:
        >>> from streaming.cli.bench import Rate
        >>> plain(Rate("x", 10, 100, 2.0))["samples_per_s"]
        5.0
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        for name, member in vars(type(value)).items():
            if isinstance(member, property):
                found[name] = getattr(value, name)
        return plain(found)
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value


def as_json(value: Any, indent: int | None = 2) -> str:
    """A result as JSON.

    Args:
        value: A dataclass.
        indent: Spaces for each level; None for one line.
    """
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def size(count: float) -> str:
    """A number of bytes.

    Example:
        >>> size(700), size(64 << 20)
        ('700 B', '64.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def text(value: str) -> str:
    r"""Text of a data set that may be printed: what could steer a terminal is escaped.

    Example:
        >>> text("a\x1b[31mb\n"), text("çay")
        ('a\\x1b[31mb\\n', 'çay')
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in value
    )


def spoken(value: Any) -> str:
    """A sample's described value in a few words.

    Args:
        value: What `streaming.cli.samples.describe` gave.

    Example:
        >>> spoken({"ndarray": "uint8", "shape": [2, 3], "min": 0, "max": 9, "mean": 4.5})
        'ndarray uint8 2x3, min 0, max 9, mean 4.5'
        >>> spoken({"image": "JPEG", "mode": "RGB", "size": [640, 480]})
        'image JPEG RGB 640x480'
    """
    if isinstance(value, str):
        return text(value)
    if not isinstance(value, dict):
        return text(json.dumps(value, ensure_ascii=False))
    if "ndarray" in value:
        shape = "x".join(map(str, value["shape"])) or "scalar"
        rest = [f"{k} {v:.6g}" for k, v in value.items() if k in _NUMBERS and _is_number(v)]
        said = ", ".join([f"ndarray {value['ndarray']} {shape}", *rest])
        return f"{said}: {json.dumps(value['values'])}" if "values" in value else said
    if "image" in value and "mode" in value:
        saved = f", saved as {value['saved']}" if "saved" in value else ""
        dims = "x".join(map(str, value["size"]))
        return f"image {value['image'] or 'raw'} {value['mode']} {dims}{saved}"
    if value.keys() in ({"bytes", "hex"}, {"bytes", "base64"}):
        data: str = value["hex"] if "hex" in value else value["base64"]
        more = "…" if "hex" in value and 2 * value["bytes"] > len(data) else ""
        return f"{value['bytes']} bytes {data}{more}"
    if value.keys() == {"str", "begin"}:
        return f"{text(value['begin'])}… ({value['str']} characters)"
    return text(json.dumps(value, ensure_ascii=False))


_NUMBERS = ("min", "max", "mean")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))
