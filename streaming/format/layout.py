"""Where things are in a shard, and how its files are called."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streaming.format.errors import FormatError

__all__ = ["MAX_SHARD_BYTES", "header", "offset_table", "shard_name"]

MAX_SHARD_BYTES = 2**32 - 1
"""Largest shard, in bytes: its offsets are unsigned integers of 32 bits."""


def shard_name(number: int, format: str) -> str:
    """The name of a shard's file.

    Example:
        >>> shard_name(12, "mds")
        'shard.00012.mds'
    """
    return f"shard.{number:05}.{format}"


def offset_table(samples: Sequence[bytes], first: int) -> bytes:
    """The beginning of a shard: its number of samples, and where each begins and the last ends.

    Args:
        samples: The encoded samples.
        first: Where the first one begins, in bytes.

    Returns:
        n + 2 unsigned integers of 32 bits, little-endian.

    Example:
        >>> offset_table([b"abc", b"de"], 16).hex(" ", 4)
        '02000000 10000000 13000000 15000000'
    """
    count = len(samples)
    table = np.empty(count + 2, np.int64)
    table[0] = count
    table[1] = first
    table[2:] = np.fromiter(map(len, samples), np.int64, count)
    np.cumsum(table[1:], out=table[1:])
    if table[-1] > MAX_SHARD_BYTES:
        raise FormatError(f"a shard of {table[-1]} bytes; offsets of 32 bits can't reach its end")
    return table.astype("<u4").tobytes()


def header(config: Mapping[str, Any]) -> bytes:
    """A shard's configuration as its header holds it."""
    return json.dumps(config, sort_keys=True).encode()
