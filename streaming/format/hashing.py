"""Hashes of files: every fixed-length algorithm of :mod:`hashlib`, and the xxHash family.

Example:
    >>> get_hash("xxh3_64", b"abc")
    '78af5f94892f3950'
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import xxhash

from streaming.format.errors import FormatError

__all__ = ["Hasher", "get_hash", "get_hashes", "hasher", "is_hash"]


class Hasher(Protocol):
    """A hash that is being computed."""

    def update(self, data: Any, /) -> None:
        """Take in more bytes."""

    def hexdigest(self) -> str:
        """Return the digest of what was taken in so far, in lower-case hex."""


def _collect() -> dict[str, Callable[[], Hasher]]:
    # SHAKE digests have no length of their own, so that nothing could be compared with them.
    # Integrity, not security: md5 must work on machines whose policy forbids it for signatures.
    found: dict[str, Callable[[], Hasher]] = {
        name: partial(hashlib.new, name, usedforsecurity=False)
        for name in hashlib.algorithms_guaranteed
        if not name.startswith("shake_")
    }
    for name in ("xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128"):
        found[name] = getattr(xxhash, name)
    return found


_HASHES = _collect()


def get_hashes() -> set[str]:
    """Return the names of all supported hash algorithms."""
    return set(_HASHES)


def is_hash(algo: str) -> bool:
    """Tell whether ``algo`` names a supported hash algorithm.

    Example:
        >>> is_hash("sha256"), is_hash("crc8")
        (True, False)
    """
    return algo in _HASHES


def hasher(algo: str) -> Hasher:
    """Begin a hash that takes its data in pieces.

    Raises:
        FormatError: No such algorithm.

    Example:
        >>> h = hasher("sha1")
        >>> h.update(b"a"); h.update(b"bc")
        >>> h.hexdigest() == get_hash("sha1", b"abc")
        True
    """
    make = _HASHES.get(algo)
    if make is None:
        raise FormatError(
            f"{algo!r} is not a hash algorithm that can be used here; choose among "
            f"{', '.join(sorted(_HASHES))}."
        )
    return make()


def get_hash(algo: str, data: bytes) -> str:
    """Return the hex digest of ``data``.

    Raises:
        FormatError: No such algorithm.
    """
    running = hasher(algo)
    running.update(data)
    return running.hexdigest()
