"""A source of things that are listed beforehand, each loaded where it is converted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streaming.convert.source import Part, Sample, Source, Unreadable

__all__ = ["Items", "shuffled"]

Load = Callable[[Any], Iterable["Sample | Unreadable"]]


class Items(Source):
    """Items and a function that loads the samples of one.

    Args:
        name: What they are, for messages.
        columns: The samples' encodings.
        items: The items: tuples of numbers and strings, in order.
        load: Gives an item's samples: one, several, or none. It pickles.
        sizes: How much there is to read for each, in bytes.
        part_bytes: What a part reads, about.

    Raises:
        ValueError: If there are no items.

    Example:
        >>> source = Items("words", {"word": "str"}, ["a", "bc"], lambda item: [{"word": item}])
        >>> [list(source.read(part)) for part in source.parts()]
        [[{'word': 'a'}, {'word': 'bc'}]]
    """

    def __init__(
        self,
        name: str,
        columns: Mapping[str, str],
        items: Sequence[Any],
        load: Load,
        *,
        sizes: Sequence[int] | None = None,
        part_bytes: int = 1 << 27,
    ) -> None:
        if not items:
            raise ValueError(f"there are no {name}")
        self.name, self._columns, self.items, self.load = name, dict(columns), list(items), load
        self.sizes = np.asarray(sizes if sizes is not None else [1] * len(items), np.int64)
        self.part_bytes = part_bytes

    def describe(self) -> str:
        """What they are, and how many."""
        return f"{self.name}, {len(self.items):,} items"

    def columns(self) -> dict[str, str]:
        """The samples' encodings."""
        return dict(self._columns)

    def parts(self) -> Sequence[Part]:
        """Ranges of items."""
        number = (np.cumsum(self.sizes) - self.sizes) // self.part_bytes
        starts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist()]
        stops = [*starts[1:], len(self.items)]
        return [
            Part(
                number,
                f"{self.name}, items {start} to {stop - 1}",
                (start, stop),
                bytes=int(self.sizes[start:stop].sum()),
            )
            for number, (start, stop) in enumerate(zip(starts, stops, strict=True))
        ]

    def read(self, part: Part) -> Iterator[Sample | Unreadable]:
        """The samples of a part's items."""
        start, stop = part.spec
        for item in self.items[start:stop]:
            yield from self.load(item)

    def fingerprint(self) -> str:
        """What tells these items from others."""
        digest = hashlib.sha256(super().fingerprint().encode())
        for item in self.items:
            digest.update(repr(item).encode())
        return digest.hexdigest()


def shuffled(items: Sequence[Any], seed: int = 0) -> list[Any]:
    """The items in an order that looks random, and is the same each time.

    Args:
        items: The items.
        seed: Another one gives another order.

    Example:
        >>> sorted(shuffled("abc")) == list("abc") and shuffled("abc") == shuffled("abc")
        True
    """
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(items))
    return [items[at] for at in order.tolist()]
