"""Sources of files: told apart by their names, cut into parts."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, BinaryIO, NamedTuple

from streaming.convert.errors import ConvertError
from streaming.convert.source import Part, Source, part_bytes_for
from streaming.convert.sources.lookup import (
    FileRef,
    ending_of,
    find_files,
    is_pattern,
    open_file,
    stem_and_ending,
)
from streaming.convert.sources.recast import RecastSource

__all__ = ["Files", "Piece", "open_files", "pack"]

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


class Piece(NamedTuple):
    """What a part reads of one file."""

    file: int
    """Which of the source's files."""
    start: int
    """The first byte, row, or row group; of which of them, the source knows."""
    stop: int
    """The one to stop before."""
    bytes: int
    rows: int | None = None


class Files(RecastSource):
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
    chosen = sorted(mine, key=attrgetter("key")) if len(several) == 1 else mine
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
    bare = format == "megatron" and not stem_and_ending(where)[1] and not is_pattern(where)
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
