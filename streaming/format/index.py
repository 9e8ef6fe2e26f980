"""A stream's index: what its shards are, as columns rather than as an object for each shard."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from streaming.format.checks import (
    FILE_FIELDS,
    VERSION,
    check_files,
    check_samples,
    check_schema,
)
from streaming.format.columns import Digests, Names
from streaming.format.encodings.mds import is_mds_encoding_safe
from streaming.format.errors import FormatError
from streaming.format.info import FileInfo
from streaming.format.reader import Reader
from streaming.format.readers import READERS

__all__ = ["Index", "get_index_basename"]

_SLOTS = FILE_FIELDS["csv"]  # every file that a shard of any format can have


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

    def __init__(self, shards: list[Any], source: str) -> None:
        parsed = _Parser(shards, source)
        self.source = source
        self.schemas = parsed.schemas
        self._schema_of = np.array(parsed.schema_of, np.min_scalar_type(len(parsed.schemas)))
        self.samples = np.array(parsed.samples, np.int64)
        self.offsets = np.concatenate(([0], np.cumsum(self.samples))).astype(np.int64)
        self._names = {slot: Names(parsed.names[slot]) for slot in _SLOTS}
        self._bytes = {slot: np.array(parsed.bytes[slot], np.int64) for slot in _SLOTS}
        self._digests = {slot: Digests(parsed.digests[slot]) for slot in _SLOTS}
        self.raw_bytes = self._bytes["raw_meta"] + self._bytes["raw_data"]
        self.zip_bytes = self._bytes["zip_meta"] + self._bytes["zip_data"]

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

        def no_constant(name: str) -> NoReturn:
            raise ValueError(f"{name} is not a number of JSON")

        try:
            text = data if isinstance(data, str) else str(data, "utf-8")
            obj = json.loads(text, parse_constant=no_constant)
        except (ValueError, RecursionError) as err:
            raise FormatError(f"{source}: not a JSON file: {err}") from None
        if not isinstance(obj, dict) or "shards" not in obj or "version" not in obj:
            raise FormatError(f"{source}: must be an object with version and shards")
        if type(obj["version"]) is not int or obj["version"] != VERSION:
            raise FormatError(
                f"{source}: version must be {VERSION}, got {obj['version']!r}; a later release may "
                f"be needed to read it"
            )
        if not isinstance(obj["shards"], list):
            raise FormatError(f"{source}: shards must be a list")
        return cls(obj["shards"], source)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def num_samples(self) -> int:
        """Samples of all shards together."""
        return int(self.offsets[-1])

    def _schema(self, shard: int) -> dict[str, Any]:
        return self.schemas[int(self._schema_of[shard])]

    def _info(self, slot: str, shard: int) -> FileInfo | None:
        name = self._names[slot][shard]
        if name is None:
            return None
        return FileInfo(name, int(self._bytes[slot][shard]), self._digests[slot][shard])

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
    """Takes the shards' objects apart into lists, one for each column."""

    def __init__(self, shards: list[Any], source: str) -> None:
        self.samples: list[int] = []
        self.schemas: list[dict[str, Any]] = []
        self.schema_of: list[int] = []
        self.names: dict[str, list[str | None]] = {slot: [] for slot in _SLOTS}
        self.bytes: dict[str, list[int]] = {slot: [] for slot in _SLOTS}
        self.digests: dict[str, list[dict[str, str] | None]] = {slot: [] for slot in _SLOTS}
        self._known: dict[str, int] = {}
        self._last: dict[str, Any] | None = None
        for number, shard in enumerate(shards):
            try:
                self._add(shard)
            except FormatError as err:
                raise FormatError(f"{source}: shard {number}: {err}") from None

    def _add(self, shard: Any) -> None:
        if type(shard) is not dict:
            raise FormatError(f"must be an object, got {shard!r}")
        schema = dict(shard)
        if "samples" not in schema:
            raise FormatError("samples is missing")
        samples = check_samples(schema.pop("samples"))
        files = {slot: schema.pop(slot) for slot in _SLOTS if slot in schema}
        if schema != self._last:
            self._new_schema(schema)
        else:
            self.schema_of.append(self.schema_of[-1])
        self.samples.append(samples)
        self._add_files(self._last or schema, samples, files)

    def _new_schema(self, schema: dict[str, Any]) -> None:
        key = json.dumps(schema, sort_keys=True)
        number = self._known.get(key)
        if number is None:
            check_schema(schema)
            number = self._known[key] = len(self.schemas)
            self.schemas.append(schema)
        self.schema_of.append(number)
        self._last = schema

    def _add_files(self, schema: dict[str, Any], samples: int, files: dict[str, Any]) -> None:
        fields = FILE_FIELDS[schema["format"]]
        infos = dict(zip(fields, check_files(schema, samples, files), strict=True))
        for slot in _SLOTS:
            info = infos.get(slot)
            if info is None and files.get(slot) is not None:
                raise FormatError(f"{slot} has no place in format {schema['format']}")
            self.names[slot].append(None if info is None else info.basename)
            self.bytes[slot].append(0 if info is None else info.bytes)
            self.digests[slot].append(None if info is None else info.hashes)
