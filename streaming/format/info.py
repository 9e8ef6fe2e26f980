"""What the index says of one file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file of a shard, as its index describes it.

    Example:
        >>> FileInfo("shard.00000.mds", 977, {}).bytes
        977
    """

    basename: str
    """Path below the stream's directory and split, with forward slashes."""
    bytes: int
    """Size of the file in bytes."""
    hashes: dict[str, str]
    """Hash algorithm to hex digest of the file's content."""
