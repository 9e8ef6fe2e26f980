"""Writing a file whose content is in pieces, without putting them together first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import BufferedWriter

__all__ = ["write_pieces"]

_AT_ONCE = 512
"""Pieces in one call of the system; Linux and macOS take 1024 at most."""


def write_pieces(file: BufferedWriter, pieces: Sequence[bytes]) -> None:
    """Write pieces one after another.

    Putting together a shard of 64 MB takes as long as writing it to the page cache does, because
    the memory for it has to be had first.

    Args:
        file: A file that nothing else has been written to.
        pieces: The pieces.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     write_pieces(file.file, [b"one", b"", b"two"])
        ...     os.path.getsize(file.name)
        6
    """
    if not hasattr(os, "writev"):  # Windows
        file.writelines(pieces)
        return
    file.flush()
    descriptor = file.fileno()
    for start in range(0, len(pieces), _AT_ONCE):
        part = pieces[start : start + _AT_ONCE]
        size = sum(map(len, part))
        written = os.writev(descriptor, part)
        if written < size:  # interrupted, or more than a call takes: what is left may be large
            rest = memoryview(b"".join(part))[written:]
            while rest:
                rest = rest[os.write(descriptor, rest) :]
