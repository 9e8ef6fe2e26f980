"""Columns of strings that are nearly arithmetic, as an index has them: names and hex digests."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

__all__ = ["Digests", "Names"]

# The longest run of digits in a name, the last if there are several, counts the shards.
_DIGITS = re.compile(r"\d+", re.ASCII)


class Names:
    """A list of names, kept as few counted runs where consecutive names only count up.

    Args:
        names: The names; None where there is none.

    Example:
        >>> names = Names([f"shard.{i:05}.mds" for i in range(1000)])
        >>> names[7], len(names), names.num_runs
        ('shard.00007.mds', 1000, 1)
    """

    def __init__(self, names: Sequence[str | None]) -> None:
        self._len = len(names)
        self._starts: list[int] = []
        self._runs: list[tuple[str, int, int, str] | None] = []
        expected = ""
        prefix, number, width, suffix = "", 0, 0, ""
        previous: str | None = ""
        for at, name in enumerate(names):
            if name is not None and name == expected:
                pass
            elif name is None and previous is None:
                continue
            else:
                prefix, number, width, suffix = ("", 0, 0, "") if name is None else _split(name)
                self._starts.append(at)
                self._runs.append(None if name is None else (prefix, number, width, suffix))
            previous = name
            number += 1
            expected = f"{prefix}{number:0{width}d}{suffix}" if width else ""

    def __len__(self) -> int:
        return self._len

    def __getitem__(self, at: int) -> str | None:
        run = bisect_right(self._starts, at) - 1
        parts = self._runs[run]
        if parts is None:
            return None
        prefix, number, width, suffix = parts
        if not width:
            return prefix
        return f"{prefix}{number + at - self._starts[run]:0{width}d}{suffix}"

    @property
    def num_runs(self) -> int:
        """How many runs the names are."""
        return len(self._runs)


def _split(name: str) -> tuple[str, int, int, str]:
    """Return what precedes a name's counter, the counter, its digits, and what follows it."""
    best = None
    for match in _DIGITS.finditer(name):
        if best is None or len(match[0]) >= len(best[0]):
            best = match
    if best is None or len(best[0]) > 18:
        return name, 0, 0, ""
    return name[: best.start()], int(best[0]), len(best[0]), name[best.end() :]


_HEX = frozenset("0123456789abcdef")


class Digests:
    """A list of dictionaries from hash algorithm to hex digest.

    Args:
        digests: The dictionaries; None where there is no file.

    Example:
        >>> Digests([{"md5": "00ff"}, {"md5": "1234"}])[1]
        {'md5': '1234'}
    """

    def __init__(self, digests: Sequence[dict[str, str] | None]) -> None:
        self._packed: dict[str, NDArray[np.uint8]] | None = None
        self._plain: list[dict[str, str]] | None = None
        algos = list(digests[0] or ()) if digests else []
        if all(found is not None and list(found) == algos for found in digests):
            columns = {algo: _pack([d[algo] for d in digests if d]) for algo in algos}
            packed = {algo: column for algo, column in columns.items() if column is not None}
            if len(packed) == len(columns):
                self._packed = packed
        elif not any(digests):
            self._packed = {}
        if self._packed is None:
            self._plain = [found or {} for found in digests]

    def __getitem__(self, at: int) -> dict[str, str]:
        if self._plain is not None:
            return dict(self._plain[at])
        assert self._packed is not None
        return {algo: column[at].tobytes().hex() for algo, column in self._packed.items()}


def _pack(digests: Sequence[str]) -> NDArray[np.uint8] | None:
    """Return hex digests of one length as rows of bytes, or None if they are anything else."""
    length = len(digests[0])
    if length % 2 or any(len(digest) != length for digest in digests):
        return None
    if not _HEX.issuperset(chain.from_iterable(digests)):
        return None
    return np.frombuffer(bytes.fromhex("".join(digests)), np.uint8).reshape(len(digests), -1)
