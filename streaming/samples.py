"""The samples of a dataset's streams by their numbers, wherever their shards are."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cached_property
from itertools import repeat
from operator import getitem
from threading import get_ident
from time import perf_counter_ns
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from streaming.cache import ShardCache
from streaming.format.array import Array
from streaming.format.errors import CorruptShardError
from streaming.format.reader import Reader
from streaming.format.shards import ShardList
from streaming.indexes import send_by_name
from streaming.opening import open_streams
from streaming.order.spanner import Spanner
from streaming.stats import Counters, gathered
from streaming.stopwatch import Probe
from streaming.storage import StoreError
from streaming.stream import Stream
from streaming.validation import check_limit

_OF_INDEXES = ("samples_per_shard", "sample_offset_per_shard", "stream_per_shard", "spanner")


class StreamedSamples(Array):
    """What a ``StreamingDataset`` is before anything is dealt out: shards and samples by number."""

    streams: list[Stream]
    cache_limit: int | None
    allow_unsafe_types: bool
    _cache: ShardCache
    _counters: Counters
    _probes: dict[int, Probe]
    """The samples that threads are timing now, by thread."""

    def _open_streams(self) -> None:
        self._probes = {}
        Stream.validate_weights(self.streams)
        self._directories = open_streams(self.streams, self.allow_unsafe_types)
        indexes = [directory.index for directory in self._directories]
        self.shards = ShardList(
            [(directory.index, directory.path) for directory in self._directories],
            self.allow_unsafe_types,
        )
        self.num_streams = len(self.streams)
        self.shards_per_stream = np.array([len(index) for index in indexes], np.int64)
        self.samples_per_stream = np.array([index.num_samples for index in indexes], np.int64)
        self.shard_offset_per_stream = _starts(self.shards_per_stream)
        self.sample_offset_per_stream = _starts(self.samples_per_stream)
        self.num_shards = int(self.shards_per_stream.sum())
        self.num_samples = int(self.samples_per_stream.sum())
        if not self.num_samples:
            raise ValueError(
                f"There are no samples in {', '.join(str(s.path) for s in self.streams)}."
            )
        check_limit(self.cache_limit, self._directories)

    @cached_property
    def samples_per_shard(self) -> NDArray[np.int64]:
        """Samples of each shard, of all streams."""
        return np.concatenate([directory.index.samples for directory in self._directories])

    @cached_property
    def sample_offset_per_shard(self) -> NDArray[np.int64]:
        """The number of each shard's first sample."""
        return _starts(self.samples_per_shard)

    @cached_property
    def stream_per_shard(self) -> NDArray[np.int64]:
        """The stream of each shard."""
        return np.repeat(np.arange(self.num_streams, dtype=np.int64), self.shards_per_stream)

    @cached_property
    def spanner(self) -> Spanner:
        """Finds the shard of a sample."""
        return Spanner(self.samples_per_shard)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what the indexes tell, by the shard, to another process as well."""
        send_by_name((each.index, each.index_path) for each in self._directories)
        state = {name: value for name, value in vars(self).items() if name not in _OF_INDEXES}
        return {**state, "_probes": {}}

    @property
    def size(self) -> int:
        """How many samples the streams hold, each counted once."""
        return self.num_samples

    def __getitem__(self, at: Any) -> Any:
        """One sample by its number, or the list of those of a slice, list or array.

        Raises:
            IndexError: Out of range.
            TypeError: Not an index.
        """
        if type(at) is int and 0 <= at < self.num_samples:
            return self.get_item(at)
        return super().__getitem__(at)

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        """One sample by its number; its shard is fetched if it is not here.

        Args:
            sample_id: From 0 to ``size - 1``.
            retry: How often to fetch the shard again, if others evict it while this thread is
                about to read it.

        Raises:
            StoreError: If the shard can't be fetched.
            CorruptShardError: If it is damaged.
        """
        shard, at = self.spanner[sample_id]
        probe = self._probes.get(get_ident()) if self._probes else None
        while True:
            reader = None
            try:
                reader = self._cache.reader_of_samples(shard)
                return reader.sample(at) if probe is None else probe.read(reader, at)
            except (FileNotFoundError, StoreError, CorruptShardError) as error:
                if reader is None:
                    raise
                if self._cache.give_up_ranges(shard, reader):
                    continue  # the whole shard can be had perhaps, or says more of what is wrong
                # Another thread of ours closed it and somebody evicted it, in between.
                if not isinstance(error, FileNotFoundError) or not retry:
                    raise
                self._cache.forget(shard)
                retry -= 1

    def read_each(self, ids: NDArray[np.int64]) -> Iterator[Any]:
        """Samples by their numbers, each read when its turn has come.

        A subclass that reads samples in a way of its own is asked for each of them.

        Args:
            ids: The samples; not many, since their shards stay open meanwhile.
        """
        kind = type(self)
        if (
            kind.__getitem__ is not StreamedSamples.__getitem__
            or kind.get_item is not StreamedSamples.get_item
        ):
            yield from map(getitem, repeat(self), ids.tolist())
            return
        shards, places = self.spanner.locate(ids)
        getters: dict[int, Callable[[int], Any]] = {}
        for sample_id, shard, at in zip(
            ids.tolist(), shards.tolist(), places.tolist(), strict=True
        ):
            try:
                get = getters.get(shard)
                if get is None:
                    get = getters[shard] = self._cache.reader_of_samples(shard).getter()
                sample = get(at)
            except Exception:
                getters.pop(shard, None)
                sample = self.get_item(sample_id)  # tries other ways, or says what is wrong
            yield sample

    def read_probed(self, ids: NDArray[np.int64], probe: Probe) -> Iterator[Any]:
        """As :meth:`read_each`, with one of the samples timed."""
        yield from self.read_each(ids[: probe.at])
        yield self._probe(probe, int(ids[probe.at]))
        yield from self.read_each(ids[probe.at + 1 :])

    def _probe(self, probe: Probe, sample_id: int) -> Any:
        """A sample, its reading timed; what else it takes is its user's code."""
        thread, here = get_ident(), self._counters.here
        begun, waited = perf_counter_ns(), here.waited
        self._probes[thread] = probe
        try:
            return self[sample_id]
        finally:
            del self._probes[thread]
            probe.whole = perf_counter_ns() - begun - (here.waited - waited)

    def locate(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The shard of each of some samples, and its place in it."""
        return self.spanner.locate(ids)

    def expect(self, shards: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        """Begin to fetch samples whose shards are not here, where that is quicker than those."""
        self._cache.ask(shards, places)

    def shard_reader(self, shard: int) -> Reader:
        """A shard for reading samples; fetched first if it is not here, unless they are quicker."""
        return self._cache.reader_of_samples(shard)

    def peek(self, sample_id: int) -> Any:
        """A sample that does not count as read, to see what samples look like."""
        shard, _ = self.spanner[sample_id]
        reader = self._cache.reader_of_samples(shard)
        before = reader.bytes_read
        sample = self.get_item(sample_id)
        reader.bytes_read = before
        return sample

    def _sample_bytes(self) -> float:
        """What a sample takes on average, in bytes."""
        stored = sum(int(directory.index.raw_bytes.sum()) for directory in self._directories)
        return stored / self.num_samples

    @property
    def cache_usage(self) -> int:
        """What the fetched shards and their indexes take, in bytes."""
        return self._cache.space.usage()

    def prepare_shard(self, shard_id: int, blocking: bool = True) -> None:
        """Fetch a shard if it is not here.

        Args:
            shard_id: The shard.
            blocking: Whether to wait if another process is fetching it.
        """
        self._cache.prepare(shard_id, blocking)

    def evict_shard(self, shard_id: int) -> None:
        """Evict a shard, unless it is its user's original or being fetched."""
        self._cache.evict(shard_id)

    def evict_coldest_shard(self) -> None:
        """Evict the shard that was unused longest."""
        self._cache.evict_coldest()

    @overload
    def stats(self, by: None = None) -> dict[str, int | float]: ...

    @overload
    def stats(self, by: str) -> list[dict[str, Any]]: ...

    def stats(self, by: str | None = None) -> dict[str, int | float] | list[dict[str, Any]]:
        """What this rank and its workers have done since the start, and where their time went.

        Args:
            by: ``"worker"`` for each worker of this rank by itself; its own process is -1.
                ``"rank"`` for each rank, and ``"node"`` for each node: where there is a process
                group, all of its ranks have to call this together.

        Returns:
            Counts: ``samples``, ``bytes_fetched`` (in whole shards), ``bytes_fetched_by_range``
            (samples whose shards were not here), ``bytes_read`` (of samples), ``shards_fetched``,
            ``cache_hits`` (shards opened that were here), ``evictions``, ``retries`` of downloads.

            Seconds of all workers together: ``planning_s``, ``wait_s`` (for downloads),
            ``reading_s``, ``decoding_s``, ``user_code_s`` (an overridden ``__getitem__``, a
            ``batch_transform``), ``collating_s``, ``trainer_s`` (waiting for the trainer), and
            beside them, in threads that fetch, ``decompressing_s``. By column, decoding is part of
            reading; sample by sample, one of a block stands for all.

            Seconds of a :class:`StreamingDataLoader`: ``starved_s`` (waiting for a batch), and
            ``training_s`` (between one batch and the next).

        Raises:
            ValueError: If ``by`` is none of these.

        Example:
            >>> import tempfile
            >>> from streaming import MDSWriter, StreamingDataset
            >>> folder = tempfile.mkdtemp()
            >>> with MDSWriter(out=folder, columns={"x": "int"}) as writer:
            ...     writer.write({"x": 1})
            >>> dataset = StreamingDataset(local=folder, batch_size=1)
            >>> len(list(dataset))
            1
            >>> dataset.stats()["samples"], dataset.stats(by="rank")[0]["bytes_read"]
            (1, 8)
        """
        self._cache.count_read()
        if by is None:
            return self._counters.totals()
        if by == "worker":
            return self._counters.by_worker()
        if by in ("rank", "node"):
            return gathered(self._counters, self._place_in_world(), by)
        raise ValueError(f"`by` is {by!r}: give 'worker', 'rank' or 'node'.")

    def _place_in_world(self) -> tuple[int, int]:
        """This rank's node and number."""
        return 0, 0

    def on_exception(self, future: "Future[Any]") -> None:
        """Raise what a future failed with; kept for code that passes it as a callback."""
        error = future.exception()
        if error is not None:
            raise error


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of some consecutive parts begins."""
    return np.cumsum(sizes) - sizes
