"""A torch ``DataLoader`` that counts what it has handed out, and so can be checkpointed."""

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate

from streaming.dataset import StreamingDataset

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

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_samples_yielded = 0
        self._iteration = 0
        self._ranks = 1
        self._finished = False
        self._columns: DataLoader[Any] | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """The batches of the next epoch, or of what is left of a resumed one."""
        dataset = self.dataset
        self.num_samples_yielded = 0
        self._finished = False
        self._iteration += 1
        try:
            if isinstance(dataset, StreamingDataset):
                self._ranks = dataset.begin_for_workers()
            batches = iter(self._by_column()) if self._goes_by_column() else self._by_sample()
        finally:
            if isinstance(dataset, StreamingDataset):
                dataset.workers_have_begun()
        return self._unwrapped(batches, self._iteration)

    def _by_sample(self) -> Iterator[Any]:
        collate = self.collate_fn
        self.collate_fn = _Counting(collate, batched=self.batch_size is not None)
        try:
            return super().__iter__()
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
            batches = _Batches(self.dataset, self.batch_size or 1, self.drop_last)
            self._columns = DataLoader(batches, batch_size=None, collate_fn=_as_it_is, **given)  # type: ignore[arg-type]
        return self._columns

    def _unwrapped(self, batches: Iterator[Any], iteration: int) -> Iterator[Any]:
        for batch in batches:
            if iteration == self._iteration:
                self.num_samples_yielded += batch.samples
            yield batch.batch
        if iteration == self._iteration:
            self._finished = True

    def __len__(self) -> int:
        """How many batches this rank is given in an epoch."""
        if isinstance(self.dataset, StreamingDataset):
            return self.dataset.count_batches(self.num_workers, self.batch_size, self.drop_last)
        return super().__len__()

    def state_dict(self) -> dict[str, Any] | None:
        """Where this loader is: which samples its rank, and with it every other, has handed out.

        Returns:
            The state, plain JSON, or None if the dataset is no ``StreamingDataset``.
        """
        dataset = self.dataset
        if not isinstance(dataset, StreamingDataset):
            return None
        state = dataset.state_dict(self.num_samples_yielded * self._ranks, from_beginning=False)
        if self._finished:
            # What `drop_last` or the batching method left out belongs to the finished epoch.
            state["sample_in_epoch"] = max(state["sample_in_epoch"], dataset.epoch_size)
        return state

    def load_state_dict(self, obj: dict[str, Any]) -> None:
        """Let the next iteration begin where a state was taken.

        Args:
            obj: What :meth:`state_dict` gave.

        Raises:
            ValueError: If that is no such state.
        """
        if isinstance(self.dataset, StreamingDataset):
            self.num_samples_yielded = 0
            self._finished = False
            self._iteration += 1  # what an iterator still hands out is not counted any more
            self.dataset.load_state_dict(obj)


class _Counted:
    """A batch, with the number of samples that went into it."""

    __slots__ = ("batch", "samples")

    def __init__(self, batch: Any, samples: int) -> None:
        self.batch = batch
        self.samples = samples

    def pin_memory(self, device: Any = None) -> "_Counted":
        """Called by the loader's pinning thread."""
        from torch.utils.data._utils.pin_memory import pin_memory

        self.batch = pin_memory(self.batch, device)  # type: ignore[no-untyped-call]
        return self


class _Batches(IterableDataset[_Counted]):
    """A dataset's batches, as a dataset whose items they are."""

    def __init__(self, dataset: Any, batch_size: int, drop_last: bool) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[_Counted]:
        batches = self.dataset.iterate_batches(self.batch_size, self.drop_last)
        return (_Counted(batch, samples) for batch, samples in batches)


def _as_it_is(batch: _Counted) -> _Counted:
    return batch


class _Counting:
    """A collate function that notes how many samples it was given."""

    def __init__(self, collate: Callable[[Any], Any], batched: bool) -> None:
        self.collate = collate
        self.batched = batched

    def __call__(self, samples: Any) -> _Counted:
        # Without automatic batching the loader passes one sample, whatever its type.
        count = len(samples) if self.batched else 1
        return _Counted(self.collate(samples), count)
