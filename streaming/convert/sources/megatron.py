r"""Megatron's indexed data sets: tokens in a `.bin` file, where sequences are in an `.idx` file.

The index is the magic `MMIDIDX` and two zeros, a uint64 version (1), a byte for the dtype, uint64
numbers of sequences and of document boundaries, then int32 lengths, int64 places in the `.bin`
file, and the int64 boundaries, which count sequences.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from streaming.convert.errors import ConvertError
from streaming.convert.source import Part, Sample, part_bytes_for
from streaming.convert.sources.files import Files, Piece
from streaming.convert.sources.lookup import FileRef, find_files

__all__ = ["MegatronSource"]

_MAGIC = b"MMIDIDX\x00\x00"
_DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float64",
    7: "float32",
    8: "uint16",
}
_READ_BYTES = 1 << 22


class MegatronSource(Files):
    """The documents of indexed data sets: a sample's `tokens` are all of a document's."""

    kind = "Megatron"
    unit = "documents"

    def __init__(
        self,
        files: Sequence[FileRef],
        part_bytes: int | None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        indexes = [file for file in files if file.key.endswith(".idx")]
        if not indexes:
            raise ConvertError(
                f"{files[0].url}: a Megatron data set is named by its .idx file; the .bin file "
                "lies beside it"
            )
        super().__init__(indexes, part_bytes, options)
        known = {file.url: file for file in files}
        self._data = [self._bin(file, known) for file in indexes]
        self.part_bytes = part_bytes_for(sum(file.size for file in self._data), part_bytes)

    def columns(self) -> dict[str, str]:
        """One column, `tokens`, an array of the index's dtype."""
        dtypes = {self._index(at)[0] for at in range(len(self.files))}
        if len(dtypes) > 1:
            raise ConvertError(f"{self.describe()}: tokens are of several dtypes, {sorted(dtypes)}")
        return {"tokens": f"ndarray:{dtypes.pop()}"}

    def pieces(self) -> Iterator[Piece]:
        """Ranges of documents."""
        for number in range(len(self.files)):
            _, starts, _ = self._index(number)
            size = self._data[number].size
            count = len(starts) - 1
            step = max(1, count * min(self.part_bytes, 1 << 20) // max(size, 1))
            for at in range(0, count, step):
                stop = min(at + step, count)
                yield Piece(number, at, stop, int(starts[stop] - starts[at]), stop - at)

    def read(self, part: Part) -> Iterator[Sample]:
        """The documents of a part."""
        for number, first, stop in part.spec:
            dtype, starts, _ = self._index(number)
            with self.open(self._data[number]) as stream:
                stream.seek(int(starts[first]))
                for at in range(first, stop):
                    size = int(starts[at + 1] - starts[at])
                    data = stream.read(size)
                    if len(data) != size:
                        raise ConvertError(
                            f"{self._data[number].url} ends before document {at} does"
                        )
                    yield {"tokens": np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))}

    def _bin(self, index: FileRef, known: Mapping[str, FileRef]) -> FileRef:
        url = index.url[: -len("idx")] + "bin"
        return known.get(url) or find_files(url, self.options)[0]

    def _index(self, number: int) -> tuple[str, np.ndarray[Any, Any], int]:
        """The dtype, where documents begin (and the last one ends), and how many sequences."""
        return self._indexes[number]

    @cached_property
    def _indexes(self) -> list[tuple[str, np.ndarray[Any, Any], int]]:
        return [self._parse(at) for at in range(len(self.files))]

    def _parse(self, number: int) -> tuple[str, np.ndarray[Any, Any], int]:
        file = self.files[number]
        with self.open(file) as stream:
            data = stream.read()
        if data[:9] != _MAGIC or len(data) < 34:
            raise ConvertError(f"{file.url} is not an index of Megatron's")
        version, code, sequences, boundaries = struct.unpack_from("<QBQQ", data, 9)
        needed = 34 + 12 * sequences + 8 * boundaries
        if version != 1 or code not in _DTYPES or len(data) < needed or boundaries < 1:
            raise ConvertError(
                f"{file.url}: version {version}, dtype {code}, {len(data)} bytes of {needed}: it "
                "is damaged, or of another version"
            )
        lengths = np.frombuffer(data, "<i4", sequences, 34).astype(np.int64)
        places = np.frombuffer(data, "<i8", sequences, 34 + 4 * sequences)
        documents = np.frombuffer(data, "<i8", boundaries, 34 + 12 * sequences)
        width = np.dtype(_DTYPES[code]).itemsize
        ends = places + lengths * width
        if documents[0] or documents[-1] != sequences or (np.diff(documents) < 0).any():
            raise ConvertError(f"{file.url}: its documents' boundaries are damaged")
        if (places[1:] != ends[:-1]).any() or (sequences and ends[-1] > self._data[number].size):
            raise ConvertError(
                f"{file.url}: sequences don't follow each other in {self._data[number].url}"
            )
        begins = np.append(places, ends[-1:] if sequences else 0)
        return _DTYPES[code], begins[documents], sequences
