"""Put a rewritten data set's index in place of the old one, without any shard of the old."""

import os
import secrets
from collections.abc import Iterator

from streaming.cache.alone import let_others_lock, mark_fetched
from streaming.cache.directory import NOT_OURS, Directory
from streaming.format.index import Index
from streaming.format.info import FileInfo


def renew(folder: str, old: Index | None, new: Index, data: bytes) -> None:
    """Replace the index in a directory, and remove the shards that are not in the new one.

    Files stay whose hashes are the same in both indexes. Of the others, nothing tells their
    versions apart, whatever their sizes: they go before the index is replaced, so that
    whoever reads the new index finds none of them.

    Args:
        folder: The directory.
        old: The index that is there; None if there is none that can be read.
        new: The one to come.
        data: Its file's content.

    Raises:
        PermissionError: If this user may not change the directory.
    """
    directory = Directory(folder, new)
    try:
        with directory.renaming():
            for info in _not_the_same(old, new):
                try:
                    os.unlink(directory.path_of(info))
                except FileNotFoundError:
                    pass
            _replace(directory.index_path, data)
    except OSError as error:
        if error.errno not in NOT_OURS:
            raise
        raise PermissionError(
            f"The remote of {folder} was rewritten, and this user may not replace the old data set "
            f"there: {error}. Give another `local`."
        ) from error


def _not_the_same(old: Index | None, new: Index) -> Iterator[FileInfo]:
    """Files of either index that may be another version than the new one's."""
    wanted = {info.basename: info for info in _files(new)}
    known = {} if old is None else {info.basename: info for info in _files(old)}
    for name in wanted.keys() | known.keys():
        if name not in wanted or name not in known or not _is_same(known[name], wanted[name]):
            yield wanted.get(name) or known[name]


def _files(index: Index) -> Iterator[FileInfo]:
    for shard in range(len(index)):
        for pair in index.files(shard):
            yield from (info for info in pair if info is not None)


def _is_same(one: FileInfo, other: FileInfo) -> bool:
    common = one.hashes.keys() & other.hashes.keys()
    return (
        one.bytes == other.bytes
        and bool(common)
        and all(one.hashes[algo] == other.hashes[algo] for algo in common)
    )


def _replace(path: str, data: bytes) -> None:
    folder = os.path.dirname(path)
    part = os.path.join(folder, f".part-index-{secrets.token_hex(4)}")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            mark_fetched(fd)
            let_others_lock(fd, folder)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)
