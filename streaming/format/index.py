"""A stream's index: what its shards are, as columns rather than as an object for each shard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.format.checks import (
    FILE_FIELDS,
    VERSION,
    check_files,
    check_samples,
    check_schema,
)
from streaming.format.columns import Digests, FileColumn, Names
from streaming.format.encodings.mds import is_mds_encoding_safe
from streaming.format.errors import FormatError
from streaming.format.info import FileInfo
from streaming.format.json_stream import json_members
from streaming.format.reader import Reader
from streaming.format.readers import READERS
from streaming.format.regular import read_regular

__all__ = ["Index", "get_index_basename"]

_SLOTS = FILE_FIELDS["csv"]  # every file that a shard of any format can have
_COLUMNS = ("samples", "offsets", "raw_bytes", "zip_bytes", "_schema_of")


def get_index_basename() -> str:
    """Return the name of a data set's index file."""
    return "index.json"


class Index:
    """The shards of one stream.

    Make one by :meth:`parse`. Shards are numbered from 0 as in the file.

    Example:
        >>> shard = {
        ...     "version": 2, "format": "mds", "compression": None, "hashes": [], "size_limit": 200,
        ...     "column_names": ["id"], "column_encodings": ["int"], "column_sizes": [8],
        ...     "samples": 2, "zip_data": None,
        ...     "raw_data": {"basename": "shard.00000.mds", "bytes": 191, "hashes": {}},
        ... }
        >>> text = json.dumps({"version": 2, "shards": [shard]})
        >>> index = Index.parse(text.encode(), "index.json")
        >>> len(index), index.num_samples, index.raw_bytes.tolist()
        (1, 2, [191])
        >>> index.config(0) == shard
        True
    """

    source: str
    """The file or URL that it was read from, which errors name."""
    samples: NDArray[np.int64]
    """Samples of each shard."""
    offsets: NDArray[np.int64]
    """Samples before each shard, and at the end all of them: one more than there are shards."""
    raw_bytes: NDArray[np.int64]
    """Bytes of each shard, its files added up."""
    zip_bytes: NDArray[np.int64]
    """Bytes of each shard in compressed form; 0 where there is none."""
    schemas: list[dict[str, Any]]
    """What shards have in common: their JSON without samples and files, each kind once."""

    reopen: tuple[Callable[..., Index], tuple[Any, ...]] | None = None
    """A function and its arguments that give the same index in another process, if it need not be
    sent there."""

    def __init__(self, shards: Iterable[Any], source: str) -> None:
        parser = _Parser(source)
        for shard in shards:
            parser.add(shard)
        kinds = np.array(parser.schema_of, np.min_scalar_type(len(parser.schemas)))
        samples = np.array(parser.samples, np.int64)
        self._fill(source, parser.schemas, kinds, samples, parser.finish())

    def _fill(
        self,
        source: str,
        schemas: list[dict[str, Any]],
        schema_of: NDArray[Any],
        samples: NDArray[np.int64],
        files: dict[str, FileColumn],
    ) -> None:
        self.source = source
        self.schemas = schemas
        self._schema_of = schema_of
        self.samples = samples
        self._files = files
        self._samples_digest: NDArray[np.uint8] | None = None
        self.offsets = np.zeros(len(samples) + 1, np.int64)
        np.cumsum(samples, out=self.offsets[1:])
        none = np.zeros(len(samples), np.int64)
        self.raw_bytes, self.zip_bytes = (
            sum((col.bytes for slot, col in files.items() if slot[0] == kind), none)
            for kind in "rz"
        )

    @classmethod
    def parse(cls, data: bytes | str, source: str) -> Index:
        """Read an index file, and check all that it says.

        Args:
            data: The file's content.
            source: The file's name or URL, for errors.

        Raises:
            FormatError: Something in it is wrong; the message names ``source``, the shard's number
                and the field.
        """
        if isinstance(data, bytes):
            regular = read_regular(data)
            if regular is not None:
                index = cls.__new__(cls)
                kinds = np.zeros(len(regular.samples), np.uint8)
                index._fill(source, [regular.schema], kinds, regular.samples, regular.files)
                return index
        return cls._parse_any(data, source)

    @classmethod
    def _parse_any(cls, data: bytes | str, source: str) -> Index:
        try:
            text = data if isinstance(data, str) else str(data, "utf-8")
            members: dict[str, Any] = {}
            index: Index | None = None
            for name, value in json_members(text, "shards"):
                if isinstance(value, Iterator):
                    index = cls(value, source)
                else:
                    members[name] = value
        except FormatError:
            raise
        except (ValueError, RecursionError) as err:
            raise FormatError(f"{source}: not a JSON object: {err}") from None
        version = members.get("version")
        if type(version) is not int or version != VERSION:
            raise FormatError(
                f"{source}: version must be {VERSION}, got {version!r}; a later release of this "
                f"library may be needed to read it"
            )
        if index is None:
            raise FormatError(f"{source}: shards must be a list")
        return index

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], source: str) -> Index:
        """Make an index of what :meth:`to_arrays` gave; it uses the arrays, and copies none.

        Args:
            arrays: The arrays.
            source: The index file's name or URL, for errors.

        Raises:
            FormatError: The shards are of a kind that can't be read here, such as one whose
                compression was not registered.
        """
        text = json.loads(arrays["text"].tobytes())
        files = {}
        for slot, (names, digests) in text["files"].items():
            packed = {
                name.partition("#")[2]: array
                for name, array in arrays.items()
                if name.startswith(f"{slot}#")
            }
            files[slot] = FileColumn.of(
                Names.from_json(names), arrays[slot], Digests.from_json(digests, packed)
            )
        for schema in text["schemas"]:
            try:
                check_schema(schema)
            except FormatError as err:
                raise FormatError(f"{source}: {err}") from None
        index = cls.__new__(cls)
        index._files, index.schemas, index.source = files, text["schemas"], source
        index._samples_digest = arrays["samples_digest"]
        for name in _COLUMNS:
            setattr(index, name, arrays[name])
        return index

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All that there is to keep of an index, as a few arrays by name."""
        arrays = {name: getattr(self, name) for name in _COLUMNS}
        files = {}
        for slot, column in self._files.items():
            files[slot] = column.names.to_json(), column.digests.to_json()
            arrays[slot] = column.bytes
            for algo, packed in column.digests.packed.items():
                arrays[f"{slot}#{algo}"] = packed
        text = json.dumps({"schemas": self.schemas, "files": files})
        arrays["samples_digest"] = np.frombuffer(self.samples_digest, np.uint8)
        arrays["text"] = np.frombuffer(text.encode(), np.uint8)
        return arrays

    def __reduce__(self) -> tuple[Callable[..., Index], tuple[Any, ...]]:
        return self.reopen or (Index.from_arrays, (self.to_arrays(), self.source))

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def num_samples(self) -> int:
        """Samples of all shards together."""
        return int(self.offsets[-1])

    @property
    def samples_digest(self) -> bytes:
        """16 bytes that stand for the samples of each shard, taken once and kept with the index."""
        if self._samples_digest is None:
            samples = np.ascontiguousarray(self.samples, "<i8")
            digest = hashlib.blake2s(samples.data, digest_size=16).digest()
            self._samples_digest = np.frombuffer(digest, np.uint8)
        return self._samples_digest.tobytes()

    def _schema(self, shard: int) -> dict[str, Any]:
        return self.schemas[int(self._schema_of[shard])]

    def _info(self, slot: str, shard: int) -> FileInfo | None:
        column = self._files.get(slot)
        return None if column is None else column[shard]

    def files(self, shard: int) -> list[tuple[FileInfo, FileInfo | None]]:
        """Return a shard's files, each raw and compressed; the one with the samples is last."""
        shard = self._check_number(shard)
        slots = FILE_FIELDS[self._schema(shard)["format"]]
        pairs = []
        for raw_slot, zip_slot in zip(slots[::2], slots[1::2], strict=True):
            raw = self._info(raw_slot, shard)
            assert raw is not None
            pairs.append((raw, self._info(zip_slot, shard)))
        return pairs

    def folders(self) -> set[str]:
        """Return the folders that files lie in, relative to the index's; mostly just ``""``."""
        return {folder for column in self._files.values() for folder in column.folders()}

    def raw_names(self) -> Iterator[str]:
        """Yield the names of all raw files, relative to the index's folder."""
        for slot, column in self._files.items():
            if slot.startswith("raw"):
                for shard in range(len(self)):
                    name = column.names[shard]
                    if name is not None:
                        yield name

    def shard_named(self, basename: str) -> int | None:
        """The shard that a file's name belongs to; None if it belongs to none."""
        for column in self._files.values():
            shard = column.names.find(basename)
            if shard is not None:
                return shard
        return None

    def file_without(self, algo: str) -> FileInfo | None:
        """A file that has no hash by an algorithm; None if all have one."""
        for slot, column in self._files.items():
            shard = column.first_without(algo)
            if shard is not None:
                return self._info(slot, shard)
        return None

    def config(self, shard: int) -> dict[str, Any]:
        """Return a shard's JSON, as it was in the file, keys sorted."""
        shard = self._check_number(shard)
        config = {**self._schema(shard), "samples": int(self.samples[shard])}
        for slot in FILE_FIELDS[config["format"]]:
            info = self._info(slot, shard)
            config[slot] = (
                None
                if info is None
                else {
                    "basename": info.basename,
                    "bytes": info.bytes,
                    "hashes": info.hashes,
                }
            )
        return dict(sorted(config.items()))

    def reader(
        self, shard: int, dirname: str, split: str | None, allow_unsafe_types: bool = False
    ) -> Reader:
        """Return a new reader of a shard, not open yet.

        Args:
            shard: The shard's number.
            dirname: The stream's directory.
            split: Its subdirectory, or None.
            allow_unsafe_types: Whether it may read encodings that can run code, such as ``pkl``.
        """
        config = self.config(shard)
        reader = READERS[config["format"]].from_checked(dirname, split, config)
        if allow_unsafe_types:
            reader.validate(True)
        return reader

    def validate_safe(self, allow_unsafe_types: bool) -> None:
        """Say whether encodings that can run code when read are allowed.

        Raises:
            FormatError: A shard has one and they are not.
        """
        if allow_unsafe_types:
            return
        for number, schema in enumerate(self.schemas):
            if schema["format"] != "mds":
                continue
            columns = zip(schema["column_names"], schema["column_encodings"], strict=True)
            for name, encoding in columns:
                if not is_mds_encoding_safe(encoding):
                    shard = int(np.argmax(self._schema_of == number))
                    raise FormatError(
                        f"{self.source}: shard {shard}: column {name!r} is {encoding}, which runs "
                        f"code of whoever wrote it when it is read. If you trust the data, set "
                        f"allow_unsafe_types=True."
                    )

    def _check_number(self, shard: int) -> int:
        if not 0 <= shard < len(self):
            raise IndexError(f"{self.source} has {len(self)} shards, there is no number {shard}")
        return int(shard)


class _Parser:
    """Takes the shards' objects apart into columns."""

    def __init__(self, source: str) -> None:
        self.samples: list[int] = []
        self.schemas: list[dict[str, Any]] = []
        self.schema_of: list[int] = []
        self.files: dict[str, FileColumn] = {}
        self._source = source
        self._known: dict[str, int] = {}
        self._last: dict[str, Any] = {}

    def add(self, shard: Any) -> None:
        """Take in the next shard."""
        try:
            self._add(shard)
        except FormatError as err:
            raise FormatError(f"{self._source}: shard {len(self.samples)}: {err}") from None

    def _add(self, shard: Any) -> None:
        if type(shard) is not dict:
            raise FormatError(f"must be an object, got {shard!r}")
        schema = shard.copy()
        samples = check_samples(schema.pop("samples", None))
        files = {slot: schema.pop(slot) for slot in _SLOTS if slot in schema}
        number = self.schema_of[-1] if schema == self._last else self._schema_number(schema)
        fields = FILE_FIELDS[schema["format"]]
        rows = check_files(schema, samples, files)
        for slot in files:
            if slot not in fields and files[slot] is not None:
                raise FormatError(f"{slot} has no place in format {schema['format']}")
        for slot, row in zip(fields, rows, strict=True):
            column = self.files.get(slot) or self.files.setdefault(slot, FileColumn())
            self._fill_up(column)
            column.append(*(row or (None, 0, {})))
        self._last = schema
        self.schema_of.append(number)
        self.samples.append(samples)

    def _schema_number(self, schema: dict[str, Any]) -> int:
        key = json.dumps(schema, sort_keys=True)
        number = self._known.get(key)
        if number is None:
            check_schema(schema)
            number = self._known[key] = len(self.schemas)
            self.schemas.append(schema)
        return number

    def _fill_up(self, column: FileColumn) -> None:
        """Say that the shards since the column's last one had no such file."""
        while len(column) < len(self.samples):
            column.append(None, 0, {})

    def finish(self) -> dict[str, FileColumn]:
        """Return each file that any shard has, by its field's name."""
        for column in self.files.values():
            self._fill_up(column)
            column.pack()
        return self.files
