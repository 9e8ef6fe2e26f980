"""What all writers have in common: shards of limited size, finished in the background.

`write` encodes a sample and adds it to the shard at hand. A shard that is full is put together, and
handed to the background, where it is hashed, compressed, written and uploaded while the next one
fills. `finish` waits for all of it and writes the index last.
"""

from __future__ import annotations

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from streaming.format.compression import compress, get_compression_extension
from streaming.format.destination import Destination, Out, split_out
from streaming.format.errors import EncodeRangeError
from streaming.format.hashing import get_hash
from streaming.format.layout import MAX_SHARD_BYTES, shard_name
from streaming.format.pipeline import Pipeline
from streaming.format.writer_checks import (
    WriterOptions,
    check_compression,
    check_hashes,
    check_size_limit,
)
from streaming.format.writer_columns import column_values

__all__ = ["WriteError", "Writer"]

logger = logging.getLogger(__name__)
Self = TypeVar("Self", bound="Writer")

_MAX_PREPARING = 4


class WriteError(RuntimeError):
    """A data set could not be finished: no index has been published. The cause is chained."""


@dataclass(slots=True)
class _Shard:
    """A finished shard on its way through the background."""

    name: str
    """How messages call it."""
    files: dict[str, tuple[str, bytes | list[bytes]]]
    """The kind of file ("data", "meta") to its name and content, whole or in pieces; emptied when
    it is written."""
    entry: dict[str, Any]
    """What the index will say of it, to be completed."""
    written: list[str] = field(default_factory=list)
    """The files to be uploaded."""


class Writer(ABC):
    """Writes samples into shards. Used in a `with` block, it finishes the data set at its end.

    Not for use by several threads at once. If the block ends by an exception, or something can't be
    written or uploaded, no index is published, so that the data set can't be taken for a whole one.

    Args:
        out: Where to: a folder; a URL (files are staged in a temporary folder, and uploaded while
            writing goes on); or a pair of both, (local, remote).
        keep_local: Whether local files stay when they have been uploaded.
        compression: A compression, with a level if you like: `"zstd"`, `"zstd:7"`.
        hashes: Names of hashes to be kept for each file, in alphabetical order.
        size_limit: Most bytes in a shard before compression, as a number or as `"64mb"`. None (or
            0) puts all samples into one shard, up to 4 GiB. A sample that is larger gets a shard of
            its own.
        extra_bytes_per_shard: Bytes of a shard that are not its samples', for the size limit.
        extra_bytes_per_sample: Bytes that a sample adds beside its own, for the size limit.
        **kwargs: `progress_bar` (False): show what has been uploaded. `max_workers` (the cores and
            4 more, at most 32): uploads at the same time, and nearly as many shards that wait on
            disk. `retry` (2): attempts to upload a file after the first. `exist_ok` (False):
            replace the data set that is there, as soon as the new one is complete; files that are
            not a data set's stay. `storage_options`: options of the store, by name.

    Raises:
        FileExistsError: If there is something at `out` and `exist_ok` is false.
        FormatError: If the compression or a hash is unknown.
        TypeError: If an argument is unknown, or of the wrong type.
        ValueError: If an argument's value makes no sense.
        StoreError: If the store can't be reached.
    """

    format: ClassVar[str] = ""
    """The format's name, in the index and as the files' extension."""

    local: str
    """The folder of the local data set (a temporary one if `out` is a URL)."""
    remote: str | None
    """The URL of the remote data set, or None."""
    shards: list[dict[str, Any]]
    """What the index says of each finished shard; hashes and sizes are added in the background."""
    new_samples: list[bytes]
    """The encoded samples of the shard at hand."""
    new_shard_size: int
    """What its size in bytes would be by now."""

    def __init__(
        self,
        *,
        out: Out,
        keep_local: bool = False,
        compression: str | None = None,
        hashes: list[str] | None = None,
        size_limit: int | str | None = 1 << 26,
        extra_bytes_per_shard: int = 0,
        extra_bytes_per_sample: int = 0,
        **kwargs: Any,
    ) -> None:
        options = WriterOptions.parse(type(self).__name__, kwargs)
        self.keep_local = keep_local
        self.compression = check_compression(compression)
        self.hashes = check_hashes(hashes)
        self.size_limit = check_size_limit(size_limit)
        self.extra_bytes_per_shard = extra_bytes_per_shard
        self.extra_bytes_per_sample = extra_bytes_per_sample
        self.shards = []
        self._written = 0
        self._finished = False
        _, remote = split_out(out)
        self._pipeline: Pipeline[_Shard] = Pipeline(
            self._prepare,
            self._deliver if remote is not None else None,
            preparing=min(_MAX_PREPARING, os.cpu_count() or 1),
            delivering=options.workers,
        )
        self._destination = Destination(
            out,
            keep_local=keep_local,
            exist_ok=options.exist_ok,
            retries=options.retry,
            progress_bar=options.progress_bar,
            storage_options=options.storage_options,
            sleep=self._pipeline.sleep,
        )
        self.local = self._destination.local
        self.remote = self._destination.remote
        self._reset_cache()

    _encoding = 0
    """Which sample of a batch is being encoded."""

    # What a subclass defines.

    @abstractmethod
    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        """Turn a sample into the bytes that it has in a shard.

        Args:
            sample: The values by column.

        Returns:
            The bytes.

        Raises:
            FormatError: If it is not a sample of this data set.
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """What the header of each shard, and its entry in the index, say of the data set."""
        return {
            "version": 2,
            "format": self.format,
            "compression": self.compression,
            "hashes": self.hashes,
            "size_limit": self.size_limit,
        }

    @abstractmethod
    def flush_shard(self) -> None:
        """Put the samples at hand together and hand them to the background as a shard."""
        raise NotImplementedError

    # What users call.

    def write(self, sample: dict[str, Any]) -> None:
        """Add a sample.

        Args:
            sample: The values by column, for exactly the data set's columns.

        Raises:
            FormatError: If the sample can't be written; the message names column and sample. The
                writer is as it was before, and may go on.
            WriteError: If an earlier shard could not be written or uploaded.
            ValueError: If the writer has been finished.
        """
        if self._finished or self._pipeline.error is not None:
            self._refuse()
        self._append(self.encode_sample(sample))

    def write_batch(self, columns: Any) -> None:
        """Add samples that are given as columns; what is written is what :meth:`write` writes.

        Args:
            columns: Column name to values, for exactly the data set's columns and of one length:
                NumPy arrays or torch tensors whose first axis counts the samples, Arrow arrays, or
                lists. An Arrow table or record batch is one as well.

        Raises:
            FormatError: If a sample can't be written; the message names column and sample. None of
                the batch has been written then, and the writer may go on.
            WriteError: If an earlier shard could not be written or uploaded.
            ValueError: If the writer has been finished.

        Example:
            >>> import tempfile
            >>> import numpy as np
            >>> from streaming import LocalDataset, MDSWriter
            >>> folder = tempfile.mkdtemp()
            >>> with MDSWriter(columns={"id": "int64", "text": "str"}, out=folder) as writer:
            ...     writer.write_batch({"id": np.arange(3), "text": ["a", "b", "c"]})
            >>> LocalDataset(folder)[2]["text"]
            'c'
        """
        if self._finished or self._pipeline.error is not None:
            self._refuse()
        values, count = column_values(columns)
        samples = self._encode_batch(values, count)
        self._check_alone(max(map(len, samples), default=0))
        self._extend(samples)

    def _encode_batch(self, columns: Mapping[str, Any], count: int) -> list[bytes]:
        """Encode samples given as columns, each on its own."""
        samples = []
        try:
            for at in range(count):
                self._encoding = at
                sample = {name: values[at] for name, values in columns.items()}
                samples.append(self.encode_sample(sample))
        finally:
            self._encoding = 0
        return samples

    def _append(self, data: bytes) -> None:
        size = self.new_shard_size + len(data) + self.extra_bytes_per_sample
        if size > self._limit:
            self._check_alone(len(data))
            self.flush_shard()
            self._reset_cache()
            size = self.new_shard_size + len(data) + self.extra_bytes_per_sample
        self.new_samples.append(data)
        self.new_shard_size = size

    def _extend(self, samples: list[bytes]) -> None:
        """As `_append` one by one, but as many at a time as the shard at hand takes."""
        sizes = np.fromiter(map(len, samples), np.int64, len(samples))
        ends = np.append(0, np.cumsum(sizes + self.extra_bytes_per_sample))
        begin = 0
        while begin < len(samples):
            room = self._limit - self.new_shard_size
            stop = int(np.searchsorted(ends, ends[begin] + room, side="right")) - 1
            if stop <= begin:
                self._append(samples[begin])  # the first of another shard
                begin += 1
                continue
            self.new_samples += samples[begin:stop]
            self.new_shard_size += int(ends[stop] - ends[begin])
            begin = stop

    def finish(self) -> None:
        """Write what is left, wait for the background, and publish the index. May be repeated.

        Raises:
            WriteError: If something could not be written or uploaded. No index has been published;
                the message says what failed, and what is left where.
        """
        if self._finished and self._pipeline.error is None:
            return
        try:
            if self._finished:
                self._refuse()
            if self.new_samples:
                self.flush_shard()
                self._reset_cache()
            self._pipeline.drain()
            if self._pipeline.error is not None:
                self._refuse()
            self._publish()
        except BaseException:
            self._give_up()
            raise
        self._finished = True

    def cancel_future_jobs(self) -> None:
        """Call off the uploads that have not begun; what is uploaded can't be finished then."""
        if self.remote is not None:
            self._pipeline.cancel(RuntimeError("cancel_future_jobs() was called"))

    def exception_callback(self, future: Future[Any]) -> None:
        """Call everything off if a future has failed.

        Args:
            future: One that is done.
        """
        error = future.exception()
        if error is not None:
            self._pipeline.cancel(error)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
            return
        if not self._finished:
            self._give_up()
            logger.warning(
                "The data set at %s is incomplete because of %s, and has no index: %s",
                self.remote or self.local,
                kind.__name__,
                self._destination.left(),
            )

    # The shard at hand.

    @property
    def _next_sample(self) -> int:
        """The number of the sample that would be written next, counted from 0."""
        return self._written + len(self.new_samples) + self._encoding

    @property
    def _unlisted_bytes(self) -> int:
        """Bytes before the first sample of a file with offsets that the size limit ignores."""
        return 0

    def _reset_cache(self) -> None:
        """Begin a new shard."""
        self.new_samples = []
        self.new_shard_size = self.extra_bytes_per_shard
        most = MAX_SHARD_BYTES - self._unlisted_bytes
        self._limit = most if self.size_limit is None else min(self.size_limit, most)

    def _check_alone(self, size: int) -> None:
        """Refuse a sample that would not fit in any shard, before anything has happened."""
        overhead = self.extra_bytes_per_shard + self.extra_bytes_per_sample + self._unlisted_bytes
        if size + overhead > MAX_SHARD_BYTES:
            raise EncodeRangeError(
                f"sample {self._next_sample} has {size} bytes, and {overhead} more make it a "
                f"shard of its own; a shard has {MAX_SHARD_BYTES} bytes at most, because its "
                "offsets have 32 bits"
            )

    def _hand_over(self, files: Mapping[str, tuple[str, bytes | list[bytes]]]) -> None:
        """Give a shard to the background, as soon as it has room, and begin a new one.

        Args:
            files: The kind of file ("data", "meta") to what its name ends in, and its content, as
                one or in pieces.
        """
        name = shard_name(len(self.shards), self.format)
        entry = {"samples": len(self.new_samples), **self.get_config()}
        shard = _Shard(name, {}, entry)
        for kind, (suffix, data) in files.items():
            shard.files[kind] = (name + suffix, data)
            size = len(data) if isinstance(data, bytes) else sum(map(len, data))
            entry[f"raw_{kind}"] = {"basename": name + suffix, "bytes": size, "hashes": {}}
            entry[f"zip_{kind}"] = None
        self._pipeline.submit(shard)
        if self._pipeline.error is not None:
            self._refuse()
        self.shards.append(entry)
        self._written += len(self.new_samples)
        self._reset_cache()

    # The background. These two run in other threads, and touch nothing but their shard.

    def _prepare(self, shard: _Shard) -> None:
        while shard.files:
            kind, (name, data) = shard.files.popitem()
            raw = shard.entry[f"raw_{kind}"]
            if not self.hashes and self.compression is None:
                self._destination.write(name, data)
                shard.written.append(name)
                continue
            if isinstance(data, list):
                data = b"".join(data)
            raw["hashes"] = {algo: get_hash(algo, data) for algo in self.hashes}
            if self.compression is not None:
                data = compress(self.compression, data)
                name += "." + get_compression_extension(self.compression)
                hashes = {algo: get_hash(algo, data) for algo in self.hashes}
                zipped = {"basename": name, "bytes": len(data), "hashes": hashes}
                shard.entry[f"zip_{kind}"] = zipped
            self._destination.write(name, data)
            shard.written.append(name)

    def _deliver(self, shard: _Shard) -> None:
        for name in shard.written:
            self._destination.upload(name)

    # The end.

    def _publish(self) -> None:
        index = json.dumps({"version": 2, "shards": self.shards}, sort_keys=True).encode()
        form = "raw" if self.compression is None else "zip"
        files = (shard.get(f"{form}_{kind}") for shard in self.shards for kind in ("data", "meta"))
        try:
            self._destination.publish(index, {file["basename"] for file in files if file})
        except Exception as exc:
            self._pipeline.cancel(exc)
            self._refuse()

    def _give_up(self) -> None:
        self._finished = True
        self._pipeline.stop(RuntimeError("the writer gave up"))
        self._destination.close()

    def _refuse(self) -> NoReturn:
        """Say why nothing more can be written."""
        error = self._pipeline.error
        if error is None:
            raise ValueError("this writer is finished; write to a new one, at another place")
        # What others are still uploading is part of what is left.
        self._pipeline.drain()
        failed = self._pipeline.failed
        raise WriteError(
            f"The data set at {self.remote or self.local} could not be written: "
            f"{failed.name + ': ' if failed else ''}{error or type(error).__name__}. "
            f"It has no index; {self._destination.left()}"
        ) from error
