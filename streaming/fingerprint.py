"""What determines the order of samples, so that a checkpoint can be held against a dataset."""

import hashlib
from typing import Any

import numpy as np

from streaming.order.batching.per_stream import batches_per_stream
from streaming.order.layout import Layout
from streaming.planning import block_size, order_params
from streaming.world import World

Fingerprint = dict[str, Any]


class Fingerprints:
    """Makes a dataset's fingerprint, and keeps it as long as nothing in it changes.

    Scalars are in clear, so that a difference can be named; of the streams there is one digest over
    the samples of each shard and the streams' weights. Where the shards lie, how they are
    compressed and hashed does not matter. What leaves the order as it is stays out:
    ``partition_algo`` (both deal out the same batches where both can), the algorithm of a shuffle
    that isn't made, a block size that isn't used. The seed and the canonical nodes are taken from
    a checkpoint, so that they can't differ.
    """

    def __init__(self) -> None:
        self._streams: str | None = None
        self._made: tuple[Any, Fingerprint] | None = None

    def of(self, dataset: Any, world: World, nodes: int, initial_nodes: int | None) -> Fingerprint:
        """The fingerprint of a dataset in a world.

        Args:
            dataset: A ``StreamingDataset``.
            world: The world, replica groups counted as one rank.
            nodes: The canonical nodes.
            initial_nodes: The nodes of the first run; None for this one's.
        """
        block = block_size(dataset, nodes)
        size = dataset.batch_size
        key = (
            *(size, world.num_nodes, world.ranks_per_node, nodes, initial_nodes, block),
            *(dataset.shuffle, dataset.shuffle_algo, dataset.shuffle_seed, dataset.pad),
            *(dataset.batching_method, dataset.sampling_method, dataset.sampling_granularity),
            dataset.epoch_size,
        )
        if self._made is None or self._made[0] != key:
            self._made = key, self._make(dataset, world, nodes, initial_nodes, block)
        return dict(self._made[1])

    def _make(
        self, dataset: Any, world: World, nodes: int, initial_nodes: int | None, block: int
    ) -> Fingerprint:
        names = ("batching_method", "epoch_size", "pad", "sampling_granularity", "sampling_method")
        made: Fingerprint = {name: getattr(dataset, name) for name in names}
        made["shuffle"] = bool(dataset.shuffle)
        if dataset.shuffle:
            made["shuffle_algo"] = dataset.shuffle_algo
            if dataset.shuffle_algo in ("py1e", "py1br", "blockwise"):
                made["shuffle_block_size"] = block
        if dataset.batch_size is not None:
            made["global_batch_size"] = world.num_ranks * dataset.batch_size
            made |= _of_method(dataset, world, nodes, initial_nodes)
        if self._streams is None:
            self._streams = digest_streams(dataset)
        made["shards"] = self._streams
        return made


def _of_method(dataset: Any, world: World, nodes: int, initial_nodes: int | None) -> Fingerprint:
    """What the batching methods that are elastic only in part depend on besides."""
    if dataset.batching_method == "device_per_stream":
        return {"num_nodes": world.num_nodes, "ranks_per_node": world.ranks_per_node}
    if dataset.batching_method != "per_stream":
        return {}
    params = order_params(
        dataset, world, num_canonical_nodes=nodes, initial_physical_nodes=initial_nodes
    )
    layout = Layout(world.num_nodes, world.ranks_per_node, 1, 0, params.batch_size)
    counts = batches_per_stream(params, layout)
    return {"batches_per_stream": _digest(counts.tobytes())}


def digest_streams(dataset: Any) -> str:
    """A digest of the samples in each stream's shards, and of the streams' weights.

    It takes time in proportion to streams: their indexes have digests that are kept with them.
    """
    numbers = [
        np.array([stream.choose for stream in dataset.streams], "<i8"),
        np.array([stream.proportion for stream in dataset.streams], "<f8"),
    ]
    shards = [directory.index.samples_digest for directory in dataset._directories]
    return _digest(b"".join([*shards, *(each.tobytes() for each in numbers)]))


def _digest(data: bytes) -> str:
    return hashlib.blake2s(data, digest_size=16).hexdigest()


_MEANING = {
    "shards": "the streams' numbers of samples in each shard, or their weights, differ",
    "batches_per_stream": "this world completes other numbers of batches of the streams",
}


def check_fingerprint(saved: Fingerprint, present: Fingerprint) -> None:
    """Check that a checkpoint belongs to the order that a dataset has.

    Args:
        saved: The checkpoint's fingerprint. What only one of the two has is not compared.
        present: The dataset's.

    Raises:
        ValueError: Naming everything that differs.

    Example:
        >>> check_fingerprint({"shuffle": True}, {"shuffle": False})
        Traceback (most recent call last):
            ...
        ValueError: The checkpoint belongs to another order of samples: `shuffle` was True there \
and is False here. Make the dataset as it was, or load with `strict=False` to go on after as many \
samples of the present order.
    """
    differences = [
        _MEANING.get(name, f"`{name}` was {saved[name]!r} there and is {present[name]!r} here")
        for name in sorted(saved.keys() & present.keys())
        if saved[name] != present[name]
    ]
    if differences:
        raise ValueError(
            f"The checkpoint belongs to another order of samples: {'; '.join(differences)}. Make "
            "the dataset as it was, or load with `strict=False` to go on after as many samples of "
            "the present order."
        )
