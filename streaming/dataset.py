"""The streaming dataset: it puts order, cache and formats together."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from streaming.batches import BatchMaker
from streaming.cache import MAX_CONNECTIONS, ShardCache
from streaming.epochs import Iteration
from streaming.fingerprint import Fingerprints, check_fingerprint
from streaming.heap import keep_freed_memory
from streaming.need import needs_of, processes_on_node
from streaming.opening import make_streams, reading
from streaming.order.plan import EpochPlan, OrderParams
from streaming.order.sampling import resample
from streaming.placement import Placement, groups_of_mesh
from streaming.planning import (
    Place,
    begin_at,
    canonical_nodes,
    count_batches,
    count_of,
    order_params,
    place_of,
    plan,
    sample_blocks,
    standing_of,
)
from streaming.progress import Progress, superseded
from streaming.samples import StreamedSamples
from streaming.stats import Counters
from streaming.stopwatch import BatchTimes, SampleTimes, Stopwatch
from streaming.stream import Stream
from streaming.thread_workers import thread_worker_info
from streaming.units import bytes_to_int, number_abbrev_to_int
from streaming.validation import check_arguments, check_state
from streaming.watch import spans
from streaming.watch.board import IN_RANK
from streaming.world import World


class StreamingDataset(StreamedSamples, IterableDataset[Any]):
    """A data set of shards that streams from where it lies into a training loop.

    Iterating gives each rank and each ``DataLoader`` worker its part of an epoch's samples, in an
    order that depends on nothing but the arguments. Shards are fetched ahead, kept in a local
    directory, and evicted when it grows past ``cache_limit``. Samples can also be had by their
    number: ``dataset[i]``, negative numbers, slices, lists and arrays.

    Give ``remote``, ``local`` or both, or ``streams``. To transform samples, subclass, override
    ``__getitem__`` and call ``super().__getitem__(i)``: iteration goes through it.

    Args:
        streams: Several streams to mix, in place of ``remote``, ``local`` and ``split``.
        remote: Where the shards come from: a directory or a URL.
        local: Where they are kept on this machine. None for a directory of the temporary folder,
            named by ``remote``.
        split: A subdirectory of both, such as ``train``.
        download_retry: Attempts after a download's first one.
        download_timeout: Longest wait for the next bytes of a download, in seconds.
        validate_hash: Name of the hash to check every shard with; None checks sizes alone.
        keep_zip: Whether to keep the compressed form of shards beside the raw one.
        epoch_size: Samples in an epoch, over all devices, as a number or as in ``"10k"``. None for
            what the streams give.
        predownload: How many samples ahead to fetch shards, for each worker. None to go by bytes.
        cache_limit: Bytes that fetched shards may take, as a number or as in ``"100gb"``. None for
            no limit.
        sampling_method: Whether a stream taken in part gives other samples in each epoch
            (``balanced``), or the same (``fixed``).
        sampling_granularity: How many samples to take from a shard together, when a stream is
            taken in part.
        partition_algo: How samples are dealt out to devices: ``relaxed`` or ``orig``.
        num_canonical_nodes: In how many parts the order is cut, whatever the number of nodes. None
            for the nodes of the first run (64 times as many for ``py1s`` and ``py2s``); fixed by
            it.
        batch_size: Samples in a device's batch. Give the ``DataLoader`` the same.
        shuffle: Whether to shuffle.
        shuffle_algo: ``py1e``, ``py1br``, ``py1s``, ``py2s``, ``naive``, or, for any number of
            samples, ``blockwise``.
        shuffle_seed: The seed of everything that is drawn.
        shuffle_block_size: Samples within which ``py1e``, ``py1br`` and ``blockwise`` shuffle. None
            for ``max(4_000_000 // num_canonical_nodes, 1 << 18)``.
        batching_method: How batches are mixed of streams: ``random``, ``stratified``,
            ``per_stream`` or ``device_per_stream``.
        allow_unsafe_types: Whether to read encodings that can run code when read, such as ``pkl``.
        replication: How many consecutive ranks are given the same samples, for tensor or sequence
            parallelism.
        stream_name: Which registered class the streams made from ``remote`` and ``local`` are of.
        stream_config: Further arguments for that class.
        rank: This process's number among all. None, as for the next two, to find out whenever an
            iteration begins: from torch's process group, or from torchrun's variables.
        world_size: How many processes there are.
        local_world_size: How many of them are on each node.
        device_mesh: A ``torch.distributed.device_mesh.DeviceMesh``, in place of ``replication``.
        replicate_dims: The names of its dimensions along which ranks are given the same samples.
        pad: What to do where samples can't be dealt out evenly: ``repeat`` some, or ``none``, so
            that each comes once and some ranks get a batch less. For evaluation.
        max_connections: Most connections to the remote, of all processes of a node together. So
            many are used as pay.

    Raises:
        ValueError: If an argument makes no sense, naming it.
        FileNotFoundError: If there is no data set there.
        StoreError: If an index can't be fetched.

    Example:
        >>> import tempfile
        >>> from streaming import MDSWriter
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "int"}) as writer:
        ...     for x in range(10):
        ...         writer.write({"x": x})
        >>> dataset = StreamingDataset(local=folder, batch_size=2)
        >>> len(dataset), dataset[-1]
        (10, {'x': 9})
        >>> [sample["x"] for sample in dataset]
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(
        self,
        *,
        streams: Sequence[Stream] | None = None,
        remote: str | None = None,
        local: str | None = None,
        split: str | None = None,
        download_retry: int = 2,
        download_timeout: float = 60.0,
        validate_hash: str | None = None,
        keep_zip: bool = False,
        epoch_size: int | str | None = None,
        predownload: int | None = None,
        cache_limit: int | str | None = None,
        sampling_method: str = "balanced",
        sampling_granularity: int = 1,
        partition_algo: str = "relaxed",
        num_canonical_nodes: int | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        shuffle_algo: str = "py1e",
        shuffle_seed: int = 9176,
        shuffle_block_size: int | None = None,
        batching_method: str = "random",
        allow_unsafe_types: bool = False,
        replication: int | None = None,
        stream_name: str = "stream",
        stream_config: dict[str, Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        local_world_size: int | None = None,
        device_mesh: Any = None,
        replicate_dims: str | Sequence[str] | None = None,
        pad: str = "repeat",
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        # What is read: how often an epoch takes which samples.
        self.sampling_method, self.sampling_granularity = sampling_method, sampling_granularity
        # How it is dealt out.
        self.batch_size, self.batching_method = batch_size, batching_method
        self.partition_algo, self.replication = partition_algo, replication
        self.num_canonical_nodes, self.pad = num_canonical_nodes, pad
        self.initial_physical_nodes: int | None = None
        # How it is shuffled.
        self.shuffle, self.shuffle_algo = shuffle, shuffle_algo
        self.shuffle_seed, self.shuffle_block_size = shuffle_seed, shuffle_block_size
        self.given_block_size = shuffle_block_size
        # How it is brought here.
        self.predownload, self.allow_unsafe_types = predownload, allow_unsafe_types
        self.cache_limit = None if cache_limit is None else bytes_to_int(cache_limit)
        self.max_connections = max_connections
        check_arguments(self)
        groups = groups_of_mesh(replication, device_mesh, replicate_dims)
        if groups is not None:
            self.replication = len(groups[0])
        keep_freed_memory()  # here come the batches of workers, also of those that are forked
        self._placement = Placement(rank, world_size, local_world_size, groups)
        self._samples_ahead = predownload
        if predownload is None:
            self.predownload = 8 * batch_size if batch_size else 64

        self.streams = make_streams(
            streams,
            stream_name,
            stream_config or {},
            {
                "remote": remote,
                "local": local,
                "split": split,
                "download_retry": download_retry,
                "download_timeout": download_timeout,
                "validate_hash": validate_hash,
                "keep_zip": keep_zip,
            },
        )
        self.download_retry, self.download_timeout = download_retry, download_timeout
        self.validate_hash, self.keep_zip = validate_hash, keep_zip
        self.split = split or ""
        self._open_streams()
        size = None if epoch_size is None else number_abbrev_to_int(epoch_size)
        if size is not None and size <= 0:
            raise ValueError(f"`epoch_size` is {epoch_size!r}: give at least 1 sample.")
        self.epoch_size = Stream.apply_weights(
            self.streams, self.samples_per_stream, size, self.shuffle_seed
        )
        self.length = self.epoch_size
        self._progress = Progress()
        self._fingerprints = Fingerprints()
        self._counters = Counters(self._progress.board, self._name())
        self._cache = ShardCache(
            self._directories,
            self.shards,
            self.cache_limit,
            self._counters.add,
            max_connections=max_connections,
            waits=self._counters.waiting,
        )

    def _name(self) -> str:
        """What others call it who look at what runs on the machine."""
        more = f" and {self.num_streams - 1} more" if self.num_streams > 1 else ""
        return f"{self._directories[0].url}{more}"

    def __len__(self) -> int:
        """How many samples this device is given in an epoch, repeats to come out even included."""
        world = self._world()
        params = order_params(self, world, batch_size=1)
        return plan(params, world).count(world.node, world.rank_of_node)

    # Iterating.

    def __iter__(self) -> Iterator[Any]:
        """This worker's samples of the next epoch, or of what is left of a resumed one.

        Raises:
            RuntimeError: If a later iteration over this dataset has begun: that ends this one.
        """
        return self._samples(*self._start())

    def iterate_batches(
        self,
        batch_size: int,
        drop_last: bool,
        memory: Callable[[int], NDArray[np.uint8]] | None = None,
    ) -> Iterator[tuple[Any, int]]:
        """This worker's batches, made column by column, where iterating would give samples.

        Args:
            batch_size: Samples in a batch.
            drop_last: Whether to leave out a last batch that is not full.
            memory: Gives memory for the arrays of several batches, given its size in bytes; None
                for arrays of their own.

        Returns:
            Each batch, equal to what torch's default collate makes of its samples, and how many
            samples it is of.

        Raises:
            RuntimeError: If a later iteration over this dataset has begun: that ends this one.
        """
        maker = BatchMaker(self, self._sample_bytes(), memory)
        return self._batches(*self._start(), maker, batch_size, drop_last)

    def parts_for_threads(self, workers: int) -> list[tuple[Iteration, EpochPlan, World]]:
        """What each of a loader's worker threads is to read, in an iteration that has begun.

        To be called between :meth:`begin_for_workers` and :meth:`workers_have_begun`.
        """
        world = self._world()
        worlds = [
            World(world.num_nodes, world.ranks_per_node, workers, world.rank * workers + worker)
            for worker in range(workers)
        ]
        iteration = self._progress.assigned
        params = self._settle(worlds[0])
        epoch = plan(params, worlds[0], iteration.epoch, iteration.sample_in_epoch)
        return [(iteration, epoch, each) for each in worlds]

    def _start(self) -> tuple[Iteration, EpochPlan, World]:
        keep_freed_memory()
        thread = thread_worker_info()
        if thread is not None and thread.dataset is self:
            part: tuple[Iteration, EpochPlan, World] = thread.part
            self._counters.begin(part[0], part[2])
            return part
        world = self._world()
        params = self._settle(world)
        iteration = self._progress.begin(
            partial(begin_at, params, world), standing_of(world), partial(count_of, params, world)
        )
        self._counters.owner = self._progress.owner
        epoch = plan(params, world, iteration.epoch, iteration.sample_in_epoch)
        self._counters.begin(iteration, world)
        return iteration, epoch, world

    def _samples(self, iteration: Iteration, epoch: EpochPlan, world: World) -> Iterator[Any]:
        place = place_of(world)
        progress = self._own_progress()
        skip = progress.done
        latest, serial = self._progress.board.watch(iteration), iteration.serial
        step = max(1, min(self.batch_size or 1, 64))
        times = SampleTimes(self._counters)
        with self._fetching_ahead(epoch, place, skip, times) as advance:
            for ids in times.planned(sample_blocks(epoch, place, skip)):
                for start in range(0, len(ids), step):
                    part = ids[start : start + step]
                    for sample in times.made(self, part):
                        if latest[0] != serial:
                            raise superseded(iteration)
                        progress.done += 1
                        yield sample
                    advance(len(part))
        self._counters.end(iteration, world)

    def _own_progress(self) -> Any:
        """What notes how many samples this worker has been given: threads don't share one."""
        thread = thread_worker_info()
        own = thread is None or thread.dataset is not self
        return self._progress if own else SimpleNamespace(done=0)

    def _batches(
        self,
        iteration: Iteration,
        epoch: EpochPlan,
        world: World,
        maker: BatchMaker,
        size: int,
        drop_last: bool,
    ) -> Iterator[tuple[Any, int]]:
        progress = self._own_progress()
        place, skip = place_of(world), progress.done
        times = BatchTimes(self._counters, maker)
        with self._fetching_ahead(epoch, place, skip, times) as advance:
            blocks = times.planned(sample_blocks(epoch, place, skip))
            for batches in maker.stretches(blocks, size, drop_last):
                for ids, batch in zip(batches, times.made(batches), strict=True):
                    self._progress.check(iteration)
                    progress.done += len(ids)
                    yield batch, len(ids)
                advance(sum(map(len, batches)))
        self._counters.end(iteration, world)

    @contextmanager
    def _fetching_ahead(
        self, epoch: EpochPlan, place: Place, skip: int, times: Stopwatch
    ) -> Iterator[Callable[[int], None]]:
        """Fetch what an iteration will need; what is yielded is told how much it has used."""
        needs = needs_of(self, epoch, place, skip)
        ahead = self._cache.ahead(needs, processes_on_node(self))
        done = 0

        def advance(samples: int) -> None:
            nonlocal done
            done += samples
            self._cache.refresh()
            times.count(samples)
            self._counters.flush_now_and_then()
            if ahead is not None:
                ahead.advance(done)

        try:
            with reading(self._directories):
                yield advance
        finally:
            if ahead is not None:
                ahead.stop()
            self._cache.count_read()
            times.finish()
            self._counters.flush()

    def begin_for_workers(self) -> int:
        """Begin an iteration for the workers that a loader is about to start or wake.

        Returns:
            Over how many ranks, each replica group counted once, the samples are dealt out.
        """
        world = self._world()
        params = self._settle(world)
        self._progress.announce(partial(begin_at, params, world))
        spans.name_process(world.rank, IN_RANK)
        return world.num_ranks

    def workers_have_begun(self) -> None:
        """End what :meth:`begin_for_workers` began: other loaders' iterations are on their own."""
        self._progress.announced()

    def count_batches(
        self, workers: int, batch_size: int | None, drop_last: bool, remaining: bool = False
    ) -> int:
        """How many batches a loader gives this rank in an epoch.

        Args:
            workers: The loader's number of workers.
            batch_size: Its batch size; None if it gives samples one by one.
            drop_last: Whether it drops each worker's last batch if that is not full.
            remaining: Whether to count from where the present iteration began, and for the rank
                that is given most: until then, an epoch is not over for all of them.
        """
        world = self._world()
        params = order_params(self, world, batch_size or 1)
        position = self._progress.board.position() if remaining else (0, 0)
        if remaining:
            # The first rank comes first in every round, so that none is given more.
            world = World(world.num_nodes, world.ranks_per_node, 1, 0)
        return count_batches(params, world, workers, batch_size, drop_last, position)

    def _settle(self, world: World) -> OrderParams:
        """Fix what the first run determines, or a checkpoint, and give the order that follows."""
        order = self._progress.board.order(self._progress.owner)
        if order is not None:
            # It may have been loaded after this worker was started.
            self.num_canonical_nodes, self.shuffle_seed, self.initial_physical_nodes = order
        params = order_params(self, world)
        self.num_canonical_nodes = params.num_canonical_nodes
        self.shuffle_block_size = params.shuffle_block_size
        return params

    def _world(self) -> World:
        """The world as iteration sees it now, in this process: each replica group is one rank."""
        return self._placement.shared(self._rank_world(), self.replication)

    def _rank_world(self) -> World:
        return self._placement.of_rank()

    def _place_in_world(self) -> tuple[int, int]:
        world = self._rank_world()
        return world.node, world.rank

    def resample_streams(
        self, epoch: int, stream_id: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which samples an epoch takes, and in which units they are shuffled.

        Args:
            epoch: The epoch.
            stream_id: One stream, or None for all.

        Returns:
            The sizes of the units that shuffling treats as shards, and the samples' numbers, in
            the same order.
        """
        return resample(order_params(self, self._world(), batch_size=1), epoch, stream_id)

    # Checkpoints.

    @property
    def next_epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._progress.board.next_epoch

    @next_epoch.setter
    def next_epoch(self, epoch: int) -> None:
        self._progress.board.resume((epoch, 0))

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of an epoch, unless that or a later one comes next anyway.

        Training libraries that count epochs call it. What was loaded is not undone by it; to go
        back, set :attr:`next_epoch`.
        """
        if epoch > self.next_epoch:
            self.next_epoch = epoch

    def state_dict(
        self, num_samples: int | None = None, from_beginning: bool | None = None
    ) -> dict[str, Any]:
        """A checkpoint of the present epoch, plain JSON.

        Without arguments it is of this process alone, which has to be the one that iterates: a
        loader worker, or a rank that has none. With them it is of all ranks, and may be loaded in
        another world.

        Args:
            num_samples: Samples handed out over all devices, each replica group once: in this
                epoch, or since it was resumed.
            from_beginning: Whether they are counted from the beginning of the epoch.

        Returns:
            The state, for :meth:`load_state_dict`.

        Raises:
            RuntimeError: If it is called without arguments where workers iterate.
        """
        world = self._world()
        own = None
        if num_samples is None or from_beginning is None:
            if num_samples is not None or from_beginning is not None:
                raise TypeError("Give both `num_samples` and `from_beginning`, or neither.")
            (epoch, sample), own = self._progress.own(standing_of(world))
        else:
            epoch, offset = self._progress.board.position()
            sample = num_samples if from_beginning else offset + num_samples
        nodes = canonical_nodes(self, world)
        initial_nodes = self.initial_physical_nodes or world.num_nodes
        state = {
            "epoch": epoch,
            "sample_in_epoch": sample,
            "num_canonical_nodes": nodes,
            "shuffle_seed": self.shuffle_seed,
            "initial_physical_nodes": initial_nodes,
            "fingerprint": self._fingerprints.of(self, world, nodes, initial_nodes),
        }
        return state if own is None else {**state, "process": own.to_json()}

    def load_state_dict(self, obj: dict[str, Any], strict: bool = True) -> None:
        """Let the next iteration begin where a checkpoint was made, or after a finished epoch.

        Args:
            obj: What :meth:`state_dict` gave, here or in mosaicml-streaming.
            strict: Whether to refuse a checkpoint that belongs to another order of samples. Those
                of mosaicml-streaming don't say which they belong to.

        Raises:
            ValueError: If that is no such state, or belongs to another order.
        """
        state = check_state(obj)
        nodes, initial_nodes = state["num_canonical_nodes"], state["initial_physical_nodes"]
        if strict and state["fingerprint"] is not None:
            present = self._fingerprints.of(self, self._world(), nodes, initial_nodes)
            check_fingerprint(state["fingerprint"], present)
        self.num_canonical_nodes, self.initial_physical_nodes = nodes, initial_nodes
        self.shuffle_seed = state["shuffle_seed"]
        self._progress.board.set_order(
            nodes, self.shuffle_seed, initial_nodes, self._progress.owner
        )
        position = max(state["epoch"], 0), state["sample_in_epoch"]
        if state["epoch_finished"]:
            position = state["epoch"] + 1, 0
        self._progress.resume(position, state["process"])
