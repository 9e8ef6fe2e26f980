"""An index's files as columns: names that count up, sizes, digests."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, count
from operator import eq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.format.info import FileInfo

__all__ = ["Digests", "FileColumn", "Names"]

# The longest run of digits in a name, the last if there are several, counts the shards.
_DIGITS = re.compile(r"\d+", re.ASCII)


_Run = tuple[str, int, int, str]
"""What precedes the counter, the counter of the first name, its digits, and what follows it."""


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
        self._by_shape: dict[tuple[str, str, bool], list[tuple[int, int, int]]] | None = None
        self._starts: list[int] = []
        self._runs: list[_Run | None] = []
        if self._count_up(names):
            return
        expected: str | None = None
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
            expected = f"{prefix}{number:0{width}d}{suffix}" if width else None

    def _count_up(self, names: Sequence[str | None]) -> bool:
        """Take all names as one run, if that is what they are."""
        if not names or names[0] is None:
            return False
        prefix, number, width, suffix = run = _split(names[0])
        pattern = f"{prefix.replace('%', '%%')}%0{width}d{suffix.replace('%', '%%')}"
        if not width or not all(map(eq, names, map(pattern.__mod__, count(number)))):
            return False
        self._starts, self._runs = [0], [run]
        return True

    @classmethod
    def from_json(cls, value: Any) -> Names:
        """Make names of what :meth:`to_json` gave."""
        names = cls([])
        names._len, names._starts, runs = value
        names._runs = [None if run is None else tuple(run) for run in runs]
        return names

    def to_json(self) -> Any:
        """What there is to keep of the names, for :meth:`from_json`."""
        return [self._len, self._starts, self._runs]

    def firsts(self) -> Iterator[str]:
        """The first name of each run."""
        for start in self._starts:
            name = self[start]
            if name is not None:
                yield name

    def find(self, name: str) -> int | None:
        """The place of a name, or None if it is not among them."""
        by_shape = self._by_shape
        if by_shape is None:
            by_shape = {}
            for start, end, run in zip(
                self._starts, [*self._starts[1:], self._len], self._runs, strict=True
            ):
                if run is not None:
                    shape = (run[0], run[3], run[2] > 0)
                    by_shape.setdefault(shape, []).append((run[1], start, end))
            for runs in by_shape.values():
                runs.sort()
            self._by_shape = by_shape
        prefix, number, _, suffix = _split(name)
        for shape, counter in (((prefix, suffix, True), number), ((name, "", False), 0)):
            runs = by_shape.get(shape, [])
            # The last run that begins by the counter has the name, unless names come twice.
            for first, start, end in reversed(runs[: bisect_right(runs, (counter, self._len))]):
                at = start + counter - first
                if at < end and self[at] == name:
                    return at
        return None

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

    def folders(self) -> set[str]:
        """The folders of the names; costs time in proportion to runs where only files count up.

        Example:
            >>> sorted(Names(["a/0.mds", "a/1.mds", None, "b.mds"]).folders())
            ['', 'a']
        """
        found = set()
        for start, end, run in zip(
            self._starts, [*self._starts[1:], self._len], self._runs, strict=True
        ):
            if run is None:
                continue
            names = range(start, end) if "/" in run[3] else range(start, start + 1)
            found |= {str(self[at]).rpartition("/")[0] for at in names}
        return found


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

    While it grows it holds no dictionaries, which by the million would keep Python's garbage
    collector busy, as long as all have the same algorithms.

    Example:
        >>> digests = Digests()
        >>> digests.append({"md5": "00ff"})
        >>> digests.append({"md5": "1234"})
        >>> digests.pack()
        >>> digests[1]
        {'md5': '1234'}
    """

    def __init__(self) -> None:
        self._len = 0
        self._columns: dict[str, list[str]] = {}
        self._packed: dict[str, NDArray[np.uint8]] = {}
        self._plain: list[dict[str, str]] | None = None

    @classmethod
    def of(cls, packed: dict[str, NDArray[np.uint8]], length: int) -> Digests:
        """Make a list of digests that are rows of bytes, by their algorithm."""
        digests = cls()
        digests._len, digests._packed = length, packed
        digests._columns = {algo: [] for algo in packed}
        return digests

    @classmethod
    def from_json(cls, value: Any, packed: dict[str, NDArray[np.uint8]]) -> Digests:
        """Make digests of what :meth:`to_json` and :attr:`packed` gave."""
        digests = cls()
        digests._len, digests._columns, digests._plain = value
        digests._packed = packed
        return digests

    def to_json(self) -> Any:
        """What there is to keep, apart from :attr:`packed`."""
        return [self._len, self._columns, self._plain]

    @property
    def packed(self) -> dict[str, NDArray[np.uint8]]:
        """The digests that are rows of bytes, by their algorithm."""
        return self._packed

    def first_without(self, algo: str, start: int = 0) -> int | None:
        """The first place from `start` on whose dictionary lacks an algorithm; None if all have it.

        Where all have the same algorithms, and lack it, that is `start`.
        """
        if self._plain is None:
            return start if start < self._len and algo not in self._columns else None
        return next((at for at in range(start, self._len) if algo not in self._plain[at]), None)

    def append(self, digests: dict[str, str]) -> None:
        """Add a dictionary."""
        if not self._len:
            self._columns = {algo: [] for algo in digests}
        if self._plain is None and digests.keys() != self._columns.keys():
            self._plain = [self[at] for at in range(self._len)]
        self._len += 1
        if self._plain is not None:
            self._plain.append(dict(digests))
        else:
            for algo, column in self._columns.items():
                column.append(digests[algo])

    def pack(self) -> None:
        """Keep what is regular in less space; nothing can be added after it."""
        if self._plain is not None:
            self._columns = {}
        for algo, column in list(self._columns.items()):
            packed = _pack(column)
            if packed is not None:
                self._packed[algo] = packed
                self._columns[algo] = []

    def __getitem__(self, at: int) -> dict[str, str]:
        if self._plain is not None:
            return dict(self._plain[at])
        return {
            algo: self._packed[algo][at].tobytes().hex() if algo in self._packed else column[at]
            for algo, column in self._columns.items()
        }


def _pack(digests: list[str]) -> NDArray[np.uint8] | None:
    """Return hex digests of one length as rows of bytes, or None if they are anything else."""
    length = len(digests[0])
    if length % 2 or any(len(digest) != length for digest in digests):
        return None
    if not _HEX.issuperset(chain.from_iterable(digests)):
        return None
    return np.frombuffer(bytes.fromhex("".join(digests)), np.uint8).reshape(len(digests), -1)


class FileColumn:
    """One file of each shard, such as the raw one. It is filled, then packed, then read."""

    bytes: NDArray[np.int64]
    """Sizes in bytes, 0 where there is no file."""
    names: Names
    digests: Digests

    def __init__(self) -> None:
        self._listed: list[str | None] = []
        self._sizes: list[int] = []
        self.digests = Digests()

    @classmethod
    def of(cls, names: Names, sizes: NDArray[np.int64], digests: Digests) -> FileColumn:
        """Make a column of what it consists of."""
        column = cls()
        column.names, column.bytes, column.digests = names, sizes, digests
        return column

    @classmethod
    def empty(cls, length: int) -> FileColumn:
        """Make a column of shards that have no such file."""
        sizes = np.zeros(length, np.int64)
        return cls.of(Names([None] * length), sizes, Digests.of({}, length))

    def __len__(self) -> int:
        return len(self._listed)

    def first_without(self, algo: str) -> int | None:
        """The first shard whose file has no hash of an algorithm, or None if all have."""
        at = self.digests.first_without(algo)
        while at is not None and self.names[at] is None:
            at = self.digests.first_without(algo, at + 1)
        return at

    def append(self, name: str | None, size: int, digests: dict[str, str]) -> None:
        """Add a file; None as its name if the shard has none."""
        self._listed.append(name)
        self._sizes.append(size)
        self.digests.append(digests)

    def pack(self) -> None:
        """End the filling."""
        self.bytes = np.array(self._sizes, np.int64)
        self.names = Names(self._listed)
        self.digests.pack()
        self._listed, self._sizes = [], []

    def folders(self) -> set[str]:
        """The folders of the files."""
        return self.names.folders()

    def __getitem__(self, at: int) -> FileInfo | None:
        name = self.names[at]
        if name is None:
            return None
        return FileInfo(name, int(self.bytes[at]), self.digests[at])
