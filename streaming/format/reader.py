"""What all shard readers share: their files, and reading samples from them."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.format.array import Array
from streaming.format.decoding import Put
from streaming.format.errors import CorruptShardError, FormatError
from streaming.format.gather import Positions, as_slice, put
from streaming.format.info import FileInfo
from streaming.format.mapping import OpenFile, Positioned
from streaming.format.opening import Opened, open_pair, read_offsets, read_spans
from streaming.units import bytes_to_int

__all__ = ["Reader"]

_FEW = 32
"""Up to so many samples are read into columns one by one: a step for each column costs more."""


class Reader(Array, ABC):
    """One shard, read sample by sample or in batches.

    The shard is opened by :meth:`open`, or by the first read. Then its size and its table of
    offsets are checked, so that a damaged file is an error and never another sample. Any number of
    threads may read. A pickled reader arrives closed.

    Args:
        dirname: The stream's directory.
        split: Its subdirectory, or None.
        compression: What the files are compressed with, or None.
        hashes: The hash algorithms that the writer applied.
        samples: How many samples there are.
        size_limit: The writer's limit for a shard, in bytes.
    """

    def __init__(
        self,
        dirname: str,
        split: str | None,
        compression: str | None,
        hashes: list[str],
        samples: int,
        size_limit: int | str | None,
    ) -> None:
        self.dirname = dirname
        self.split = split or ""
        self.compression = compression
        self.hashes = hashes
        self.samples = samples
        self.size_limit = None if size_limit is None else bytes_to_int(size_limit)
        self.file_pairs: list[tuple[FileInfo, FileInfo | None]] = []
        """Each file of the shard, raw and compressed; the one with the samples comes last."""
        self._read = [0]
        self._opened: Opened | None = None
        self._opening = threading.Lock()

    # The files.

    def path_of(self, info: FileInfo) -> str:
        """Return where one of the files has its place."""
        return os.path.join(self.dirname, self.split, *info.basename.split("/"))

    @property
    def name(self) -> str:
        """The path of the shard's (raw) file, which errors name."""
        return self.path_of(self.file_pairs[-1][0])

    def get_raw_size(self) -> int:
        """Return the bytes of the raw files together."""
        return sum(raw.bytes for raw, _ in self.file_pairs)

    def get_zip_size(self) -> int | None:
        """Return the bytes of the compressed files together, or None if it is not compressed."""
        sizes = [zipped.bytes for _, zipped in self.file_pairs if zipped is not None]
        return sum(sizes) if sizes else None

    def get_max_size(self) -> int:
        """Return the bytes that the shard takes while both forms are there."""
        return self.get_raw_size() + (self.get_zip_size() or 0)

    def get_persistent_size(self, keep_zip: bool) -> int:
        """Return the bytes that the shard takes for good, with or without the compressed form."""
        return self.get_max_size() if keep_zip else self.get_raw_size()

    def set_up_local(self, listing: set[str], safe_keep_zip: bool) -> int:
        """Return the bytes of the shard that are there, 0 if neither form is whole.

        Args:
            listing: The paths of the files in the directory.
            safe_keep_zip: False to delete the compressed form where the raw one is there too.
        """
        raws = [self.path_of(raw) for raw, _ in self.file_pairs]
        zips = [self.path_of(zipped) for _, zipped in self.file_pairs if zipped is not None]
        has_raw = listing.issuperset(raws)
        has_zip = bool(zips) and listing.issuperset(zips)
        if has_raw and has_zip and not safe_keep_zip:
            for path in zips:
                os.unlink(path)
            has_zip = False
        zip_size = self.get_zip_size() or 0
        return (self.get_raw_size() if has_raw else 0) + (zip_size if has_zip else 0)

    def evict(self) -> int:
        """Delete the shard's files; return the bytes that they had."""
        freed = 0
        for pair in self.file_pairs:
            for info in pair:
                if info is None:
                    continue
                path = self.path_of(info)
                try:
                    size = os.stat(path).st_size
                    os.unlink(path)
                except FileNotFoundError:
                    continue
                freed += size
        return freed

    def validate(self, allow_unsafe_types: bool) -> None:
        """Say whether encodings that can run code when read are allowed here.

        Raises:
            FormatError: The shard has one and they are not.
        """

    @property
    def bytes_read(self) -> int:
        """Bytes of the samples read, for whoever adds them up; it may set this back to 0."""
        return self._read[0]

    @bytes_read.setter
    def bytes_read(self, count: int) -> None:
        self._read[0] = count

    # Opening and closing.

    @property
    def is_open(self) -> bool:
        """Whether the shard is open."""
        return self._opened is not None

    def open(self) -> None:
        """Open the shard; nothing happens if it is open.

        A shard that is there in compressed form alone is decompressed into memory.

        Raises:
            FileNotFoundError: It is there in neither form.
            CorruptShardError: A file has not the size or the table of offsets that it should have,
                or cannot be decompressed.
        """
        self._get_opened()

    def _get_opened(self) -> Opened:
        opened = self._opened
        if opened is None:
            with self._opening:
                opened = self._opened
                if opened is None:
                    opened = self._opened = self._open()
        return opened

    def close(self) -> None:
        """Close the shard. Threads that are reading it finish; the next read opens it again."""
        # The mapping goes with its last reference: closed under a reader, it would be an error.
        self._opened = None

    def unlinked(self) -> bool:
        """Tell whether the shard is open and its file has been deleted or replaced meanwhile."""
        opened = self._opened
        return opened is not None and opened.file.is_unlinked()

    @abstractmethod
    def _open(self) -> Opened:
        """Open the files and check them."""
        raise NotImplementedError

    def _open_pair(self, raw: FileInfo, zipped: FileInfo | None) -> OpenFile:
        zip_path = None if zipped is None else self.path_of(zipped)
        return open_pair(self.path_of(raw), raw, zip_path, zipped, self.compression)

    def _offsets(self, table: OpenFile, first: int, last: int) -> NDArray[np.uint32]:
        least = self._min_bytes()
        return read_offsets(table, self.samples, first, last, least, self._has_fixed_size())

    def first_offset(self) -> int:
        """The least that the first offset in the table can be."""
        return 4 * (self.samples + 2)

    def _min_bytes(self) -> int:
        """The least that a sample can take."""
        return 0

    def _has_fixed_size(self) -> bool:
        """Whether that is what every sample takes."""
        return False

    # Reading.

    @property
    def size(self) -> int:
        """How many samples there are."""
        return self.samples

    def __len__(self) -> int:
        return self.samples

    def sample(self, idx: int) -> dict[str, Any]:
        """Return the sample at ``idx``, from 0 to ``samples - 1``: column name to value.

        Raises:
            IndexError: Out of range.
            FileNotFoundError: The shard is not open and not there.
            CorruptShardError: The shard is damaged.
        """
        opened = self._opened or self._get_opened()
        if not 0 <= idx < self.samples:
            raise self._out_of_range(idx)
        if opened.get is not None:
            try:
                return opened.get(idx)
            except CorruptShardError as err:
                raise CorruptShardError(f"{self.name}: sample {idx}: {err}") from err
        begin, end = opened.offsets.item(idx), opened.offsets.item(idx + 1)
        data = opened.file.data
        if isinstance(data, Positioned):
            data = data[begin:end]
            begin, end = 0, end - begin
        self.bytes_read += end - begin
        try:
            return self._decode(data, begin, end)
        except CorruptShardError as err:
            raise CorruptShardError(f"{self.name}: sample {idx}: {err}") from err

    def getter(self) -> Callable[[int], dict[str, Any]]:
        """Return the quickest way to samples by their numbers, for some reads in a row.

        It does not check the number, errors name no file (:meth:`sample` does and says it), and it
        keeps the file's memory for as long as it is there itself.
        """
        return self._get_opened().get or self.sample

    def get_item(self, idx: int) -> dict[str, Any]:
        """Return the sample at ``idx``, as :meth:`sample` does."""
        return self.sample(idx)

    def get_sample_data(self, idx: int) -> bytes:
        """Return the bytes of the sample at ``idx``, from 0 to ``samples - 1``."""
        opened = self._opened or self._get_opened()
        if not 0 <= idx < self.samples:
            raise self._out_of_range(idx)
        return opened.file.data[opened.offsets.item(idx) : opened.offsets.item(idx + 1)]

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        """Make a sample of its bytes.

        Raises:
            CorruptShardError: They are not a sample of this shard's columns.
        """
        if len(data) < self._min_bytes():
            raise CorruptShardError(f"a sample cannot have {len(data)} bytes")
        return self._decode(bytes(data), 0, len(data))

    def batch(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> dict[str, Any]:
        """Return samples as columns.

        Args:
            indices: Which ones, each from 0 to ``samples - 1``, in any order, also repeatedly.

        Returns:
            For each column of numbers or arrays of fixed size, an array of shape ``(len(indices),
            *shape)``; for each other, the list of values. All of it is the caller's.

        Raises:
            IndexError: Out of range.
            FileNotFoundError: The shard is not open and not there.
            CorruptShardError: The shard is damaged.
        """
        at, data, begins, ends = self._locate(indices)
        try:
            return self._columns(data, begins, ends)
        except (FormatError, UnicodeDecodeError):
            self._name_damaged(at.tolist())
            raise

    def column_layouts(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]] | None]:
        """Return how :meth:`batch` gives each column.

        Returns:
            By column: the type of the array and the shape of each value in it; None for a list.
        """
        return dict.fromkeys(self._names())

    def batch_into(
        self,
        indices: Sequence[int] | NDArray[np.integer[Any]],
        columns: Mapping[str, Any],
        positions: NDArray[np.integer[Any]] | slice,
    ) -> bool:
        """Read samples as :meth:`batch` does, into columns that are there, each at a place of its.

        Args:
            indices: Which ones, each from 0 to ``samples - 1``, in any order, also repeatedly.
            columns: For each column of the shard, what :meth:`column_layouts` says: an array of
                shape ``(any, *shape)``, or a list. Arrays should be C-contiguous.
            positions: Where each sample belongs in them: as many as there are indices, or a slice
                from start to stop. The quickest are places that follow one another.

        Returns:
            Whether the columns are this shard's; if not, nothing has been written to them.

        Raises:
            IndexError: An index is out of range.
            FileNotFoundError: The shard is not open and not there.
            CorruptShardError: The shard is damaged; what the columns hold is undefined then.

        Example:
            >>> import tempfile
            >>> from streaming import LocalDataset, MDSWriter
            >>> folder = tempfile.mkdtemp()
            >>> with MDSWriter(columns={"x": "int32", "s": "str"}, out=folder) as writer:
            ...     writer.write_batch({"x": np.arange(3, dtype="int32"), "s": ["a", "b", "c"]})
            >>> shard = LocalDataset(folder).shards[0]
            >>> columns = {"x": np.zeros(4, "int32"), "s": [None] * 4}
            >>> shard.batch_into([2, 0], columns, np.array([1, 3]))
            True
            >>> columns["x"].tolist(), columns["s"]
            ([0, 2, 0, 0], [None, 'c', None, 'a'])
        """
        if not self._accepts(columns):
            return False
        opened = self._opened or self._get_opened()
        if opened.put is not None and len(indices) <= _FEW:
            self._put_each(opened.put, indices, columns, positions)
            return True
        at, data, begins, ends = self._locate(indices)
        places = positions if isinstance(positions, slice) else as_slice(np.asarray(positions))
        try:
            self._fill(data, begins, ends, columns, places)
        except (FormatError, UnicodeDecodeError):
            self._name_damaged(at.tolist())
            raise
        return True

    def _put_each(
        self,
        put_samples: Put,
        indices: Sequence[int] | NDArray[np.integer[Any]],
        columns: Mapping[str, Any],
        positions: NDArray[np.integer[Any]] | slice,
    ) -> None:
        """Read samples into columns one after the other, which is the quickest for a few."""
        numbers = np.asarray(indices, np.int64).tolist() if len(indices) else []
        for number in numbers:
            if not 0 <= number < self.samples:
                raise self._out_of_range(number)
        if isinstance(positions, slice):
            places: Sequence[int] = range(positions.start, positions.stop)
        else:
            places = np.asarray(positions).tolist()
        try:
            put_samples(numbers, places, columns)
        except (FormatError, UnicodeDecodeError):
            self._name_damaged(numbers)
            raise

    def _locate(
        self, indices: Sequence[int] | NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.int64], Any, NDArray[np.int64], NDArray[np.int64]]:
        """Check sample numbers; return them, a buffer, and where they begin and end in it."""
        opened = self._opened or self._get_opened()
        at = np.asarray(indices, np.int64) if len(indices) else np.empty(0, np.int64)
        if len(at) and not 0 <= at.min() <= at.max() < self.samples:
            raise self._out_of_range(int(at[(at < 0) | (at >= self.samples)][0]))
        begins = opened.offsets[at].astype(np.int64)
        ends = opened.offsets[at + 1].astype(np.int64)
        data = opened.file.data
        if isinstance(data, Positioned):
            data, begins, ends = read_spans(data, begins, ends)
        self.bytes_read += int((ends - begins).sum())
        return at, data, begins, ends

    def _name_damaged(self, indices: Sequence[int]) -> None:
        """Let the first sample that is damaged say so itself."""
        for idx in indices:
            self.sample(idx)

    def _out_of_range(self, idx: int) -> IndexError:
        return IndexError(f"{self.name} has {self.samples} samples, there is no number {idx}")

    @abstractmethod
    def _decode(self, data: Any, begin: int, end: int) -> dict[str, Any]:
        """Make the sample in ``data[begin:end]``, which has at least ``_min_bytes()``."""
        raise NotImplementedError

    def _columns(
        self, data: Any, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> dict[str, Any]:
        spans = zip(begins.tolist(), ends.tolist(), strict=True)
        samples = [self._decode(data, begin, end) for begin, end in spans]
        return {name: [sample[name] for sample in samples] for name in self._names()}

    def _accepts(self, columns: Mapping[str, Any]) -> bool:
        """Tell whether columns are such as :meth:`_fill` fills."""
        lists = all(type(column) is list for column in columns.values())
        return lists and columns.keys() == set(self._names())

    def _fill(
        self,
        data: Any,
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        columns: Mapping[str, Any],
        positions: Positions,
    ) -> None:
        for name, values in self._columns(data, begins, ends).items():
            put(columns[name], positions, values)

    @abstractmethod
    def _names(self) -> Sequence[str]:
        """The columns' names."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield every sample in turn."""
        return map(self.sample, range(self.samples))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_opening": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _opening=threading.Lock(), _read=list(state["_read"]))
