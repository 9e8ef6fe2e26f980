"""Torch's data sets, and anything else that can be indexed or iterated over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from streaming.convert.errors import ConvertError, SchemaError
from streaming.convert.schema import columns_of_samples
from streaming.convert.source import Part, Sample, Source, Unreadable
from streaming.convert.sources.recast import RecastSource
from streaming.convert.sources.tables import row_parts

__all__ = ["IterableSource", "MapSource", "open_torch", "row_value"]

_INFER_ROWS = 100


def open_torch(dataset: Any, part_bytes: int | None) -> Source:
    """A source of a data set.

    Args:
        dataset: Anything with `__getitem__` and `__len__`, or with `__iter__` that can be called
            again and again.
        part_bytes: What a part has, about.

    Raises:
        ConvertError: If it can be iterated over only once.
    """
    indexed = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if indexed and not _is_iterable_dataset(dataset):
        return MapSource(dataset, part_bytes)
    if iter(dataset) is dataset:
        raise ConvertError(
            f"a {type(dataset).__name__} can be iterated over only once, but columns are inferred "
            "first, and a conversion may begin anew: give an object whose __iter__ begins anew"
        )
    return IterableSource(dataset)


def _is_iterable_dataset(dataset: Any) -> bool:
    return any(
        kind.__name__ == "IterableDataset" and kind.__module__.startswith("torch.")
        for kind in type(dataset).__mro__
    )


class _Samples(RecastSource):
    """What both kinds have in common: samples are dicts, tuples, or single values."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def describe(self) -> str:
        """What it is."""
        return f"{type(self.dataset).__module__}.{type(self.dataset).__qualname__}"

    def columns(self) -> dict[str, str]:
        """The columns, by the first samples' values."""
        return dict(self._columns)

    @cached_property
    def _columns(self) -> dict[str, str]:
        rows = [row for row in islice(self._first(), _INFER_ROWS) if isinstance(row, dict)]
        if not rows:
            raise SchemaError(f"{self.describe()} has no samples to infer columns from")
        return columns_of_samples(rows, self.describe(), self.given)

    def _first(self) -> Iterator[Sample | Unreadable]:
        for part in self.parts():
            yield from self.read(part)

    def _row(self, sample: Any) -> Sample:
        if isinstance(sample, Mapping):
            named = dict(sample)
        elif hasattr(sample, "_asdict"):
            named = sample._asdict()
        elif isinstance(sample, (tuple, list)):
            named = {str(at): value for at, value in enumerate(sample)}
        else:
            named = {"0": sample}
        return {
            name: row_value(value, self.given.get(name, ""))
            for name, value in named.items()
            if name not in self.dropped
        }


class MapSource(_Samples):
    """A data set with `__getitem__` and `__len__`.

    A sample that is a tuple has the columns `0`, `1`, …; one that is a single value has `0`.

    Args:
        dataset: The data set.
        part_bytes: What a part has, about, going by the first samples.
    """

    def __init__(self, dataset: Any, part_bytes: int | None) -> None:
        super().__init__(dataset)
        self.part_bytes = part_bytes

    def describe(self) -> str:
        """What it is, and how long."""
        return f"{super().describe()}, {len(self.dataset):,} samples"

    def parts(self) -> Sequence[Part]:
        """Ranges of samples."""
        return self._ranges

    @cached_property
    def _ranges(self) -> list[Part]:
        count = len(self.dataset)
        first = [self._row(self.dataset[at]) for at in range(min(count, 8))]
        each = max(1, sum(map(_size, first)) // max(1, len(first)))
        return row_parts(count, each * count, self.part_bytes)

    def read(self, part: Part) -> Iterator[Sample | Unreadable]:
        """The samples of a part."""
        for at in range(*part.spec):
            try:
                sample = self.dataset[at]
            except Exception as exc:
                yield Unreadable(f"sample {at} of the data set: {type(exc).__name__}: {exc}")
            else:
                yield self._row(sample)


class IterableSource(_Samples):
    """A data set that can only be iterated over.

    It is one part, since nothing else is known of it: one process reads it. A data set of torch
    that deals its samples out to workers can be read in several parts.

    Args:
        dataset: The data set. Its `__iter__` gives the same samples each time.
        parts: In how many parts it is read. Above 1, the data set has to look at torch's
            `get_worker_info`, as it does under a `DataLoader` with so many workers.
    """

    def __init__(self, dataset: Any, parts: int = 1) -> None:
        if parts < 1:
            raise ValueError(f"parts is {parts}; it must be 1 or more")
        super().__init__(dataset)
        self._count = parts

    def parts(self) -> Sequence[Part]:
        """One for each of the workers that the data set is made to see."""
        return [Part(n, f"worker {n} of {self._count}", (n,)) for n in range(self._count)]

    def read(self, part: Part) -> Iterator[Sample | Unreadable]:
        """The samples of a part."""
        with _seen_as_worker(self.dataset, part.number, self._count):
            samples = iter(self.dataset)
        while True:
            with _seen_as_worker(self.dataset, part.number, self._count):
                try:
                    sample = next(samples)
                except StopIteration:
                    return
            yield self._row(sample)


@contextmanager
def _seen_as_worker(dataset: Any, number: int, count: int) -> Iterator[None]:
    """Let the data set take us for a loader's worker, as far as it asks."""
    if count == 1:
        yield
        return
    from torch.utils.data._utils import worker

    before = worker._worker_info
    worker._worker_info = worker.WorkerInfo(id=number, num_workers=count, seed=0, dataset=dataset)
    try:
        yield
    finally:
        worker._worker_info = before


def row_value(value: Any, encoding: str) -> Any:
    """A value as a writer takes it: tensors as arrays, those without axes as numbers."""
    if hasattr(value, "detach") and hasattr(value, "dtype"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if isinstance(value, tuple) and encoding in ("", "json"):
        value = list(value)
    if encoding.startswith("ndarray") and isinstance(value, list):
        value = np.asarray(value, encoding.split(":")[1] if ":" in encoding else None)
    return value


def _size(row: Sample) -> int:
    return sum(_bytes(value) for value in row.values())


def _bytes(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, (list, tuple)):
        return 8 + sum(map(_bytes, value))
    if isinstance(value, dict):
        return 8 + sum(map(_bytes, value.values()))
    if hasattr(value, "size") and hasattr(value, "mode"):  # an image
        return int(np.prod(value.size)) * len(value.getbands())
    return int(getattr(value, "nbytes", 8))
