"""Reading an index whose shards are described alike, as nearly all are, without parsing each.

The first shard's JSON, with gaps for what differs from shard to shard, is the pattern that all
others have to match. Whatever does not match is left to the parser that checks everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.format.checks import FILE_FIELDS, check_basename, check_config
from streaming.format.columns import Digests, FileColumn, Names
from streaming.format.errors import FormatError

__all__ = ["RegularShards", "read_regular"]

_HEAD = re.compile(rb'\s*\{\s*("version"\s*:\s*2\s*,\s*)?"shards"\s*:\s*\[\s*')
_TAIL = re.compile(rb'\](\s*,\s*"version"\s*:\s*2)?\s*\}\s*')
_COMMA = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")
_GAPS = re.compile(
    rb'("(?:samples|bytes)"\s*:\s*)([0-9]+)'
    rb'|("basename"\s*:\s*")([^"\\]+)'
    rb'|("\w+"\s*:\s*")([0-9a-f]{8,})(?=")',
    re.ASCII,
)
_NUMBER = rb"(0|[1-9][0-9]{0,12})"
_NAME = rb"([A-Za-z0-9_.+=@/-]+)"
_FIRST_BYTES = 1 << 20
"""How much of the file the first shard may take."""
_BATCH = 1 << 14
"""Shards that are Python objects at a time."""
_SLOTS = FILE_FIELDS["csv"]

Place = tuple[str, ...]
"""Where in a shard's JSON a value stands: the keys that lead to it."""


@dataclass(frozen=True, slots=True, eq=False)
class RegularShards:
    """The shards of an index that are described alike."""

    schema: dict[str, Any]
    """What they have in common: their JSON without samples and files."""
    samples: NDArray[np.int64]
    files: dict[str, FileColumn]
    """Their files, by the file's field."""


def read_regular(data: bytes) -> RegularShards | None:
    """Read an index file, if all is right with it and its shards are described alike.

    Args:
        data: The file's content.

    Returns:
        The shards; None if the file has to be looked at more closely.

    Example:
        >>> read_regular(b'{"version": 2, "shards": []}') is None
        True
    """
    head, close = _HEAD.match(data), data.rfind(b"]")
    tail = _TAIL.fullmatch(data, close) if close >= 0 else None
    if head is None or tail is None or (head[1] is None) == (tail[1] is None):
        return None
    first = _first_shard(data, head.end())
    pattern = None if first is None else _Pattern.of(first)
    while data[close - 1 : close].isspace():
        close -= 1
    values = None if pattern is None else pattern.match_all(data, head.end(), close)
    return None if pattern is None or values is None else _check(pattern.schema, values)


def _first_shard(data: bytes, start: int) -> bytes | None:
    """The text of the first shard, if it is sound."""
    try:
        text = data[start : start + _FIRST_BYTES].decode("latin-1")
        shard, end = json.JSONDecoder().raw_decode(text)
        check_config(shard, tuple(FILE_FIELDS))
    except (ValueError, RecursionError):
        return None
    return text[:end].encode() if text[:end].isascii() else None


@dataclass(frozen=True, slots=True, eq=False)
class _Pattern:
    """The pattern that every shard of an index has to match."""

    first: bytes
    """The text that it was made of."""
    parts: bytes
    """The regular expression."""
    literal: int
    """Bytes of a match that are in no gap."""
    ends: tuple[bytes, bytes]
    """What precedes the first gap, and what follows the last one."""
    places: list[Place]
    """Where the values of the gaps stand."""
    schema: dict[str, Any]

    @classmethod
    def of(cls, first: bytes) -> _Pattern | None:
        """Make the pattern of a shard's JSON; None if its gaps can't be told."""
        parts, marked = b"", b""
        start = first
        marks: list[Any] = []
        at = literal = 0
        for match in _GAPS.finditer(first):
            key, value = (match[each] or match[each + 2] or match[each + 4] for each in (1, 2))
            before = first[at : match.start()] + key
            mark: Any = 10**15 + len(marks) if match[1] else f"<{len(marks)}>"
            gap = _NUMBER if match[1] else _NAME if match[3] else b"([0-9a-f]{%d})" % len(value)
            parts += re.escape(before) + gap
            marked += before + str(mark).encode()
            start = start if marks else before
            marks.append(mark)
            literal += len(before)
            at = match.end()
        parts += re.escape(first[at:])
        # Where each gap stands is told by a mark in it that nothing else looks like.
        found = dict(_leaves(json.loads(marked + first[at:])))
        if any(mark not in found for mark in marks):
            return None
        shard = json.loads(first)
        places = [found[mark] for mark in marks]
        if sorted(places) != sorted(_places_of(shard)):
            return None
        schema = {key: shard[key] for key in shard if key != "samples" and key not in _SLOTS}
        literal += len(first) - at
        return cls(first, parts, literal, (start, first[at:]), places, schema)

    def match_all(self, data: bytes, start: int, end: int) -> dict[Place, list[Any]] | None:
        """The values at each place, in batches; None if anything else stands in the text."""
        after = start + len(self.first)
        comma = _COMMA.match(data, after, end)
        between = comma[0] if comma else b""
        first = re.compile(self.parts).fullmatch(self.first)
        if first is None:
            return None
        columns: list[list[Any]] = [[] for _ in self.places]
        self._add(columns, [first.groups()])
        following = re.compile(re.escape(between) + self.parts)
        while after < end:
            stop = self._stop(data, after, end, between)
            rows = following.findall(data, after, stop)
            if not rows:
                return None
            after += len(rows) * (len(between) + self.literal) + self._add(columns, rows)
            # Matches that add up to the whole text leave nothing between them.
            if after != stop:
                return None
        return dict(zip(self.places, columns, strict=True))

    def _stop(self, data: bytes, start: int, end: int, between: bytes) -> int:
        """Where a shard ends, some thousand shards from `start` on."""
        joint = self.ends[1] + between + self.ends[0]
        found = data.find(joint, start + _BATCH * len(self.first), end)
        return end if found < 0 else found + len(self.ends[1])

    def _add(self, columns: list[list[Any]], rows: Sequence[tuple[bytes, ...]]) -> int:
        """Add rows to the columns; return the bytes that they take."""
        taken = 0
        for column, place, values in zip(
            columns, self.places, zip(*rows, strict=True), strict=True
        ):
            joined = b"".join(values)
            taken += len(joined)
            if place[-1] in ("samples", "bytes"):
                column.append(np.array(list(map(int, values)), np.int64))
            elif place[-1] == "basename":
                column.append([value.decode() for value in values])
            else:
                digests = bytes.fromhex(joined.decode()) if len(values[0]) % 2 == 0 else b""
                column.append(np.frombuffer(digests, np.uint8).reshape(len(values), -1))
        return taken


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Any, Place]]:
    """The scalars in a JSON object, those in lists left out, and where they stand."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _leaves(inner, (*place, key))
        elif not isinstance(inner, list):
            yield inner, (*place, key)


def _places_of(shard: dict[str, Any]) -> list[Place]:
    """Where the number of samples stands, and all that is said of files."""
    places: list[Place] = [("samples",)]
    for slot in _SLOTS:
        info = shard.get(slot)
        if info is not None:
            places += [(slot, key) for key in info if key != "hashes"]
            places += [(slot, "hashes", algo) for algo in info["hashes"]]
    return places


def _check(schema: dict[str, Any], values: dict[Place, list[Any]]) -> RegularShards | None:
    """Check what the pattern does not, and put it in columns."""
    fields = FILE_FIELDS[schema["format"]]
    samples: NDArray[np.int64] = np.concatenate(values[("samples",)])
    if samples.max() >= 1 << 32:
        return None
    files = {}
    for slot in fields:
        if (slot, "basename") not in values:
            files[slot] = FileColumn.empty(len(samples))
            continue
        sizes: NDArray[np.int64] = np.concatenate(values[slot, "bytes"])
        if sizes.max() >= (1 << 32 if slot == "raw_data" else 1 << 40):
            return None
        if slot == fields[0] and (sizes < 4 * (samples + 2)).any():
            return None
        names = Names(list(chain.from_iterable(values[slot, "basename"])))
        if not _are_safe(names):
            return None
        digests = {
            place[2]: np.concatenate(rows)
            for place, rows in values.items()
            if place[:2] == (slot, "hashes")
        }
        if any(not rows.size for rows in digests.values()):
            return None
        files[slot] = FileColumn.of(names, sizes, Digests.of(digests, len(samples)))
    return RegularShards(schema, samples, files)


def _are_safe(names: Names) -> bool:
    """Whether all names are safe; in a run that counts up they are if its first one is."""
    try:
        for name in names.firsts():
            check_basename(name)
    except FormatError:
        return False
    return True
