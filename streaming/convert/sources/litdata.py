"""LitData's data sets: an index of chunks, each a table of offsets and the items' leaves.

A chunk is a uint32 number of items n, n + 1 uint32 offsets, and the items; an item is a uint32 size
for each leaf, then the leaves. All little-endian. What the leaves are, `index.json` says.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from streaming.convert.errors import ConvertError, SchemaError
from streaming.convert.source import Part, Sample, part_bytes_for
from streaming.convert.sources.files import Files, Piece
from streaming.convert.sources.lookup import FileRef

__all__ = ["LitDataSource"]

_NUMPY = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
_TORCH = {
    1: "float32",
    3: "float64",
    9: "float16",
    11: "uint8",
    12: "int8",
    14: "int16",
    16: "int32",
    18: "int64",
}
_SCALARS: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "int": ("int", lambda data: struct.unpack("<q", data)[0]),
    "integer": ("int", lambda data: struct.unpack("<q", data)[0]),
    "float": ("float64", lambda data: struct.unpack("<d", data)[0]),
    "bool": ("json", lambda data: data != b"\0"),
    "str": ("str", lambda data: data.decode()),
    "string": ("str", lambda data: data.decode()),
    "bytes": ("bytes", bytes),
}


class LitDataSource(Files):
    """The items of a LitData data set; a dict's keys are the columns, or a tuple's places.

    An item that is one value has the column `0`, or `tokens` if it was written for a token loader.
    """

    kind = "LitData"
    unit = "chunks"

    def __init__(
        self,
        files: Sequence[FileRef],
        part_bytes: int | None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        index = next((f for f in files if PurePosixPath(f.key).name == "index.json"), None)
        if index is None:
            raise ConvertError(f"{files[0].root}: a LitData data set has an index.json")
        self._options = dict(options or {})
        by_key = {file.key: file for file in files}
        folder = index.key[: -len("index.json")]
        super().__init__([index], part_bytes, options)
        with self.open(index) as stream:
            content = json.load(stream)
        self._config = content["config"]
        for kind in ("compression", "encryption"):
            if self._config.get(kind):
                raise ConvertError(
                    f"{index.url}: its chunks have {kind} ({self._config[kind]}), which only "
                    "litdata reads: give its StreamingDataset as the source"
                )
        names = [folder + chunk["filename"] for chunk in content["chunks"]]
        missing = [name for name in names if name not in by_key]
        if missing:
            raise FileNotFoundError(f"{index.url}: the chunk {missing[0]} is not there")
        self.index, self.files = index, [by_key[name] for name in names]
        self.part_bytes = part_bytes_for(sum(file.size for file in self.files), part_bytes)
        self._all = list(files)
        self._rows = [int(chunk["chunk_size"]) for chunk in content["chunks"]]

    def describe(self) -> str:
        """What it is, and how large."""
        return f"LitData, {len(self.files):,} chunks, {self.index.url}"

    def columns(self) -> dict[str, str]:
        """The columns, by what the index says of the items' leaves."""
        return {
            name: self.given.get(name, encoding)
            for name, (encoding, _) in self._leaves.items()
            if name not in self.dropped
        }

    def pieces(self) -> Iterator[Piece]:
        """The chunks."""
        for at, (file, rows) in enumerate(zip(self.files, self._rows, strict=True)):
            yield Piece(at, 0, 1, file.size, rows)

    def read(self, part: Part) -> Iterator[Sample]:
        """The rows of a part."""
        names = list(self._leaves)
        reads = [read for _, read in self._leaves.values()]
        wanted = [(at, name, reads[at]) for at, name in enumerate(names) if name in self.columns()]
        for number, _, _ in part.spec:
            for leaves in self._items(number, len(names)):
                yield {name: read(leaves[at]) for at, name, read in wanted}

    def _items(self, number: int, width: int) -> Iterator[list[bytes]]:
        file = self.files[number]
        with self.open(file) as stream:
            head = stream.read(4)
            count = int.from_bytes(head, "little")
            table = stream.read(4 * (count + 1)) if 4 * (count + 2) <= file.size else b""
            offsets = np.frombuffer(table[: len(table) & ~3], "<u4").astype(np.int64)
            whole = len(offsets) == count + 1 and offsets[-1] == file.size
            if len(head) < 4 or not whole or (np.diff(offsets) < 0).any():
                raise ConvertError(f"{file.url}: its table of offsets is damaged")
            stream.seek(int(offsets[0]))
            for size in np.diff(offsets).tolist():
                item = stream.read(size)
                if self._bare and len(item) == size:
                    yield [item]
                    continue
                sizes = np.frombuffer(item[: 4 * width].ljust(4 * width), "<u4").tolist()
                ends = (4 * width + np.cumsum(sizes)).tolist()
                if len(item) != size or ends[-1] != size:
                    raise ConvertError(f"{file.url}: an item is damaged")
                yield [item[end - n : end] for n, end in zip(sizes, ends, strict=True)]

    @property
    def _bare(self) -> bool:
        """Whether items are their tokens alone, with no sizes before them."""
        return bool(self._config.get("item_loader") == "TokensLoader")

    @cached_property
    def _leaves(self) -> dict[str, tuple[str, Callable[[bytes], Any]]]:
        """For each leaf, its name, encoding, and what reads it."""
        kinds = list(self._config["data_format"])
        spec = self._config.get("data_spec")
        names = _names(json.loads(spec)[1] if spec else None, len(kinds))
        if names == ["0"] and self._bare:
            names = ["tokens"]
        if names is None:
            raise SchemaError(
                f"{self.index.url}: its items are nested; give litdata's StreamingDataset as the "
                "source, and a transform that makes them flat"
            )
        return {name: self._leaf(name, kind) for name, kind in zip(names, kinds, strict=True)}

    def _leaf(self, name: str, kind: str) -> tuple[str, Callable[[bytes], Any]]:
        base, _, code = kind.partition(":")
        if base in _SCALARS:
            return _SCALARS[base]
        if base in ("jpeg", "pil", "image"):
            return ("jpeg", bytes) if base == "jpeg" else ("pil", _pil)
        if base in ("numpy", "tensor"):
            return "ndarray", _with_header(base == "tensor")
        dtype = None
        if base == "no_header_numpy" and int(code) < len(_NUMPY):
            dtype = _NUMPY[int(code)]
        elif base == "no_header_tensor":
            dtype = _TORCH.get(int(code))
        if dtype is None:
            if name in self.dropped:
                return "bytes", bytes
            raise SchemaError(
                f"{self.index.url}: column {name!r} is of LitData's kind {kind}, which is not read "
                f"here: leave it out by columns={{{name!r}: None}}, or give litdata's "
                "StreamingDataset as the source"
            )
        flat = np.dtype(dtype).newbyteorder("<")
        return f"ndarray:{dtype}", lambda data: np.frombuffer(data, flat)


def _names(spec: Any, leaves: int) -> list[str] | None:
    """The columns of a tree of items; None if it is nested."""
    if not spec or spec.get("type") is None:
        return ["0"] if leaves == 1 else None
    children = spec["children_spec"]
    if any(child.get("type") is not None for child in children) or len(children) != leaves:
        return None
    context = json.loads(spec["context"]) if spec.get("context") else None
    named = spec["type"].rpartition(".")[2] in ("dict", "OrderedDict")
    return [str(name) for name in context or ()] if named else [str(at) for at in range(leaves)]


def _with_header(torch: bool) -> Callable[[bytes], Any]:
    """Reads an array behind its dtype's code, rank and dimensions."""

    def read(data: bytes) -> Any:
        # Tensors' headers are big-endian: then the first byte, which no code reaches, is 0.
        order = ">" if torch and data[:1] == b"\0" else "<"
        code, rank = np.frombuffer(data, f"{order}u4", 2).tolist()
        shape = np.frombuffer(data, f"{order}u4", rank, 8).tolist()
        name = _TORCH[code] if torch else _NUMPY[code]
        return np.frombuffer(data, np.dtype(name).newbyteorder("<"), offset=8 + 4 * rank).reshape(
            shape
        )

    return read


def _pil(data: bytes) -> Any:
    from PIL import Image

    width, height, length = struct.unpack_from("<3I", data)
    mode = data[12 : 12 + length].decode()
    return Image.frombytes(mode, (width, height), data[12 + length :])
