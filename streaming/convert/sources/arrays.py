"""NumPy arrays, in memory or in `.npy` files: the first axis counts the samples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import xxhash

from streaming.convert.errors import ConvertError, SchemaError
from streaming.convert.schema import NUMBERS, columns_of_samples, no_encoding
from streaming.convert.source import Part, Sample, Source
from streaming.convert.sources.lookup import FileRef, open_file
from streaming.convert.sources.tables import row_parts
from streaming.convert.sources.values import BATCH_BYTES, rows_of
from streaming.storage import is_local, local_path

__all__ = ["ArraySource", "NpySource", "open_arrays"]

Array = np.ndarray[Any, Any]
_INFER_ROWS = 1000


def open_arrays(arrays: Any, part_bytes: int | None) -> Source:
    """A source of arrays.

    Args:
        arrays: A dict of column name to array; an array of records, with a column for each field;
            or one array, whose column is called `x`.
        part_bytes: What a part has, about.

    Raises:
        ConvertError: If they are not of one length.
    """
    if isinstance(arrays, np.ndarray):
        fields = arrays.dtype.names
        arrays = {"x": arrays} if fields is None else {name: arrays[name] for name in fields}
    columns = {}
    for name, values in arrays.items():
        values = values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
        columns[name] = values
    return ArraySource(columns, part_bytes)


class ArraySource(Source):
    """Arrays of one length.

    Args:
        arrays: Column name to array.
        part_bytes: What a part has, about.

    Raises:
        ConvertError: If they are not of one length, or there are none.
    """

    def __init__(self, arrays: Mapping[str, Array], part_bytes: int | None) -> None:
        self._arrays, self.part_bytes = dict(arrays), part_bytes
        lengths = {name: len(array) if array.ndim else -1 for name, array in arrays.items()}
        if len(set(lengths.values())) != 1 or -1 in lengths.values():
            told = ", ".join(f"{name!r} {'none' if n < 0 else n}" for name, n in lengths.items())
            raise ConvertError(
                f"arrays are converted together if they have as many samples each: {told or 'none'}"
            )
        self.rows = next(iter(lengths.values()))

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays."""
        return self._arrays

    def describe(self) -> str:
        """What they are."""
        shapes = ", ".join(f"{name} {array.dtype}{array.shape}" for name, array in self._sorted())
        return f"NumPy arrays, {shapes}"

    def columns(self) -> dict[str, str]:
        """The columns, by dtypes and shapes; of arrays of objects, by the first values."""
        return dict(self._columns)

    @cached_property
    def _columns(self) -> dict[str, str]:
        return {name: _encoding(name, array) for name, array in self._sorted()}

    def parts(self) -> Sequence[Part]:
        """Ranges of rows."""
        return row_parts(self.rows, self._nbytes, self.part_bytes)

    @property
    def _nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def read(self, part: Part) -> Iterator[Sample]:
        """The rows of a part."""
        return rows_of(self.batches(part))

    def batches(self, part: Part) -> Iterator[Mapping[str, Any]]:
        """The rows of a part, in batches of some megabytes."""
        start, stop = part.spec
        step = max(1, BATCH_BYTES * self.rows // max(self._nbytes, 1))
        step = min(step, 8192)
        for at in range(start, stop, step):
            yield {name: _plain(array[at : min(at + step, stop)]) for name, array in self._sorted()}

    def fingerprint(self) -> str:
        """What tells them from others: their content."""
        digest = xxhash.xxh3_128(super().fingerprint().encode())
        for _, array in self._sorted():
            step = max(1, BATCH_BYTES * len(array) // max(array.nbytes, 1))
            for at in range(0, len(array), step):
                piece = array[at : at + step]
                content = repr(piece.tolist()).encode() if piece.dtype.hasobject else None
                digest.update(np.ascontiguousarray(piece).tobytes() if content is None else content)
        return digest.hexdigest()

    def _sorted(self) -> list[tuple[str, Array]]:
        return sorted(self.arrays.items())


class NpySource(ArraySource):
    """`.npy` files, mapped from this machine's disk; each is a column that has its file's name."""

    def __init__(
        self,
        files: Sequence[FileRef],
        part_bytes: int | None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.files, self._options = list(files), dict(options or {})
        super().__init__(self._load(), part_bytes)

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays."""
        if not self._arrays:
            self._arrays = self._load()
        return self._arrays

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arrays": {}}  # mapped anew where it is unpickled

    def _load(self) -> dict[str, Array]:
        return {PurePosixPath(file.key).stem: self._array(file) for file in self.files}

    def _array(self, file: FileRef) -> Array:
        if is_local(file.root):
            path = f"{local_path(file.root)}/{file.key}"
            found: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            with open_file(file, self._options) as stream:
                found = np.load(stream, allow_pickle=False)
        return found

    def fingerprint(self) -> str:
        """What tells them from others: the files' versions."""
        text = repr([(file.key, file.size, file.version) for file in self.files])
        return hashlib.sha256(f"{self.describe()}{text}".encode()).hexdigest()


def _encoding(name: str, array: Array) -> str:
    kind = array.dtype.kind
    if kind == "U" and array.ndim == 1:
        return "str"
    if kind == "S" and array.ndim == 1:
        return "bytes"
    if kind == "O" and array.ndim == 1:
        rows = [{name: value} for value in array[:_INFER_ROWS]]
        return columns_of_samples(rows, "NumPy arrays").get(name, "json")
    if kind == "b" and array.ndim == 1:
        return "json"
    shape = array.shape[1:]
    if not len(array):
        raise SchemaError(f"NumPy arrays: {name!r} has no samples")
    if array.dtype.name not in NUMBERS:
        raise SchemaError(no_encoding(name, f"array of {array.dtype}", "NumPy arrays"))
    if not shape:
        return str(array.dtype.name)
    dims = ",".join(map(str, shape))
    return f"ndarray:{array.dtype.name}:{dims}" if all(shape) else f"ndarray:{array.dtype.name}"


def _plain(values: Array) -> Any:
    """Values as the writer takes them: text and objects as Python's own."""
    return values.tolist() if values.dtype.kind in "USOb" else values
