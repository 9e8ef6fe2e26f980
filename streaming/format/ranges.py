"""Reading samples of a shard that is elsewhere, by ranges of its files.

Which bytes hold given samples: the table of offsets says it, of which the part is read that is
needed, or nothing but its first numbers where all samples have one size.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.format.errors import CorruptShardError
from streaming.format.info import FileInfo
from streaming.format.mapping import OpenFile, Positioned
from streaming.format.opening import Opened, read_offsets
from streaming.format.reader import Reader

__all__ = ["Ranged", "RangedOffsets", "ranged_reader"]

Ints = NDArray[np.int64]

TABLE_BYTES = 1 << 19
"""Tables of offsets are read whole up to this size."""
_HEAD = 8
"""Bytes of a table that hold the number of samples and the first offset."""


class Ranged(Positioned):
    """A file elsewhere; its slices are fetched, unless they have been asked for before."""

    verify: Callable[[], None] | None = None
    """Called once before slices are given, unless it is known that the file has the right size."""

    def ask(self, begins: Ints, ends: Ints) -> None:
        """Begin to fetch some spans."""
        raise NotImplementedError


class RangedOffsets:
    """Where samples begin, and where the last one ends; as an array that is read when indexed.

    Args:
        table: The file with the table of offsets.
        reader: The shard's reader.
        path: The file's name in errors.
        first: The least that the first offset can be.
        last: What the last offset has to be.
    """

    def __init__(self, table: Ranged, reader: Reader, path: str, first: int, last: int) -> None:
        self._table, self._path = table, path
        self._samples = reader.samples
        self._first, self._last = first, last
        self._min_bytes = reader._min_bytes()
        self._same_size = reader._has_fixed_size()
        self._bytes = 4 * (reader.samples + 2)
        self._lock = threading.Lock()
        self._all: Ints | None = None
        self._is_checked = False
        if self._same_size:
            # Samples of one size are where they have to be, if the file has the right size.
            table.verify = self._check_head

    def ask(self, at: Ints, then: Callable[[Ints, Ints], None]) -> None:
        """Begin to fetch what says where samples are, and go on when that is known.

        Args:
            at: The samples.
            then: Called with where each begins and ends, in this thread where it is known without
                asking, else in another.
        """
        if self._same_size:
            begins = self._computed(at)
            then(begins, begins + self._min_bytes)
        elif self._all is not None:
            then(self._all[at], self._all[at + 1])
        else:
            threading.Thread(
                target=self._find, args=(at, then), name="streaming-offsets", daemon=True
            ).start()

    def _find(self, at: Ints, then: Callable[[Ints, Ints], None]) -> None:
        try:
            found = self[np.concatenate([at, at + 1])]
        except Exception:
            return  # whoever needs the samples reads the table itself, and raises
        then(found[: len(at)], found[len(at) :])

    def __getitem__(self, at: Ints) -> Ints:
        """The offsets at some places, from 0 to the number of samples.

        Raises:
            CorruptShardError: If the table says anything impossible.
            StoreError: If it can't be had.
        """
        if self._same_size:
            return self._computed(at)
        if self._all is not None:
            return self._all[at]
        return self._whole()[at] if self._bytes <= TABLE_BYTES else self._part(at)

    def item(self, at: int) -> int:
        """One of them."""
        return int(self[np.array([at])][0])

    def _computed(self, at: Ints) -> Ints:
        return self._last - (self._samples - at) * self._min_bytes

    def _check_head(self) -> None:
        if self._is_checked:
            return
        count, first = np.frombuffer(self._table[:_HEAD], "<u4").tolist()
        if count != self._samples:
            raise CorruptShardError(
                f"{self._path} has {count} samples where the index says {self._samples}"
            )
        if first < self._first or (self._same_size and first != int(self._computed(np.int64(0)))):
            raise CorruptShardError(
                f"{self._path}: the first sample is said to be at byte {first}, which is not where "
                f"it can be"
            )
        self._is_checked = True

    def _whole(self) -> Ints:
        with self._lock:
            if self._all is None:
                table = OpenFile(self._table[: self._bytes], self._path, None)
                checks = self._samples, self._first, self._last, self._min_bytes, self._same_size
                self._all = read_offsets(table, *checks).astype(np.int64)
        return self._all

    def _part(self, at: Ints) -> Ints:
        self._check_head()
        places = np.unique(at)
        begins = 4 * (places + 1)
        self._table.ask(begins, begins + 4)
        spans = zip(begins.tolist(), (begins + 4).tolist(), strict=True)
        data = b"".join([self._table[begin:end] for begin, end in spans])
        found = np.frombuffer(data, "<u4").astype(np.int64)
        wrong = (found < self._first) | (found > self._last)
        wrong[1:] |= np.diff(found) < np.diff(places) * self._min_bytes
        if wrong.any():
            place = int(places[wrong.argmax()])
            raise CorruptShardError(
                f"{self._path}: sample {place} is said to be at byte {found[wrong.argmax()]}, "
                "which is not where it can be"
            )
        return found[np.searchsorted(places, at)]


def ranged_reader(
    reader: Reader, open_ranged: Callable[[FileInfo], Ranged]
) -> tuple[Reader, Callable[[Ints], None]]:
    """A reader of a shard that is elsewhere.

    Args:
        reader: A reader of it, which stays as it is.
        open_ranged: Gives one of its files.

    Returns:
        The reader, and what begins to fetch samples by their numbers, so that reading them does not
        wait for one after the other.

    Raises:
        FormatError: If the shard's columns can't be read.
    """
    infos = [raw for raw, _ in reader.file_pairs]
    data = open_ranged(infos[-1])
    table = data if len(infos) == 1 else open_ranged(infos[0])
    path = reader.path_of(infos[0])
    offsets = RangedOffsets(table, reader, path, reader.first_offset(), infos[-1].bytes)
    ranged = copy.copy(reader)
    ranged.bytes_read = 0
    opened: Any = Opened(OpenFile(data, reader.name, None), offsets)  # type: ignore[arg-type]
    ranged._opened = opened
    return ranged, lambda at: offsets.ask(at, data.ask)
