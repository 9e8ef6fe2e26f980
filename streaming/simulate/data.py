"""The shards of a plan's streams, and which of them each worker needs in an epoch, in its order.

The order is that of the library itself: :func:`streaming.planning.plan` makes it of the same
parameters. Where there are too many samples to follow each of them, shards are *thinned*: each
keeps its place, size and neighbours, and has so many times fewer samples, each of which stands for
many.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.cache.prefetch import SMALL_BYTES
from streaming.format.index import Index, get_index_basename
from streaming.need import in_turn, interleave, sparse_streams
from streaming.order.draws import EpochDraws
from streaming.order.params import OrderParams
from streaming.order.weights import Weights, derive_weights
from streaming.planning import order_params, place_of, plan, sample_blocks
from streaming.plans import digest
from streaming.simulate.setup import Setup, StreamSetup
from streaming.world import World

__all__ = ["Data", "Work"]

Ints = NDArray[np.int64]

MOST_KEPT, MOST_DRAWN = 6, 4_000_000
"""Of how many epochs draws are kept, and how many samples these may have."""


@dataclass(frozen=True, eq=False)
class _Stream:
    """One stream's shards."""

    samples: Ints
    raw: Ints
    """Bytes of each shard."""
    zipped: Ints
    """Bytes that it travels in, if it is compressed; 0 if not."""
    fixed_size: bool

    @property
    def num_samples(self) -> int:
        return int(self.samples.sum())


def _describe(stream: StreamSetup) -> _Stream:
    if stream.remote is not None:
        index = _fetch_index(stream)
        schema = index.schemas[0] if index.schemas else {}
        sizes = schema.get("column_sizes") or [None]
        fixed = len(index.schemas) == 1 and all(size is not None for size in sizes)
        return _Stream(index.samples, index.raw_bytes, index.zip_bytes, fixed)
    shards, samples, size = int(stream.shards or 0), int(stream.samples or 0), stream.sample_bytes
    raw = np.full(shards, samples * int(size or 0), np.int64)
    zipped = np.zeros(shards, np.int64)
    if stream.compression > 1:
        zipped = np.maximum(1, raw / stream.compression).astype(np.int64)
    return _Stream(np.full(shards, samples, np.int64), raw, zipped, stream.fixed_size)


def _fetch_index(stream: StreamSetup) -> Index:
    from io import BytesIO

    from streaming.storage import store_for

    url = str(stream.remote).rstrip("/") + (f"/{stream.split}" if stream.split else "")
    store, file = store_for(url), BytesIO()
    store.get(get_index_basename(), file)
    return Index.parse(file.getvalue(), store.url_of(get_index_basename()))


class Data:
    """The data of a plan.

    Args:
        setup: The plan.
        thin: How many samples each simulated sample stands for.

    Raises:
        ValueError: If streams' weights, or the order's parameters, don't go together.
        StoreError: If an index can't be had.

    Example:
        >>> stream = StreamSetup(shards=3, samples=100, sample_bytes=1000)
        >>> data = Data(Setup(streams=[stream], ranks=1, workers=2, batch_size=10, shuffle=False))
        >>> data.epoch_size, data.raw.tolist()
        (300, [100000, 100000, 100000])
        >>> work = data.work(epoch=0, node=0)
        >>> [np.unique(shards).tolist() for shards in work.shards]  # of each worker's samples
        [[0, 1, 2], [0, 1, 2]]
    """

    def __init__(self, setup: Setup, thin: int = 1) -> None:
        self.setup, self.thin, self.weight = setup, thin, thin
        self._streams = [_describe(stream) for stream in setup.streams]
        self._weights = _weigh(setup, self._streams)
        self._finish()

    def _finish(self) -> None:
        streams = self._streams
        self.samples = np.concatenate([each.samples for each in streams])
        """Samples of each shard, all streams together."""
        self.raw = np.concatenate([each.raw for each in streams])
        self.zipped = np.concatenate([each.zipped for each in streams])
        self.streams = np.repeat(np.arange(len(streams)), [len(each.samples) for each in streams])
        """The stream of each shard."""
        self.fixed_size = np.repeat(
            [each.fixed_size for each in streams], [len(each.samples) for each in streams]
        )
        sizes = np.maximum(1, np.round(self.samples / self.thin)).astype(np.int64)
        self.thinned = np.where(self.samples > 0, sizes, 0)
        """Samples of each shard that are simulated."""

    def thinned_by(self, thin: int, weight: int | None = None) -> Data:
        """The same data, thinned.

        Args:
            thin: How many samples there are for each that is left.
            weight: How many each of those stands for, in time and bytes; None for as many.
        """
        other = Data.__new__(Data)
        other.setup, other.thin, other.weight = self.setup, thin, thin if weight is None else weight
        other._streams, other._weights = self._streams, self._weights
        other._finish()
        return other

    def ordered_by(self, setup: Setup) -> Data:
        """The same data in another plan, which has the same streams."""
        other = Data.__new__(Data)
        other.setup, other._streams = setup, self._streams
        other.thin, other.weight = self.thin, self.weight
        other._weights = _weigh(setup, self._streams)
        other._finish()
        return other

    @property
    def epoch_size(self) -> int:
        """Samples in an epoch."""
        return self._weights.epoch_size

    @property
    def sample_bytes(self) -> float:
        """What a sample takes on average, as fetching ahead reckons it."""
        return float(self.raw.sum()) / max(1, int(self.samples.sum()))

    @cached_property
    def travels(self) -> Ints:
        """Bytes that come over the network for each shard."""
        travels: Ints = np.where(self.zipped > 0, self.zipped, self.raw)
        return travels

    @cached_property
    def reserves(self) -> Ints:
        """Bytes that each shard takes while it is fetched."""
        reserves: Ints = self.raw + self.zipped
        return reserves

    @cached_property
    def keeps(self) -> Ints:
        """Bytes that each shard takes once it is here."""
        return self.raw + (self.zipped if self.setup.keep_zip else 0)

    @cached_property
    def sparse(self) -> tuple[int, ...]:
        """The streams of which so little is taken that samples are read by ranges instead."""
        return () if self.setup.validate_hash else sparse_streams(self._dataset(1))

    @cached_property
    def ranged(self) -> NDArray[np.bool_]:
        """Which shards samples may be read of before they are here."""
        is_sparse = np.isin(self.streams, self.sparse)
        large = (self.raw > SMALL_BYTES) | is_sparse
        ranged: NDArray[np.bool_] = large & (self.zipped == 0) & (not self.setup.validate_hash)
        return ranged

    def params(self) -> OrderParams:
        """What determines the order of samples.

        Raises:
            ValueError: If its parameters don't go together.
        """
        return order_params(self._dataset(self.thin), self._world(0, 0, 0))

    def _dataset(self, thin: int) -> Any:
        """What stands for the ``StreamingDataset``: its attributes that planning looks at."""
        setup, weights = self.setup, self._weights
        sizes = self.samples if thin == 1 else self.thinned
        counts = [len(each.samples) for each in self._streams]
        ends = np.cumsum(counts)
        per_stream = [int(sizes[end - n : end].sum()) for n, end in zip(counts, ends, strict=True)]
        chosen = [
            own if choose == each.num_samples else max(int(choose > 0), round(choose / thin))
            for own, choose, each in zip(per_stream, weights.choose, self._streams, strict=True)
        ]
        block = setup.shuffle_block_size
        if block is None and thin > 1:
            block = max(4_000_000 // (setup.num_canonical_nodes or setup.nodes), 1 << 18)
        return SimpleNamespace(
            batch_size=setup.batch_size,
            samples_per_shard=sizes,
            samples_per_stream=per_stream,
            shards_per_stream=counts,
            streams=[
                SimpleNamespace(choose=choose, proportion=proportion)
                for choose, proportion in zip(chosen, weights.proportion, strict=True)
            ],
            epoch_size=sum(chosen),
            num_canonical_nodes=setup.num_canonical_nodes,
            shuffle=setup.shuffle,
            shuffle_algo=setup.shuffle_algo,
            shuffle_seed=setup.shuffle_seed,
            given_block_size=None if block is None else max(2, int(block) // thin),
            sampling_method=setup.sampling_method,
            sampling_granularity=max(1, setup.sampling_granularity // thin),
            partition_algo=setup.partition_algo,
            batching_method=setup.batching_method,
            initial_physical_nodes=None,
            pad="repeat",
            _directories=[
                SimpleNamespace(index=SimpleNamespace(raw_bytes=each.raw)) for each in self._streams
            ],
        )

    def _world(self, node: int, rank: int, worker: int) -> World:
        setup = self.setup
        workers = max(1, setup.workers)
        number = (node * setup.ranks + rank) * workers + worker
        return World(setup.nodes, setup.ranks, workers, number)

    @cached_property
    def _bounds(self) -> Ints:
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.thinned)])

    @cached_property
    def _plans(self) -> dict[tuple[int, int], Any]:
        return {}

    def work(self, epoch: int, node: int, batch: int | None = None) -> Work:
        """What the workers of a node read in an epoch.

        Args:
            epoch: The epoch.
            node: The node.
            batch: Simulated samples in a batch; None for the batch size.
        """
        setup, batch = self.setup, batch or self.setup.batch_size
        if (epoch, batch) not in self._plans:
            dataset = self._dataset(self.thin)
            dataset.batch_size = batch
            params = order_params(dataset, self._world(0, 0, 0))
            self._plans.clear()
            draws = _kept_draws(params, epoch)
            self._plans[epoch, batch] = plan(params, self._world(0, 0, 0), epoch, draws=draws)
        dealt = self._plans[epoch, batch]
        worlds = [
            self._world(node, rank, worker)
            for rank in range(setup.ranks)
            for worker in range(max(1, setup.workers))
        ]
        places = in_turn(place_of(world) for world in worlds)
        own = [_all(sample_blocks(dealt, place, size=1 << 20)) for place in places]
        return Work(
            ranks=[rank for _, rank, _ in places],
            workers=[worker for _, _, worker in places],
            shards=[np.searchsorted(self._bounds, ids, "right") - 1 for ids in own],
            ids=own,
            batch=batch,
        )

    def visits(self, work: Work) -> Visits:
        """The stretches in which a node uses its shards.

        A stream that is gone through several times in an epoch comes to each shard several times,
        further apart than a shuffle block, and nobody keeps the shard meanwhile.
        """
        params = self.params()
        pauses = np.zeros(len(self.raw), np.int64)
        if params.shuffle and params.shuffle_algo in ("py1e", "py1br", "blockwise"):
            # A node uses its canonical nodes' blocks side by side.
            parts = max(1, params.num_canonical_nodes // self.setup.nodes)
            repeated = [
                number
                for number, stream in enumerate(params.streams)
                if stream.choose > stream.num_samples
            ]
            pauses[np.isin(self.streams, repeated)] = parts * params.shuffle_block_size * 5 // 4
        return work.needs.visits(pauses)

    def place(self, ids: Ints, shard: int) -> Ints:
        """Where in a shard some of its samples are, by their numbers."""
        places: Ints = ids - self._bounds[shard]
        return places


@dataclass(frozen=True, eq=False)
class Work:
    """What the workers of a node read in an epoch, the workers in the order of their turns."""

    ranks: list[int]
    """The rank of each worker."""
    workers: list[int]
    """Its number in that rank."""
    shards: list[Ints]
    """The shards of each worker's samples, in its order."""
    ids: list[Ints]
    """The samples' numbers."""
    batch: int
    """Samples in a batch."""
    merged: int = 1
    """How many workers each of these stands for."""

    def as_one(self, batch: int) -> Work:
        """The same read by one worker, which stands for all of the node.

        Args:
            batch: Samples in its batches.
        """
        ids = _all(interleave([iter([own]) for own in self.ids]))
        return Work([0], [0], [self.node], [ids], batch, len(self.ids))

    @cached_property
    def node(self) -> Ints:
        """The shards of all workers' samples, in the order in which the node needs them."""
        return _all(interleave([iter([shards]) for shards in self.shards]))

    @cached_property
    def needs(self) -> Needs:
        """When the node needs which shard."""
        return Needs(self.node)


@dataclass(frozen=True, eq=False)
class Visits:
    """Stretches of a node's order in which shards are used again and again."""

    shards: Ints
    first: Ints
    """Where in the order each stretch begins,"""
    last: Ints
    """and where it ends."""
    longest_pause: int
    """The most positions between two uses in one stretch."""


class Needs:
    """At which positions of a node's order each shard is needed."""

    def __init__(self, shards: Ints) -> None:
        self._order = np.argsort(shards, kind="stable")
        found, starts = np.unique(shards[self._order], return_index=True)
        self.shards = found
        """The shards that are needed at all."""
        self.first = self._order[starts]
        """Where each of them is needed first."""
        ends = np.append(starts[1:], len(shards))
        self._span = dict(
            zip(found.tolist(), zip(starts.tolist(), ends.tolist(), strict=True), strict=True)
        )

    def visits(self, pauses: Ints) -> Visits:
        """The stretches of the order in which each shard is used, and then not for long.

        Args:
            pauses: For each shard, how many positions without it end a stretch; 0 for none.
        """
        positions = self._order
        if not len(positions):
            return Visits(self.shards, positions, positions, 0)
        owners = np.repeat(self.shards, [end - start for start, end in self._span.values()])
        between = np.diff(positions) - 1
        ends = owners[1:] != owners[:-1]
        ends |= (pauses[owners[1:]] > 0) & (between > pauses[owners[1:]])
        starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(ends) + 1])
        stops = np.append(starts[1:] - 1, len(positions) - 1)
        longest = int(between[~ends].max(initial=0))
        return Visits(owners[starts], positions[starts], positions[stops], longest)

    def next(self, shard: int, position: int) -> int | None:
        """Where a shard is needed next, from a position on; None if nowhere."""
        span = self._span.get(shard)
        if span is None:
            return None
        start, end = span
        at = start + int(self._order[start:end].searchsorted(position))
        return None if at == end else int(self._order[at])


_draws: OrderedDict[str, EpochDraws] = OrderedDict()
_draws_lock = threading.Lock()


def _kept_draws(params: OrderParams, epoch: int) -> EpochDraws | None:
    """An epoch's draws, kept for the next plan of the same order; None if they are too many.

    A plan is simulated again and again with other machines, caches and networks, and drawing an
    epoch takes as long as a third of that.
    """
    if params.epoch_size > MOST_DRAWN:
        return None
    key = digest(params, epoch, None)
    with _draws_lock:
        draws = _draws.pop(key, None) or EpochDraws(params, epoch)
        _draws[key] = draws
        while len(_draws) > MOST_KEPT:
            _draws.popitem(last=False)
    return draws


def _all(blocks: Any) -> Ints:
    found = list(blocks)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _weigh(setup: Setup, streams: list[_Stream]) -> Weights:
    size = setup.epoch_size
    return derive_weights(
        [stream.proportion for stream in setup.streams],
        [stream.repeat for stream in setup.streams],
        [None if stream.choose is None else int(stream.choose) for stream in setup.streams],
        [stream.num_samples for stream in streams],
        None if size is None else int(size),
        setup.shuffle_seed,
    )
