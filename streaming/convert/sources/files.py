"""Files of this machine or of any store: found, told apart, opened, cut into parts."""

from __future__ import annotations

import fnmatch
import io
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, BinaryIO, cast

from streaming.convert.errors import ConvertError
from streaming.convert.source import Part, Source, part_bytes_for
from streaming.storage import NotFound, RetryPolicy, Store, is_local, local_path, store_for
from streaming.storage.urls import split_url

__all__ = [
    "FileRef",
    "Files",
    "Piece",
    "ending_of",
    "find_files",
    "open_file",
    "open_files",
    "pack",
    "read_file",
    "stem_and_ending",
]

_READ_AHEAD = 1 << 22
_RETRY = RetryPolicy()
_LOOKERS = 16
_PATTERN = re.compile(r"[*?\[]")

_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".tar": "webdataset",
    ".npy": "npy",
    ".idx": "megatron",
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"), "images"),
}
COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
_OPENERS = {
    "parquet": "streaming.convert.sources.parquet:ParquetSource",
    "arrow": "streaming.convert.sources.ipc:ArrowSource",
    "csv": "streaming.convert.sources.csv_files:CSVSource",
    "tsv": "streaming.convert.sources.csv_files:TSVSource",
    "jsonl": "streaming.convert.sources.jsonl:JSONLSource",
    "webdataset": "streaming.convert.sources.webdataset:WebDatasetSource",
    "images": "streaming.convert.sources.images:ImageSource",
    "litdata": "streaming.convert.sources.litdata:LitDataSource",
    "megatron": "streaming.convert.sources.megatron:MegatronSource",
    "npy": "streaming.convert.sources.arrays:NpySource",
}


@dataclass(frozen=True, slots=True)
class FileRef:
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


@dataclass(frozen=True, slots=True)
class Piece:
    """What a part reads of one file."""

    file: int
    """Which of the source's files."""
    start: int
    """The first byte, row, or row group; of which of them, the source knows."""
    stop: int
    """The one to stop before."""
    bytes: int
    rows: int | None = None


class Files(Source):
    """A source of files. A subclass says how they are cut and read.

    Args:
        files: The files, in order.
        part_bytes: What a part reads, about.
        options: Options of the store.
    """

    kind = "files"
    """How messages call them."""
    unit = "bytes"
    """Of which things pieces are ranges; None of the label if a piece is always the whole file."""

    def __init__(
        self,
        files: Sequence[FileRef],
        part_bytes: int | None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.files = list(files)
        self.part_bytes = part_bytes_for(sum(file.size for file in self.files), part_bytes)
        self.options = dict(options or {})
        self._parts: list[Part] | None = None

    def describe(self) -> str:
        """What it is, and how many files."""
        if len(self.files) == 1:
            return f"{self.kind}, {self.files[0].url}"
        return f"{self.kind}, {len(self.files):,} files in {self.files[0].root}"

    def pieces(self) -> Iterator[Piece]:
        """What can be read on its own, in order; unless a subclass knows better, whole files."""
        for at, file in enumerate(self.files):
            yield Piece(at, 0, file.size, file.size)

    def parts(self) -> Sequence[Part]:
        """Pieces put together until there are enough bytes for a part."""
        if self._parts is None:
            self._parts = [
                self._part(number, pieces)
                for number, pieces in enumerate(pack(self.pieces(), self.part_bytes))
            ]
        return self._parts

    def fingerprint(self) -> str:
        """What tells it from other sources: the files' versions as well."""
        import hashlib

        versions = repr([(file.key, file.size, file.version) for file in self.files])
        return hashlib.sha256((super().fingerprint() + versions).encode()).hexdigest()

    def open(self, file: FileRef) -> BinaryIO:
        """Open a file to be read from its beginning, or anywhere."""
        return open_file(file, self.options)

    def _part(self, number: int, pieces: Sequence[Piece]) -> Part:
        rows = [piece.rows for piece in pieces if piece.rows is not None]
        return Part(
            number=number,
            label=self._label(pieces),
            spec=tuple((piece.file, piece.start, piece.stop) for piece in pieces),
            rows=sum(rows) if len(rows) == len(pieces) else None,
            bytes=sum(piece.bytes for piece in pieces),
        )

    def _label(self, pieces: Sequence[Piece]) -> str:
        first = pieces[0]
        name = self.files[first.file].url
        if len(pieces) > 1:
            others = len({piece.file for piece in pieces}) - 1
            if others:
                return f"{name} and {others} more"
        stop = pieces[-1].stop
        whole = self.unit == "bytes" and not first.start and stop == self.files[first.file].size
        return name if whole else f"{name}, {self.unit} {first.start} to {stop - 1}"


def pack(pieces: Iterable[Piece], part_bytes: int) -> Iterator[list[Piece]]:
    """Put pieces together until they are as large as a part should be.

    Example:
        >>> pieces = [Piece(0, 0, 1, 60), Piece(0, 1, 2, 60), Piece(1, 0, 1, 60)]
        >>> [[(p.file, p.start, p.stop) for p in part] for part in pack(pieces, 100)]
        [[(0, 0, 2)], [(1, 0, 1)]]
    """
    part: list[Piece] = []
    size = 0
    for piece in pieces:
        if part and size + piece.bytes / 2 > part_bytes:
            yield part
            part, size = [], 0
        last = part[-1] if part else None
        if last is not None and last.file == piece.file and last.stop == piece.start:
            rows = None if last.rows is None or piece.rows is None else last.rows + piece.rows
            part[-1] = Piece(last.file, last.start, piece.stop, last.bytes + piece.bytes, rows)
        else:
            part.append(piece)
        size += piece.bytes
    if part:
        yield part


def stem_and_ending(name: str) -> tuple[str, str, str]:
    """Take a file's name apart: stem, ending, compression.

    Example:
        >>> stem_and_ending("a/b.c.jsonl.gz"), stem_and_ending("x.CSV")
        (('a/b.c', '.jsonl', '.gz'), ('x', '.csv', ''))
    """
    stem, ending = posixpath.splitext(name)
    compression = ""
    if ending.lower() in COMPRESSIONS:
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
    if ending in COMPRESSIONS or "/" in ending or "." not in name:
        return stem_and_ending(name)[1]
    return ending


def open_files(
    where: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    format: str | None,
    part_bytes: int | None,
    options: Mapping[str, Any],
) -> Source:
    """A source of the files at a place.

    Args:
        where: A file, a folder, a pattern; or several.
        format: What they are, if their names don't say it.
        part_bytes: What a part reads, about.
        options: Options of the store.

    Raises:
        ConvertError: If it can't be told what they are, or they are of several kinds.
        FileNotFoundError: If there are none.
    """
    several = [where] if isinstance(where, (str, os.PathLike)) else list(where)
    listed = [
        file
        for one in several
        for file in find_files(_index_of_bin(os.fspath(one), format), options)
    ]
    if format is None and any(file.key.endswith("index.json") for file in listed):
        format = _by_index(listed, options)
    kinds: dict[str, list[FileRef]] = {}
    for file in listed:
        kind = _ENDINGS.get(ending_of(file.key))
        if kind is not None:
            kinds.setdefault(kind, []).append(file)
    if format is None:
        # Tables beside images (labels, say) are not what is meant by a folder of images.
        if len(kinds) != 1:
            found = ", ".join(f"{len(files)} of {kind}" for kind, files in kinds.items())
            what = f"files of several kinds ({found})" if kinds else "no file whose name says it"
            raise ConvertError(
                f"{several[0]}: it has {what}; give format= (one of {', '.join(_OPENERS)}), or a "
                "pattern with *"
            )
        format = next(iter(kinds))
    if format not in _OPENERS:
        raise ValueError(f"format is {format!r}; it must be one of {', '.join(_OPENERS)}")
    alike = {"tsv": "csv"}.get(format, format)
    mine = [file for kind, files in kinds.items() if kind in (format, alike) for file in files]
    chosen = sorted(mine, key=lambda file: file.key) if len(several) == 1 else mine
    if format in ("litdata",) or not chosen:
        chosen = listed
    import importlib

    module, _, name = _OPENERS[format].partition(":")
    made: Source = getattr(importlib.import_module(module), name)(chosen, part_bytes, options)
    return made


def _index_of_bin(where: str, format: str | None) -> str:
    """Megatron's data sets are named by the index, the tokens, or by what both have in common."""
    if where.endswith(".bin"):
        return where[: -len("bin")] + "idx"
    bare = format == "megatron" and not stem_and_ending(where)[1] and not _PATTERN.search(where)
    return f"{where}.idx" if bare and not where.endswith("/") else where


def _by_index(files: Sequence[FileRef], options: Mapping[str, Any]) -> str | None:
    """What an index.json says: LitData's has chunks, ours has shards."""
    import json

    file = next((one for one in files if posixpath.basename(one.key) == "index.json"), None)
    if file is None:
        return None
    with open_file(file, options) as stream:
        try:
            index = json.load(stream)
        except ValueError:
            return None
    if isinstance(index, dict) and "shards" in index:
        raise ConvertError(
            f"{file.url} is a data set of shards already: for those there are `shardstream "
            "reshard` and `cp`"
        )
    return "litdata" if isinstance(index, dict) and "chunks" in index else None


def find_files(where: str, options: Mapping[str, Any]) -> list[FileRef]:
    """The files at a place, in the order of their names.

    Args:
        where: A file, a folder (all files below it, but hidden ones), or a pattern: `*` and `?`
            stand for anything within a name, `**` for folders as well.
        options: Options of the store.

    Raises:
        FileNotFoundError: If there is none.
    """
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
        return sorted(_walk(root, local_path(root), ""), key=lambda file: file.key)
    store = _store(root, options)
    keys = _RETRY.call(lambda: sorted(store.list()), f"listing {root}")
    shown = [key for key in keys if not any(map(_is_hidden, key.split("/")))]
    with ThreadPoolExecutor(_LOOKERS, "streaming-stat") as pool:
        return list(pool.map(partial(_ref, store, root), shown))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _walk(root: str, folder: str, prefix: str) -> Iterator[FileRef]:
    """The files below a folder of this machine."""
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if entry.is_dir():
                yield from _walk(root, entry.path, f"{prefix}{entry.name}/")
            elif entry.is_file():
                status = entry.stat()
                name = prefix + entry.name
                yield FileRef(root, name, status.st_size, str(status.st_mtime_ns))


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
    if file.root[:1] == "/":  # what most are; thousands of small ones a second
        with open(f"{file.root}/{file.key}", "rb", buffering=0) as raw:
            return raw.readall()
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
