"""Reading a stream's index, and keeping what was read: large ones are parsed once on a node."""

import hashlib
import json
import math
import os
import time
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from streaming.format.errors import FormatError
from streaming.format.index import Index
from streaming.format.mapping import is_network_device
from streaming.keep import Arrays, user_keep

LARGE = 1 << 20
"""Bytes of an index file from which on its binary form is kept: about 3,000 shards, which take 20
milliseconds to parse."""

_KIND, _ALIAS = "index-2", "index-file"
_TOGETHER = "indexes"
_MANY = 3000
"""Shards from which on small indexes are kept together for other processes: 250 kB."""
_SETTLED_S = 2.0
"""A file that was changed so long ago would show it if it were changed again."""
_TICK_S = 0.1
"""The same where times of change are the kernel's own, which ticks every few milliseconds."""


def read_index(path: str) -> Index:
    """Read an index file.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: There is none.
        FormatError: It is damaged.
    """
    began_s = time.time()
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        keep = user_keep() if found.st_size >= LARGE else None
        if keep is None:
            return Index.parse(file.read(), path)
        # Which file it is stands for its content, so that a large one need not be read at all.
        identity = _identity(path, found)
        alias = keep.find(_ALIAS, identity)
        if alias is not None:
            arrays = keep.find(_KIND, alias["digest"].tobytes().hex())
            if arrays is not None:
                return _index(arrays, path, alias["digest"].tobytes().hex())
        digest = _digest_file(file)
        index = _index(
            keep.get(_KIND, digest, partial(_read_arrays, file, path, digest)), path, digest
        )
    if began_s - max(found.st_mtime, found.st_ctime) > _settled_s(found):
        raw = np.frombuffer(bytes.fromhex(digest), np.uint8)
        keep.get(_ALIAS, identity, lambda: {"digest": raw})
    return index


def _settled_s(found: os.stat_result) -> float:
    fine = found.st_mtime_ns % 1_000_000 and found.st_ctime_ns % 1_000_000
    return _TICK_S if fine and not is_network_device(found.st_dev) else _SETTLED_S


def _identity(path: str, found: os.stat_result) -> str:
    which = os.path.realpath(path), found.st_dev, found.st_ino
    return _digest(repr((*which, found.st_size, found.st_mtime_ns, found.st_ctime_ns)).encode())


def parse_index(data: bytes, source: str, path: str) -> Index:
    """Parse an index that was fetched, unless somebody has before.

    Args:
        data: The index file's content.
        source: Its URL, for errors.
        path: The file that it is going to be.

    Raises:
        FormatError: It is damaged.
    """
    keep = user_keep() if len(data) >= LARGE else None
    if keep is None:
        return Index.parse(data, source)
    digest = _digest(data)
    arrays = keep.get(_KIND, digest, lambda: Index.parse(data, source).to_arrays())
    index = _index(arrays, source, digest)
    index.reopen = _reopen, (path, digest)
    return index


def _read_arrays(file: BinaryIO, source: str, digest: str) -> Arrays:
    file.seek(0)
    data = file.read()
    if _digest(data) != digest:
        raise FormatError(f"{source}: it was changed while it was read")
    return Index.parse(data, source).to_arrays()


def _index(arrays: Arrays, source: str, digest: str) -> Index:
    index = Index.from_arrays(arrays, source)
    index.reopen = _reopen, (source, digest)
    return index


def _reopen(source: str, digest: str) -> Index:
    """The index that another process had open, by its file's digest or, failing that, its name."""
    keep = user_keep()
    arrays = None if keep is None else keep.find(_KIND, digest)
    return read_index(source) if arrays is None else _index(arrays, source, digest)


def send_by_name(opened: Iterable[tuple[Index, str]]) -> None:
    """Have indexes sent to other processes as a name, if they are many shards together.

    Those that are large by themselves are. The others are kept together in one file for it.

    Args:
        opened: Indexes, and the files that they can be read from if what was kept is gone.
    """
    small = [(index, path) for index, path in opened if index.reopen is None]
    keep = user_keep() if sum(len(index) for index, _ in small) >= _MANY else None
    if keep is None:
        return
    described, pieces, at = [], [], 0
    for index, _ in small:
        columns = {}
        for name, array in index.to_arrays().items():
            piece = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            columns[name] = (array.dtype.str, array.shape, at)
            pieces += [piece, np.zeros(-len(piece) % 8, np.uint8)]
            at += len(piece) + len(pieces[-1])
        described.append(columns)
    text = json.dumps(described).encode()
    data = np.concatenate(pieces)
    digest = _digest(text + data.tobytes())
    made = {"text": np.frombuffer(text, np.uint8), "data": data}
    keep.get(_TOGETHER, digest, lambda: made)
    for number, (index, path) in enumerate(small):
        index.reopen = _reopen_one, (path, digest, number)


def _reopen_one(path: str, digest: str, number: int) -> Index:
    """One of several indexes that were kept together, or what is in its file now."""
    kept = _open_together(digest)
    if kept is None:
        return read_index(path)
    arrays = {}
    for name, (dtype, shape, at) in kept[0][number].items():
        kind = np.dtype(dtype)
        span = kept[1][at : at + kind.itemsize * math.prod(shape)]
        arrays[name] = span.view(kind).reshape(shape)
    index = Index.from_arrays(arrays, path)
    index.reopen = _reopen_one, (path, digest, number)
    return index


@lru_cache(1)
def _open_together(digest: str) -> tuple[list[dict[str, Any]], NDArray[np.uint8]] | None:
    keep = user_keep()
    arrays = None if keep is None else keep.find(_TOGETHER, digest)
    return None if arrays is None else (json.loads(arrays["text"].tobytes()), arrays["data"])


def _digest_file(file: BinaryIO) -> str:
    hasher = hashlib.blake2b(digest_size=20)
    while chunk := file.read(1 << 20):
        hasher.update(chunk)
    return hasher.hexdigest()


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=20).hexdigest()
