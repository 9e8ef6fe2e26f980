"""`shardstream diff`: in what two data sets differ."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from streaming.cli.info import Column, columns_of
from streaming.cli.place import Place
from streaming.cli.shards import opened
from streaming.cli.transfer import ahead, default_workers

__all__ = ["Difference", "diff"]

Hashes = NDArray[np.uint64]
"""A hash of 128 bits for each sample: shape (samples, 2)."""


@dataclass(frozen=True, slots=True)
class Difference:
    """In what two data sets differ."""

    urls: tuple[str, str]
    samples: tuple[int, int]
    shards: tuple[int, int]
    formats: tuple[list[str], list[str]]
    columns_only: tuple[list[Column], list[Column]]
    """Columns that one has and the other has not, or has with another encoding."""
    compared: list[str]
    """The columns whose values were compared."""
    only: tuple[int, int]
    """How many samples one has and the other has not, repeats counted."""
    only_ids: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    """Their numbers, up to a limit."""
    moved: int = 0
    """Samples that both have, and that are not at the same number."""
    changed: list[int] = field(default_factory=list)
    """Numbers at which both have a sample, and not the same one, up to the same limit."""

    @property
    def ok(self) -> bool:
        """Whether both have the same columns, and the same samples in the same order."""
        return not (any(self.columns_only) or any(self.only) or self.moved)


def diff(
    one: Place,
    other: Place,
    *,
    limit: int = 100,
    workers: int | None = None,
    unsafe: bool = False,
) -> Difference:
    """Compare two data sets by their columns and by the content of their samples.

    How samples are put into shards, compression and hashes make no difference. If formats and
    columns are the same, samples are compared by their stored bytes; else by the values of the
    columns that have the same name.

    Args:
        one: A data set.
        other: Another one.
        limit: How many numbers of samples are listed of each kind.
        workers: How many shards are read at once.
        unsafe: Whether values are decoded whose encoding can run code.

    Returns:
        What differs. It takes 16 bytes of memory for each sample of both.

    Raises:
        FormatError: If a shard is damaged, or has such an encoding.
        StoreError: If a shard can't be fetched.
    """
    columns = [_columns(place) for place in (one, other)]
    formats = [sorted({s["format"] for s in place.index.schemas}) for place in (one, other)]
    same = columns[0] == columns[1] and formats[0] == formats[1] and len(formats[0]) == 1
    names = sorted({c.name for c in columns[0]} & {c.name for c in columns[1]})
    if not same:
        one.index.validate_safe(unsafe)
        other.index.validate_safe(unsafe)
    count = workers or default_workers()
    hashes = [_hashes(place, None if same else names, count, unsafe) for place in (one, other)]
    only = _only(*hashes)
    common = min(map(len, hashes))
    unlike = np.flatnonzero((hashes[0][:common] != hashes[1][:common]).any(axis=1))
    both = len(hashes[0]) - len(only[0])
    return Difference(
        urls=(one.url, other.url),
        samples=(one.index.num_samples, other.index.num_samples),
        shards=(len(one.index), len(other.index)),
        formats=(formats[0], formats[1]),
        columns_only=(
            [c for c in columns[0] if c not in columns[1]],
            [c for c in columns[1] if c not in columns[0]],
        ),
        compared=names,
        only=(len(only[0]), len(only[1])),
        only_ids=(only[0][:limit].tolist(), only[1][:limit].tolist()),
        moved=both - (common - len(unlike)),
        changed=unlike[:limit].tolist(),
    )


def _columns(place: Place) -> list[Column]:
    """The columns of all schemas, by name; what values take in a shard is no difference."""
    found = {Column(c.name, c.encoding) for s in place.index.schemas for c in columns_of(s)}
    return sorted(found, key=lambda c: (c.name, c.encoding))


def _hashes(place: Place, names: Sequence[str] | None, workers: int, unsafe: bool) -> Hashes:
    """Hash each sample: its stored bytes, or the values of some columns."""

    def shard_hashes(shard: int) -> Hashes:
        with opened(place, shard, unsafe or names is None) as reader:
            if names is None:
                parts = (reader.get_sample_data(at) for at in range(reader.samples))
            else:
                parts = (_canonical(reader.sample(at), names) for at in range(reader.samples))
            digests = b"".join(xxhash.xxh3_128_digest(part) for part in parts)
        return np.frombuffer(digests, np.uint64).reshape(-1, 2)

    told = partial(place.access.on_shard, f"shards of {place.url}", len(place.index))
    found = list(ahead(shard_hashes, range(len(place.index)), workers, told))
    return np.concatenate(found) if found else np.empty((0, 2), np.uint64)


def _canonical(sample: dict[str, Any], names: Sequence[str]) -> bytes:
    """The values of some columns as bytes that are the same only if the values are."""
    out = io.BytesIO()
    for name in names:
        _write(out, sample.get(name))
    return out.getvalue()


def _write(out: io.BytesIO, value: Any) -> None:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        kind, data = f"array {value.dtype} {value.shape}", value.tobytes()
    elif isinstance(value, (bytes, bytearray)):
        kind, data = "bytes", bytes(value)
    elif isinstance(value, dict):
        kind, data = "dict", _canonical(value, sorted(value)) + repr(sorted(value)).encode()
    elif isinstance(value, (list, tuple)):
        inner = io.BytesIO()
        for one in value:
            _write(inner, one)
        kind, data = f"list {len(value)}", inner.getvalue()
    elif type(value).__module__.startswith("PIL."):
        kind, data = f"image {value.mode} {value.size}", value.tobytes()
    else:
        # A surrogate that has no UTF-8 must not end the comparison.
        kind, data = type(value).__name__, repr(value).encode("utf-8", "surrogatepass")
    out.write(f"{kind} {len(data)}:".encode())
    out.write(data)


def _only(one: Hashes, other: Hashes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The samples that one has more often than the other: the last ones of each content."""
    both = np.concatenate([one, other])
    order = np.lexsort((both[:, 1], both[:, 0]))
    ranked = both[order]
    new = np.ones(len(both), bool)
    new[1:] = (ranked[1:] != ranked[:-1]).any(axis=1)
    group = np.empty(len(both), np.int64)
    group[order] = np.cumsum(new) - 1
    groups = group[: len(one)], group[len(one) :]
    size = int(new.sum())
    counts = [np.bincount(g, minlength=size) for g in groups]
    return _excess(groups[0], counts[1]), _excess(groups[1], counts[0])


def _excess(group: NDArray[np.int64], allowed: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where a group's number comes up once more than is allowed, and again after that."""
    order = np.argsort(group, kind="stable")
    ranked = group[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]) if len(ranked) else ranked
    lengths = np.diff(np.r_[starts, len(ranked)])
    nth = np.arange(len(ranked)) - np.repeat(starts, lengths)
    return np.sort(order[nth >= allowed[ranked]])
