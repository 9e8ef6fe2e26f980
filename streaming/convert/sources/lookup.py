"""Finding files, of this machine or of any store, and opening them."""

from __future__ import annotations

import fnmatch
import io
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from typing import IO, Any, BinaryIO, NamedTuple, cast

from streaming.storage import NotFound, RetryPolicy, Store, is_local, local_path, store_for
from streaming.storage.urls import split_url

__all__ = [
    "FileRef",
    "ending_of",
    "find_files",
    "is_pattern",
    "open_file",
    "read_file",
    "stem_and_ending",
]

_READ_AHEAD = 1 << 22
_RETRY = RetryPolicy()
_LOOKERS = 16
_PATTERN = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{(?:([0-9]+)\.\.([0-9]+)|([^{}]*,[^{}]*))\}")
_COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")


class FileRef(NamedTuple):
    """A file, as it was when it was found."""

    root: str
    """The folder or URL that was looked into."""
    key: str
    """The file's name below it."""
    size: int
    """In bytes."""
    version: str = ""
    """What changes with its content, where the store has that; else empty."""

    @property
    def url(self) -> str:
        """Its full name."""
        return f"{self.root.rstrip('/')}/{self.key}" if self.root != "." else self.key


def stem_and_ending(name: str) -> tuple[str, str, str]:
    """Take a file's name apart: stem, ending, compression.

    Example:
        >>> stem_and_ending("a/b.c.jsonl.gz"), stem_and_ending("x.CSV")
        (('a/b.c', '.jsonl', '.gz'), ('x', '.csv', ''))
    """
    stem, ending = posixpath.splitext(name)
    compression = ""
    if ending.lower() in _COMPRESSIONS:
        compression = ending.lower()
        stem, ending = posixpath.splitext(stem)
    return stem, ending.lower(), compression


def ending_of(name: str) -> str:
    """What a file is, by its name, compressed or not; quick, for very many files.

    Example:
        >>> ending_of("a/b.JPG"), ending_of("x.csv.gz"), ending_of("a.b/c")
        ('.jpg', '.csv', '')
    """
    ending = name[name.rfind(".") :].lower()
    if ending in _COMPRESSIONS or "/" in ending or "." not in name:
        return stem_and_ending(name)[1]
    return ending


def is_pattern(where: str) -> bool:
    """Whether a path has a part that stands for anything.

    Example:
        >>> is_pattern("a/*.csv"), is_pattern("a/b.csv")
        (True, False)
    """
    return _PATTERN.search(where) is not None


def find_files(where: str, options: Mapping[str, Any]) -> list[FileRef]:
    """The files at a place, in the order of their names.

    Args:
        where: A file, a folder (all files below it, but hidden ones), or a pattern: `*` and `?`
            stand for anything within a name, `**` for folders as well; `{a,b}` is one of these, and
            `{00..12}` a number of that many digits.
        options: Options of the store.

    Raises:
        FileNotFoundError: If there is none.
    """
    several = _braces(where)
    if len(several) > 1:
        return [file for one in several for file in find_files(one, options)]
    match = _PATTERN.search(where)
    if match:
        root = where[: where.rfind("/", 0, match.start()) + 1] or "."
        pattern = where[len(root) :] if root != "." else where
        found = _listed(root.rstrip("/") or "/", options)
        wanted = _matcher(pattern)
        files = [file for file in found if wanted(file.key)]
    else:
        files = _file_or_folder(where, options)
    if not files:
        raise FileNotFoundError(f"there are no files at {where}")
    return files


def _braces(where: str) -> list[str]:
    """What a name with braces stands for, in order.

    Example:
        >>> _braces("{08..10}.tar"), _braces("x.{csv,tsv}"), _braces("x{}")
        (['08.tar', '09.tar', '10.tar'], ['x.csv', 'x.tsv'], ['x{}'])
    """
    match = _BRACES.search(where)
    if match is None:
        return [where]
    first, last = match.group(1, 2)
    if first is None:
        found = match.group(3).split(",")
    else:
        found = [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    before, after = where[: match.start()], where[match.end() :]
    return [before + one + rest for one in found for rest in _braces(after)]


def _file_or_folder(where: str, options: Mapping[str, Any]) -> list[FileRef]:
    if is_local(where):
        path = local_path(where)
        if os.path.isdir(path):
            return _listed(path, options)
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is no file or folder {where}")
    if not where.endswith("/"):
        root, key = split_url(where)
        store = _store(root, options)
        try:
            return [_ref(store, root, key)]
        except NotFound:
            pass
    return _listed(where.rstrip("/"), options)


def _listed(root: str, options: Mapping[str, Any]) -> list[FileRef]:
    if is_local(root):
        found: list[FileRef] = []
        _walk(root, local_path(root), "", found)
        return sorted(found, key=attrgetter("key"))
    store = _store(root, options)
    keys = _RETRY.call(lambda: sorted(store.list()), f"listing {root}")
    shown = [key for key in keys if not any(map(_is_hidden, key.split("/")))]
    with ThreadPoolExecutor(_LOOKERS, "streaming-stat") as pool:
        return list(pool.map(partial(_ref, store, root), shown))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _walk(root: str, folder: str, prefix: str, found: list[FileRef]) -> None:
    """Add the files below a folder of this machine."""
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if entry.is_dir():
                _walk(root, entry.path, f"{prefix}{entry.name}/", found)
            elif entry.is_file():
                status = entry.stat()
                name = prefix + entry.name
                found.append(FileRef(root, name, status.st_size, str(status.st_mtime_ns)))


def _ref(store: Store, root: str, key: str) -> FileRef:
    info = _RETRY.call(partial(store.stat, key), f"looking at {store.url_of(key)}")
    version = info.etag or ""
    # Of a local file, when it was written: its inode says nothing of its content.
    return FileRef(root, key, info.size, version.rpartition("-")[2] if is_local(root) else version)


def _matcher(pattern: str) -> Callable[[str], object]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]*\])", pattern)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    text = "".join(
        known.get(part, fnmatch.translate(part)[4:-3] if part[:1] == "[" else re.escape(part))
        for part in parts
    )
    return re.compile(text).fullmatch


def _store(root: str, options: Mapping[str, Any]) -> Store:
    return store_for(root, **({} if is_local(root) else options))


def open_file(file: FileRef, options: Mapping[str, Any]) -> BinaryIO:
    """Open a file of any store; what is read is what is fetched, a few megabytes ahead.

    Args:
        file: The file.
        options: Options of the store.

    Returns:
        A seekable stream. Where a store can't give parts of a file, it is fetched whole, into a
        temporary file.
    """
    if is_local(file.root):
        return open(os.path.join(local_path(file.root), file.key), "rb")
    store = _store(file.root, options)
    if not store.can_range:
        return _fetched(store, file.key)
    return cast(BinaryIO, io.BufferedReader(_Remote(store, file), _READ_AHEAD))


def _fetched(store: Store, key: str) -> BinaryIO:
    stream: IO[bytes] = tempfile.TemporaryFile(prefix="shardstream-")  # noqa: SIM115

    def fetch() -> None:
        stream.seek(0)
        stream.truncate()
        store.get(key, cast(BinaryIO, stream))

    _RETRY.call(fetch, f"fetching {store.url_of(key)}")
    stream.seek(0)
    return cast(BinaryIO, stream)


def read_file(file: FileRef, options: Mapping[str, Any]) -> bytes:
    """Read a whole file of any store."""
    if file.root[:1] == "/":  # what most are; thousands of small ones a second, in four calls each
        descriptor = os.open(f"{file.root}/{file.key}", os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            data = os.read(descriptor, file.size + 1)
        finally:
            os.close(descriptor)
        if len(data) == file.size:
            return data
    with open_file(file, options) as stream:
        return stream.read()


class _Remote(io.RawIOBase):
    """An object of a store as a file: each read is one request."""

    def __init__(self, store: Store, file: FileRef) -> None:
        super().__init__()
        self._store, self._file, self._at = store, file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._at + len(view), self._file.size)
        if stop <= self._at:
            return 0
        start, etag = self._at, self._file.version or None
        data = _RETRY.call(
            lambda: self._store.get_range(self._file.key, start, stop, etag=etag),
            f"reading {self._file.url}",
        )
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
