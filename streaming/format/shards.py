"""All shards of several streams as one list of readers, which are made when they are asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, overload

from streaming.format.index import Index
from streaming.format.reader import Reader

__all__ = ["ShardList"]


class ShardList(Sequence[Reader]):
    """The readers of the shards of streams, one stream after another.

    A reader is made when it is first asked for, and is the same each time. A pickled list arrives
    without readers.

    Args:
        streams: Each stream's index and the directory of its shards.
        allow_unsafe_types: Whether encodings that can run code, such as ``pkl``, may be read.
    """

    def __init__(
        self, streams: Sequence[tuple[Index, str]], allow_unsafe_types: bool = False
    ) -> None:
        self._streams = list(streams)
        self._allow_unsafe_types = allow_unsafe_types
        self._starts = [0]
        for index, _ in self._streams:
            self._starts.append(self._starts[-1] + len(index))
        self._made: dict[int, Reader] = {}

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, at: int) -> Reader: ...

    @overload
    def __getitem__(self, at: slice) -> list[Reader]: ...

    def __getitem__(self, at: int | slice) -> Reader | list[Reader]:
        """Return the reader of a shard, or the list of readers of several.

        Raises:
            IndexError: No shard has the number.
        """
        if isinstance(at, slice):
            return [self._reader(i) for i in range(*at.indices(len(self)))]
        try:
            return self._made[at]
        except KeyError:
            return self._reader(range(len(self))[at])

    def _reader(self, shard: int) -> Reader:
        reader = self._made.get(shard)
        if reader is None:
            stream = bisect_right(self._starts, shard) - 1
            index, path = self._streams[stream]
            made = index.reader(shard - self._starts[stream], path, None, self._allow_unsafe_types)
            # Of two threads that make one at the same time, both get the first.
            reader = self._made.setdefault(shard, made)
        return reader

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}

    def __repr__(self) -> str:
        return f"ShardList of {len(self)} shards in {len(self._streams)} streams"
