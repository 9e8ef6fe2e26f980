"""Where a loader's batches come from: this thread, worker threads, or worker processes.

Each source is an iterator of batches with their numbers of samples.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, repeat
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from streaming.arena import Arena
from streaming.collate import collate_like_torch
from streaming.packing import LongBytes, Packed, Packer, Received, failure_in, register
from streaming.stats import Counters
from streaming.thread_workers import ThreadWorkerInfo
from streaming.threads import Raised, ThreadPool, ThreadRun
from streaming.turns import Parcel, Turns, parcels, sizes
from streaming.watch import spans

LONG_BYTES = 4 << 10
"""Byte strings of a column from this length on, on average, go through shared memory."""

Transform = Callable[[Any], Any]


class Counted:
    """A batch, with the number of samples that went into it."""

    __slots__ = ("batch", "samples")

    def __init__(self, batch: Any, samples: int) -> None:
        self.batch = batch
        self.samples = samples

    def pin_memory(self, device: Any = None) -> Counted:
        """Called by the loader's pinning thread."""
        from torch.utils.data._utils.pin_memory import pin_memory

        self.batch = pin_memory(self.batch, device)  # type: ignore[no-untyped-call]
        return self


class Counting:
    """A collate function that notes how many samples it was given, and how long it took.

    Args:
        collate: The collate function.
        batched: Whether it is given lists of samples.
        transform: What to make of a collated batch, or None.
        counters: Where its time goes; None if nobody asks.
    """

    def __init__(
        self,
        collate: Callable[[Any], Any],
        batched: bool,
        transform: Transform | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.collate = collate
        self.batched = batched
        self.transform = transform
        self._counters = counters

    def __call__(self, samples: Any) -> Counted:
        """Collate some samples; without automatic batching, one."""
        count = len(samples) if self.batched else 1
        begun = perf_counter_ns()
        with spans.span("collate"):
            batch = self.collate(samples)
        collated = perf_counter_ns()
        if self.transform is not None:
            with spans.span("transform"):
                batch = self.transform(batch)
        if self._counters is not None:
            self._counters.made_of_samples(collated - begun, perf_counter_ns() - collated)
        return Counted(batch, count)


def counters_of(dataset: Any) -> Counters | None:
    """Where the times of a dataset's iterations go; None if it is not one of ours."""
    return getattr(dataset, "_counters", None)


def counting(loader: DataLoader[Any]) -> Counting:
    """A loader's collate function, which notes how many samples it was given."""
    collate = collate_like_torch if loader.collate_fn is default_collate else loader.collate_fn
    transform = getattr(loader, "batch_transform", None)
    counters = counters_of(loader.dataset)
    return Counting(collate, loader.batch_size is not None, transform, counters)


def as_it_is(batch: Any) -> Any:
    """Collate nothing."""
    return batch


def by_column(
    dataset: Any,
    batch_size: int,
    drop_last: bool,
    transform: Transform | None,
    memory: Callable[[int], NDArray[np.uint8]] | None = None,
) -> Iterator[Counted]:
    """A worker's batches, made column by column. The iteration begins now, not with the first."""
    batches = dataset.iterate_batches(batch_size, drop_last, memory)
    return _counted(batches, transform, dataset._counters)


def _counted(
    batches: Iterator[tuple[Any, int]], transform: Transform | None, counters: Counters
) -> Iterator[Counted]:
    for batch, samples in batches:
        if transform is None:
            yield Counted(batch, samples)
            continue
        begun = perf_counter_ns()
        with spans.span("transform"):
            transformed = transform(batch)
        counters.made_of_samples(0, perf_counter_ns() - begun)
        yield Counted(transformed, samples)


class BySample:
    """A worker's batches, made of samples by a collate function, as torch's workers make them.

    Args:
        loader: Whose dataset, batch size and functions they are made with.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._size, self._drop_last = loader.batch_size, loader.drop_last
        self._collate = counting(loader)
        self._samples = iter(loader.dataset)

    def __iter__(self) -> BySample:
        return self

    def __next__(self) -> Counted:
        if self._size is None:
            return self._collate(next(self._samples))
        samples = list(islice(self._samples, self._size))
        if not samples or (self._drop_last and len(samples) < self._size):
            raise StopIteration
        return self._collate(samples)


# In this thread.


def begin_here(loader: Any) -> Iterator[Counted]:
    """Make batches by column where they are asked for."""
    _seed_of(loader)  # torch draws one for each iteration, whether or not there are workers
    batches = by_column(loader.dataset, loader.batch_size, loader.drop_last, loader.batch_transform)
    return map(Counted.pin_memory, batches) if _pins(loader) else batches


def _seed_of(loader: Any) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())


def _pins(loader: Any) -> bool:
    """Whether batches are to be copied into pinned memory; as torch warns, that takes a device."""
    if not loader.pin_memory:
        return False
    accelerator = getattr(torch, "accelerator", None)
    return torch.cuda.is_available() if accelerator is None else accelerator.is_available()


# In threads.


def begin_threads(loader: Any, pool: ThreadPool, columns: bool) -> Iterator[Counted]:
    """Make batches in the threads of a pool."""
    dataset, workers = loader.dataset, loader.num_workers
    seed = _seed_of(loader)
    infos = [
        ThreadWorkerInfo(worker, workers, seed + worker, dataset, part)
        for worker, part in enumerate(dataset.parts_for_threads(workers))
    ]
    made: Callable[[], Iterator[Counted]] = partial(BySample, loader)
    counts: Callable[[], Iterator[int]] = partial(repeat, 1)
    if columns:
        size = loader.batch_size
        made = partial(by_column, dataset, size, loader.drop_last, loader.batch_transform)
        counts = partial(sizes, size * dataset._sample_bytes())
    make = partial(_thread_parcels, made, counts, _pins(loader))
    in_order = getattr(loader, "in_order", True)
    run = pool.run(infos, make, loader.prefetch_factor or 2, loader.timeout, in_order)
    return _Threads(run, workers, in_order)


class _Threads(Turns[Counted]):
    """The turns of a run of threads, which stop when it is dropped."""

    def __init__(self, run: ThreadRun, workers: int, in_order: bool) -> None:
        super().__init__(workers, run.pull, in_order)
        self._run = run


def _thread_parcels(
    make: Callable[[], Iterator[Counted]],
    counts: Callable[[], Iterator[int]],
    pins: bool,
    info: ThreadWorkerInfo,
) -> Iterator[Parcel[Counted]]:
    batches = make()
    return parcels(info.id, map(Counted.pin_memory, batches) if pins else batches, counts(), Raised)


# In processes.

SOCKET_PATH = 107
"""Longest name of a socket in the file system, in bytes."""
SOCKET_NAME = "/pymp-12345678/listener-12345678"
"""What multiprocessing calls the sockets of worker processes, below the temporary directory."""


def check_socket_paths() -> None:
    """Check that workers can send tensors, which torch does through sockets with names.

    Where those would be too long, a worker drops every batch with a message on its standard error,
    and the process that waits for them waits for ever.

    Raises:
        RuntimeError: If the temporary directory's path is too long.
    """
    folder = tempfile.gettempdir()
    room = SOCKET_PATH - len(SOCKET_NAME)
    sends_files = torch.multiprocessing.get_sharing_strategy() == "file_descriptor"  # type: ignore[no-untyped-call]
    if sys.platform == "linux" and sends_files and len(os.fsencode(folder)) > room:
        raise RuntimeError(
            f"Loader workers can't send tensors through sockets in {folder}: the path of the "
            f"temporary directory may have {room} bytes at most. Set the variable TMPDIR to a "
            "shorter one."
        )


class BatchesByColumn(IterableDataset[Any]):
    """A dataset's batches, as a dataset whose items they are: parcels of them, in workers.

    Args:
        dataset: The dataset.
        batch_size: Samples in a batch.
        drop_last: Whether to leave out a last batch that is not full.
        transform: What to make of a batch, or None.
    """

    def __init__(
        self, dataset: Any, batch_size: int, drop_last: bool, transform: Transform | None
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.transform = transform
        self.arena: Arena | None = None
        self.number = 0
        self._packer: Packer | None = None

    def __iter__(self) -> Iterator[Any]:
        """This worker's parcels, packed to be sent; without shared memory, as they are."""
        info = get_worker_info()
        assert info is not None, "parcels are made in workers"
        if self.arena is not None and self._packer is None:
            self._packer = Packer(self.arena, self.number, info.id)
        packer = self._packer
        memory = None if packer is None else packer.empty
        batches = by_column(self.dataset, self.batch_size, self.drop_last, self.transform, memory)
        made = parcels(
            info.id,
            batches,
            sizes(self.batch_size * self.dataset._sample_bytes()),
            lambda _: failure_in(info.id),
        )
        if packer is None:
            return map(_Unpacked, made)
        return (_pack(packer, parcel) for parcel in made)


def _pack(packer: Packer, parcel: Parcel[Counted]) -> Packed:
    for counted in parcel.items:
        if type(counted.batch) is dict:
            counted.batch = {name: _marked(column) for name, column in counted.batch.items()}
    return packer.pack(parcel)


def _marked(column: Any) -> Any:
    """A column as it is to be packed: long byte strings by themselves."""
    if type(column) is list and column and all(type(value) is bytes for value in column):
        return LongBytes(column) if sum(map(len, column)) >= LONG_BYTES * len(column) else column
    return column


class _Unpacked:
    """A parcel that travels in torch's own way, for want of shared memory without a name."""

    def __init__(self, parcel: Parcel[Counted]) -> None:
        self._parcel = parcel

    def open(self) -> Parcel[Counted]:
        """The parcel."""
        return self._parcel

    def pin_memory(self, device: Any = None) -> _Unpacked:
        """Called by the loader's pinning thread."""
        self._parcel.items = [item.pin_memory(device) for item in self._parcel.items]
        return self


def begin_processes(loader: Any, columns: DataLoader[Any]) -> Iterator[Counted]:
    """Start worker processes that make batches by column."""
    return _Processes(loader, columns)


class _Processes:
    """The turns of worker processes, one iteration after another if they are persistent."""

    def __init__(self, loader: Any, columns: DataLoader[Any]) -> None:
        self._workers = loader.num_workers
        self._in_order = getattr(loader, "in_order", True)
        batches: Any = columns.dataset
        # What earlier workers have sent may be held for long: these have memory of their own.
        batches.arena = self._arena = _arena(self._workers)
        batches.number = 0 if self._arena is None else register(self._arena)
        try:
            self._inner: Any = columns._get_iterator()
        finally:
            batches.arena = None
        self._turns: Turns[Counted] = Turns(self._workers, self._pull, self._in_order)

    def _pull(self, worker: int) -> Parcel[Counted]:
        received: Received | _Unpacked = next(self._inner)
        return received.open()

    def _reset(self, columns: DataLoader[Any]) -> None:
        self._turns = Turns(self._workers, self._pull, self._in_order)
        self._inner._reset(columns)

    def __iter__(self) -> _Processes:
        return self

    def __next__(self) -> Counted:
        try:
            return next(self._turns)
        except StopIteration:
            next(self._inner, None)  # lets torch see that all is over, and end the workers
            raise

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)


def _arena(workers: int) -> Arena | None:
    """Memory for workers to send batches through; None where there is no such thing."""
    if not Arena.is_possible():
        return None
    try:
        return Arena(workers)
    except OSError:
        return None
