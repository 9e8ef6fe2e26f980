"""A torch ``DataLoader`` that counts what it has handed out, and so can be checkpointed."""

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any, cast

from torch.utils.data import DataLoader, default_collate

from streaming.callers import loads_for_lightning
from streaming.dataset import StreamingDataset
from streaming.sources import (
    BatchesByColumn,
    as_it_is,
    begin_here,
    begin_processes,
    begin_threads,
    check_socket_paths,
    counters_of,
    counting,
)
from streaming.stopwatch import Demand
from streaming.threads import ThreadPool
from streaming.validation import is_finished
from streaming.watch import spans

# What a loader hands to the one that makes its batches by column.
_PASSED_ON = (
    *("num_workers", "pin_memory", "pin_memory_device", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator", "prefetch_factor", "persistent_workers", "in_order"),
)


class StreamingDataLoader(DataLoader[Any]):
    """A ``DataLoader`` whose state can be saved and loaded in the middle of an epoch.

    Takes the arguments of ``torch.utils.data.DataLoader``. Samples are counted where they are put
    together into batches, before the collate function sees them, so that a collate function may
    pack, pad, drop or merge them as it likes.

    Where the collate function is torch's default and the dataset reads samples in its own way,
    batches are made column by column, equal to what the default collate makes of the samples.

    Args:
        args: As for ``torch.utils.data.DataLoader``.
        worker_type: What the ``num_workers`` workers are: ``process``, or ``thread`` for threads of
            this process, which copy and pickle nothing. In a thread, ``get_worker_info()`` is None
            and the global random generators are everybody's: see
            :func:`streaming.thread_worker_info`.
        batch_transform: Called with each collated batch, in the worker; what it returns is the
            batch.
        kwargs: As for ``torch.utils.data.DataLoader``.

    Raises:
        ValueError: If an argument makes no sense, or does not go with threads.

    Example:
        >>> import tempfile
        >>> from streaming import MDSWriter, StreamingDataset
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "int"}) as writer:
        ...     for x in range(8):
        ...         writer.write({"x": x})
        >>> loader = StreamingDataLoader(StreamingDataset(local=folder, batch_size=2), batch_size=2)
        >>> batches = iter(loader)
        >>> next(batches)["x"].tolist()
        [0, 1]
        >>> state = loader.state_dict()
        >>> state["epoch"], state["sample_in_epoch"]
        (0, 2)
        >>> again = StreamingDataset(local=folder, batch_size=2)
        >>> resumed = StreamingDataLoader(again, batch_size=2)
        >>> resumed.load_state_dict(state)
        >>> [batch["x"].tolist() for batch in resumed]
        [[2, 3], [4, 5], [6, 7]]
    """

    # Accelerate's `prepare` then leaves the loader as it is, instead of dealing its samples out a
    # second time, and its `save_state` saves the loader's state with all others.
    _is_accelerate_prepared = True
    use_stateful_dataloader = True

    def __init__(
        self,
        *args: Any,
        worker_type: str = "process",
        batch_transform: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.worker_type = worker_type
        self.batch_transform = batch_transform
        self._check_workers()
        self._pool: ThreadPool | None = None
        self.num_samples_yielded = 0
        self._ranks = 1
        self._passes = False  # whether the next iteration is the end of a finished epoch
        self._tally: _Tally | None = None
        self._columns: DataLoader[Any] | None = None
        self._demand = Demand(counters_of(self.dataset), self.num_workers)

    def _get_iterator(self) -> Any:
        """The batches of the next epoch, or of what is left of a resumed one.

        Torch's ``__iter__`` begins here, whatever else is done around it; with persistent workers
        it goes on with :meth:`_Batches._reset`.
        """
        return _Batches(self)

    def _begin(self, tally: "_Tally", start: Callable[[], Any]) -> Any:
        """Begin an iteration: what ``start`` starts takes part in it."""
        dataset = self.dataset
        self.num_samples_yielded = 0
        self._tally = tally
        self._demand.restart()
        if not isinstance(dataset, StreamingDataset):
            return start()
        if self._passes:
            self._passes = False
            return iter(())
        try:
            self._ranks = dataset.begin_for_workers()
            return start()
        finally:
            dataset.workers_have_begun()

    def _check_workers(self) -> None:
        if self.worker_type not in ("process", "thread"):
            raise ValueError(f"`worker_type` is {self.worker_type!r}: give 'process' or 'thread'.")
        if self.worker_type == "process":
            return
        if self.worker_init_fn is not None:
            raise ValueError(
                "`worker_init_fn` prepares a process for a worker, and does not go with "
                "`worker_type='thread'`. In a transform, take random generators, and the worker's "
                "number, from streaming.thread_worker_info()."
            )
        if self.multiprocessing_context is not None:
            raise ValueError(
                "`multiprocessing_context` says how to start processes, and does not go with "
                "`worker_type='thread'`."
            )
        if not isinstance(self.dataset, StreamingDataset):
            raise ValueError(
                "`worker_type='thread'` needs a StreamingDataset, which deals out samples to "
                f"threads; {type(self.dataset).__name__} is none."
            )

    def _start(self) -> Any:
        """Start the workers of an iteration, or what does without; gives batches with counts."""
        if self.worker_type == "thread" and self.num_workers:
            if self._pool is None or not self.persistent_workers:
                self._pool = ThreadPool(self.num_workers)
            source = begin_threads(self, self._pool, self._goes_by_column())
            if not self.persistent_workers:
                self._pool.dismiss()
                self._pool = None
            return source
        if not self._goes_by_column():
            return self._start_torch()
        if not self.num_workers:
            return begin_here(self)
        return begin_processes(self, self._by_column())

    def _start_torch(self) -> Any:
        """Start torch's own iterator, in a way that lets batches carry their counts."""
        if self.num_workers:
            check_socket_paths()
        collate = self.collate_fn
        self.collate_fn = counting(self)
        try:
            return super()._get_iterator()
        finally:
            self.collate_fn = collate

    def _goes_by_column(self) -> bool:
        """Whether batches can be made without their samples: nobody would see them."""
        kind = type(self.dataset)
        return (
            issubclass(kind, StreamingDataset)
            and kind.__getitem__ is StreamingDataset.__getitem__
            and kind.get_item is StreamingDataset.get_item
            and kind.__iter__ is StreamingDataset.__iter__
            and self.collate_fn is default_collate
            and self.batch_size is not None
        )

    def _by_column(self) -> DataLoader[Any]:
        """The loader that makes batches by column; kept, since its workers may be persistent."""
        if self._columns is None:
            given = {name: getattr(self, name) for name in _PASSED_ON if hasattr(self, name)}
            batches = BatchesByColumn(
                self.dataset, self.batch_size or 1, self.drop_last, self.batch_transform
            )
            self._columns = DataLoader(batches, batch_size=None, collate_fn=as_it_is, **given)
        return self._columns

    def _reset_source(self) -> DataLoader[Any]:
        """The loader that persistent workers were started by."""
        return self if self._columns is None else self._columns

    def __len__(self) -> int:
        """How many batches this rank is given in an epoch."""
        if isinstance(self.dataset, StreamingDataset):
            return self.dataset.count_batches(self.num_workers, self.batch_size, self.drop_last)
        return super().__len__()

    def set_epoch(self, epoch: int) -> None:
        """For training libraries that count epochs; see :meth:`StreamingDataset.set_epoch`."""
        if isinstance(self.dataset, StreamingDataset):
            self.dataset.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any] | None:
        """Where this loader is: which samples its rank, and with it every other, has handed out.

        Returns:
            The state, plain JSON, or None if the dataset is no ``StreamingDataset``.
        """
        dataset = self.dataset
        if not isinstance(dataset, StreamingDataset):
            return None
        state = dataset.state_dict(self.num_samples_yielded * self._ranks, from_beginning=False)
        if self._tally is not None and self._tally.is_all(self):
            # What `drop_last` or the batching method left out belongs to the finished epoch. With
            # `pad="none"`, ranks that were given one sample less count the same as the others.
            given = 0 if dataset.pad == "none" else state["sample_in_epoch"]
            state["sample_in_epoch"] = max(given, dataset.epoch_size)
            state["epoch_finished"] = True
        return state

    def load_state_dict(self, obj: dict[str, Any], strict: bool = True) -> None:
        """Let the next iteration begin where a state was taken.

        Args:
            obj: What :meth:`state_dict` gave.
            strict: Whether to refuse a state that belongs to another order of samples.

        Raises:
            ValueError: If that is no such state, or belongs to another order.
        """
        if isinstance(self.dataset, StreamingDataset):
            self.num_samples_yielded = 0
            self._tally = None  # what an iterator still hands out is not counted any more
            # A subclass of the dataset may know nothing of `strict`.
            options = {} if strict else {"strict": False}
            self.dataset.load_state_dict(obj, **options)
            self._passes = is_finished(obj, self.dataset.epoch_size) and loads_for_lightning()


class _Tally:
    """How many batches an iteration has handed out, which its loader and it both know.

    They don't both know each other: datasets would then wait for Python's garbage collector, with
    all that they have open.
    """

    def __init__(self) -> None:
        self.handed_out = 0
        self.expected: int | None = None
        self.ended = False

    def is_all(self, loader: StreamingDataLoader) -> bool:
        """Whether no batch of the epoch is left."""
        if self.ended:
            return True
        if self.expected is None:
            dataset = cast(StreamingDataset, loader.dataset)
            self.expected = dataset.count_batches(
                loader.num_workers, loader.batch_size, loader.drop_last, remaining=True
            )
        return self.handed_out >= self.expected


class _Batches:
    """One iteration of a loader, or one after another of persistent workers; counts for it."""

    def __init__(self, loader: StreamingDataLoader) -> None:
        self._loader = loader
        self._tally = _Tally()
        self._demand = loader._demand
        self._inner = loader._begin(self._tally, loader._start)

    def _reset(self, loader: StreamingDataLoader) -> None:
        """Called by torch to begin the next iteration of the same workers."""
        self._tally = _Tally()
        if hasattr(self._inner, "_reset"):
            loader._begin(self._tally, partial(self._inner._reset, loader._reset_source()))
        else:
            self._inner = loader._begin(self._tally, loader._start)

    def __iter__(self) -> "_Batches":
        return self

    def __next__(self) -> Any:
        begun = perf_counter_ns()
        try:
            if spans.are_on():
                self._demand.show_training(begun)
                with spans.span("wait for batch"):
                    batch = next(self._inner)
            else:
                batch = next(self._inner)
        except StopIteration:
            self._tally.ended = True
            self._demand.waited(begun, perf_counter_ns())
            self._demand.hand_over()
            raise
        self._demand.waited(begun, perf_counter_ns())
        if self._loader._tally is self._tally:
            self._tally.handed_out += 1
            self._loader.num_samples_yielded += batch.samples
        return batch.batch

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)
