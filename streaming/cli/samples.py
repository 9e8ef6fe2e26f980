"""`shardstream head` and `cat`: samples, made fit to be looked at."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streaming.cli.place import Place
from streaming.cli.shards import read_samples

__all__ = ["Shown", "describe", "parse_ids", "samples"]

_MOST_TEXT = 500
_MOST_ITEMS = 20
_MOST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Shown:
    """A sample whose values are fit to be printed."""

    id: int
    sample: dict[str, Any]
    """Column to value: JSON. What stands for something else is an object with its kind's name."""


def parse_ids(texts: Sequence[str], count: int) -> list[int] | range:
    """Read which samples are meant.

    Args:
        texts: Numbers and ranges, as in `7`, `-1`, `10:20`, `::100`; none for all samples.
        count: How many samples there are.

    Returns:
        Their numbers.

    Raises:
        IndexError: If there is no such sample.
        ValueError: If that is no number and no range.

    Example:
        >>> parse_ids(["7", "-1", "2:4"], 10), parse_ids([], 3)
        ([7, 9, 2, 3], range(0, 3))
    """
    if not texts:
        return range(count)
    ids: list[int] = []
    for text in texts:
        if re.fullmatch(r"-?\d+", text):
            number = int(text)
            if not -count <= number < count:
                raise IndexError(f"there is no sample {number}: the data set has {count}")
            ids.append(number % count)
        elif re.fullmatch(r"(-?\d*):(-?\d*)(:-?\d*)?", text):
            parts = [int(part) if part else None for part in text.split(":")]
            ids.extend(range(count)[slice(*parts)])
        else:
            raise ValueError(f"{text!r} is no sample: give numbers, or ranges as in 10:20")
    return ids


def samples(
    place: Place,
    ids: Sequence[int],
    *,
    columns: Sequence[str] = (),
    images: Path | None = None,
    full: bool = False,
    unsafe: bool = False,
) -> Iterator[Shown]:
    """Samples of a data set, made fit to be printed.

    Args:
        place: The data set.
        ids: The samples' numbers.
        columns: The columns to show; all if there are none.
        images: A folder that images are saved to; None to describe them only.
        full: Whether long texts, arrays and bytes are given whole.
        unsafe: Whether encodings are read that can run code.

    Raises:
        FormatError: If a shard is damaged, or has such an encoding.
        StoreError: If a shard can't be fetched.
        ValueError: If there is no such column.
    """
    for number, sample in read_samples(place, ids, unsafe):
        missing = [name for name in columns if name not in sample]
        if missing:
            raise ValueError(f"there is no column {missing[0]!r}: there are {', '.join(sample)}")
        chosen = {name: sample[name] for name in columns} if columns else sample
        yield Shown(
            number,
            {
                name: describe(value, full, _Images(images, f"{number:08}.{name}"))
                for name, value in chosen.items()
            },
        )


@dataclass(slots=True)
class _Images:
    """Where the images of one value are saved."""

    folder: Path | None = None
    name: str = ""
    count: int = 0

    def save(self, image: Any) -> str | None:
        if self.folder is None:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = re.sub(r"[^\w.-]", "_", self.name)
        number = f".{self.count}" if self.count else ""
        self.count += 1
        # What was JPEG stays so; anything else is kept without loss where PNG can.
        kind = "jpg" if image.format == "JPEG" else "png" if image.mode in _PNG_MODES else "tiff"
        path = self.folder / f"{stem}{number}.{kind}"
        image.save(path, **({"quality": "keep"} if kind == "jpg" else {}))
        return str(path)


_PNG_MODES = {"1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"}


def describe(value: Any, full: bool = False, images: _Images | None = None) -> Any:
    """A value as JSON; what JSON does not have is an object that describes it.

    Args:
        value: A sample's value.
        full: Whether long ones are given whole.
        images: Where images are saved.

    Example:
        >>> describe(np.arange(6).reshape(2, 3))
        {'ndarray': 'int64', 'shape': [2, 3], 'min': 0, 'max': 5, 'mean': 2.5}
        >>> describe(b"abc"), describe(7), describe(float("nan"))
        ({'bytes': 3, 'hex': '616263'}, 7, 'nan')
    """
    images = images or _Images()
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        long = len(value) > _MOST_TEXT and not full
        return {"str": len(value), "begin": value[:_MOST_TEXT]} if long else value
    if isinstance(value, (bytes, bytearray)):
        return _bytes(bytes(value), full)
    if isinstance(value, np.generic):
        return describe(value.item(), full, images)
    if isinstance(value, np.ndarray):
        return _array(value, full)
    if isinstance(value, dict):
        return {str(name): describe(one, full, images) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        if len(value) > _MOST_ITEMS and not full:
            begin = [describe(one, full, images) for one in value[:_MOST_ITEMS]]
            return {"list": len(value), "begin": begin}
        return [describe(one, full, images) for one in value]
    if type(value).__module__.startswith("PIL."):
        about = {"image": value.format, "mode": value.mode, "size": list(value.size)}
        saved = images.save(value)
        return about if saved is None else {**about, "saved": saved}
    text = str(value) if type(value).__name__ == "Decimal" else repr(value)
    return {type(value).__name__: text if full else text[:_MOST_TEXT]}


def _bytes(value: bytes, full: bool) -> dict[str, Any]:
    if full:
        return {"bytes": len(value), "base64": base64.b64encode(value).decode()}
    return {"bytes": len(value), "hex": value[:_MOST_BYTES].hex()}


def _array(value: np.ndarray[Any, Any], full: bool) -> dict[str, Any]:
    about: dict[str, Any] = {"ndarray": str(value.dtype), "shape": list(value.shape)}
    if value.size and value.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            numbers = value.astype(np.float64) if value.dtype.kind == "f" else value
            about |= {
                "min": describe(numbers.min()),
                "max": describe(numbers.max()),
                "mean": describe(float(numbers.mean())),
            }
    if full:
        about["values"] = describe(value.tolist(), full=True)
    return about
