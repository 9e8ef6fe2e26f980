"""What nearly all sources share: that they can be read for other encodings than those inferred."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import TypeVar

from streaming.convert.source import Source

__all__ = ["RecastSource"]

Self = TypeVar("Self", bound="RecastSource")

_DEPENDENT = ("_columns", "_encoding", "_leaves", "_parsers")
"""What is cached and depends on the encodings."""


class RecastSource(Source):
    """A source that looks at which encodings are wanted, and which columns nobody needs."""

    given: Mapping[str, str] = {}
    """Encodings that the user wants, by column."""
    dropped: frozenset[str] = frozenset()
    """Columns that are left out."""

    def with_columns(self: Self, columns: Mapping[str, str], dropped: Collection[str] = ()) -> Self:
        """The same source, read for other encodings."""
        other = copy.copy(self)
        for name in _DEPENDENT:
            other.__dict__.pop(name, None)
        other.given = {**self.given, **columns}
        other.dropped = frozenset(dropped)
        return other
