"""What determines an epoch's order, apart from the world it is dealt out to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from streaming.order.arrays import Ints, cumulate


@dataclass(frozen=True, slots=True, eq=False)
class StreamShape:
    """One stream, as ordering sees it."""

    shard_sizes: Ints
    """Samples of each shard."""
    choose: int
    """Samples that an epoch takes from the stream; may be more than it has, or none."""
    proportion: float
    """The stream's part of the epoch, 0 to 1."""

    @property
    def num_samples(self) -> int:
        """Samples that the stream has."""
        return int(self.shard_sizes.sum())


@dataclass(frozen=True, eq=False)
class OrderParams:
    """The parameters of a data set's order; their meaning is `StreamingDataset`'s.

    >>> stream = StreamShape(np.array([10, 10, 5]), choose=25, proportion=1.0)
    >>> params = OrderParams((stream,), epoch_size=25, batch_size=4, num_canonical_nodes=1)
    >>> params.num_samples
    25
    """

    streams: tuple[StreamShape, ...]
    epoch_size: int
    """Samples in an epoch, over all streams."""
    batch_size: int
    """Samples in one device's batch."""
    num_canonical_nodes: int
    shuffle: bool = False
    shuffle_algo: str = "py1e"
    shuffle_seed: int = 9176
    shuffle_block_size: int = 1 << 18
    sampling_method: str = "balanced"
    sampling_granularity: int = 1
    partition_algo: str = "relaxed"
    batching_method: str = "random"
    initial_physical_nodes: int | None = None
    pad: str = "repeat"
    """Whether samples are repeated for all ranks to come out (`repeat`) or not (`none`)."""

    @classmethod
    def from_dataset(cls, dataset: Any) -> OrderParams:
        """Read the parameters off a `StreamingDataset`, or off anything with its attributes.

        Args:
            dataset: has `streams` (each with `choose` and `proportion`), `shards_per_stream`,
                `samples_per_shard` and the constructor's arguments under their own names.
                `initial_physical_nodes` and `pad` may be missing.

        Raises:
            ValueError: `batch_size`, `num_canonical_nodes` or `shuffle_block_size` is not set.
        """
        for name in ("batch_size", "num_canonical_nodes", "shuffle_block_size"):
            if getattr(dataset, name) is None:
                raise ValueError(
                    f"The order of an epoch depends on `{name}`, which is not set. Give it to the "
                    "data set's constructor, or iterate once so that its default is chosen."
                )
        sizes = np.asarray(dataset.samples_per_shard, np.int64)
        ends = np.cumsum(np.asarray(dataset.shards_per_stream, np.int64)).tolist()
        begins = [0, *ends[:-1]]
        initial_nodes = getattr(dataset, "initial_physical_nodes", None)
        return cls(
            streams=tuple(
                StreamShape(sizes[begin:end], int(stream.choose), float(stream.proportion))
                for stream, begin, end in zip(dataset.streams, begins, ends, strict=True)
            ),
            epoch_size=int(dataset.epoch_size),
            batch_size=int(dataset.batch_size),
            num_canonical_nodes=int(dataset.num_canonical_nodes),
            shuffle=bool(dataset.shuffle),
            shuffle_algo=dataset.shuffle_algo,
            shuffle_seed=int(dataset.shuffle_seed),
            shuffle_block_size=int(dataset.shuffle_block_size),
            sampling_method=dataset.sampling_method,
            sampling_granularity=int(dataset.sampling_granularity),
            partition_algo=dataset.partition_algo,
            batching_method=dataset.batching_method,
            initial_physical_nodes=None if initial_nodes is None else int(initial_nodes),
            pad=getattr(dataset, "pad", "repeat"),
        )

    @property
    def num_samples(self) -> int:
        """Samples that all streams have; their ids are 0 to this, less one."""
        return int(self.stream_offsets[-1])

    @cached_property
    def stream_offsets(self) -> Ints:
        """The id of each stream's first sample, and past them the number of all samples."""
        return cumulate(np.array([stream.num_samples for stream in self.streams], np.int64))

    @property
    def draws_anew_each_epoch(self) -> bool:
        """Whether the picks within streams, and the order of their batches, change by epoch."""
        return self.shuffle and self.sampling_method == "balanced"

    @property
    def is_computed(self) -> bool:
        """Whether samples are shuffled and sampled place by place, and nothing drawn as a whole."""
        return self.shuffle and self.shuffle_algo == "blockwise"
