"""Which samples of each stream an epoch takes, computed one by one: what goes with `blockwise`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming.order.arrays import Ints, cumulate, in_chunks
from streaming.order.mixing import Words, draw, key_of, permute
from streaming.order.params import OrderParams


@dataclass(frozen=True, slots=True, eq=False)
class Sampling:
    """What an epoch takes, before it is shuffled, in memory proportional to the number of units.

    A *unit* is a run of samples of one shard, which shuffling treats as a shard: all of it, or,
    once for each shard, some that are chosen at random.

    >>> sampling = Sampling(np.array([4, 2]), np.array([10, 10]), np.array([4, 4]), np.uint64(7))
    >>> sampling(np.arange(6)).tolist()
    [10, 11, 12, 13, 12, 10]
    """

    units: Ints
    """Samples of each unit."""
    begins: Ints
    """Id of the first sample of each unit's shard."""
    shard_sizes: Ints
    """Samples of each unit's shard."""
    key: np.uint64
    """From which the choice within shards is made."""
    bounds: Ints | None = None
    """Where the units begin and end when laid end to end; None: to be added up."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", cumulate(self.units))

    @classmethod
    def draw(cls, params: OrderParams, epoch: int, stream_id: int | None = None) -> Sampling:
        """Settle how many samples each shard of the streams, or of one stream, gives.

        Args:
            params: the data set's parameters.
            epoch: number of the epoch, from 0.
            stream_id: number of the stream to look at alone; None: all streams.

        Raises:
            ValueError: an empty stream is to give samples.
        """
        chosen = range(len(params.streams)) if stream_id is None else (stream_id,)
        seed = params.shuffle_seed
        ids_epoch = epoch + 1 if params.sampling_method == "balanced" else 0
        key = key_of(seed, ids_epoch, 2)
        streams = [params.streams[index] for index in chosen]
        first = params.stream_offsets[chosen[0]]
        sizes = np.concatenate([np.asarray(each.shard_sizes, np.int64) for each in streams])
        if all(stream.choose == stream.num_samples for stream in streams):
            begins = cumulate(sizes)[:-1]
            if not sizes.all():
                begins, sizes = begins[sizes > 0], sizes[sizes > 0]
            return cls(sizes, begins + first, sizes, key)
        counts = []
        for index in chosen:
            stream = params.streams[index]
            picks_epoch = epoch + 1 if params.draws_anew_each_epoch else 0
            rng = np.random.default_rng([seed, picks_epoch, index, 1])
            counts.append(
                share_out(stream.shard_sizes, stream.choose, params.sampling_granularity, rng)
            )
        shards, units, _ = split_units(sizes, np.concatenate(counts))
        return cls(units, cumulate(sizes)[shards] + first, sizes[shards], key)

    @property
    def offset(self) -> int | None:
        """What to add to a sample's number for its id, if every sample is taken once."""
        whole = self.units is self.shard_sizes or np.array_equal(self.units, self.shard_sizes)
        if not len(self.units) or (whole and np.array_equal(np.diff(self.begins), self.units[:-1])):
            return int(self.begins[0]) if len(self.units) else 0
        return None

    def __call__(self, numbers: Ints) -> Ints:
        """The ids of samples by their numbers from 0 up."""
        assert self.bounds is not None
        units = np.searchsorted(self.bounds, numbers, side="right") - 1
        ids = numbers - self.bounds[units]
        partial = np.flatnonzero(self.units[units] < self.shard_sizes[units])
        if partial.size:
            of = units[partial]
            ids[partial] = permute(ids[partial], self.shard_sizes[of], self._keys(of))
        ids += self.begins[units]
        return ids

    def _keys(self, units: Ints) -> Words:
        return draw(self.key, self.begins[units].astype(np.uint64))

    def write_out(self) -> tuple[Ints, Ints]:
        """The units, and the ids of all samples."""
        assert self.bounds is not None
        return self.units, in_chunks(self, 0, int(self.bounds[-1]))


def share_out(sizes: Ints, choose: int, granularity: int, rng: np.random.Generator) -> Ints:
    """How many samples each shard of a stream gives to an epoch, as equally as granularity allows.

    Whole passes through the stream take every shard alike. Of what remains, every shard gives what
    its size would have it give, rounded up or down to a multiple of `granularity` so that it comes
    out over all shards, in random order (systematic sampling).

    Args:
        sizes: samples that each shard has.
        choose: samples to take of the stream in all; may be more than it has.
        granularity: samples of a shard to take together.
        rng: what to draw from.

    Returns:
        One count for each shard, which add up to `choose`.

    Raises:
        ValueError: an argument is negative, `granularity` is 0, or an empty stream is to give
            samples.

    >>> share_out(np.array([10, 10, 10]), 45, 5, np.random.default_rng(0)).tolist()
    [15, 15, 15]
    """
    total = int(sizes.sum())
    if choose < 0 or granularity < 1 or (choose and not total):
        raise ValueError(
            f"Can't choose {choose} samples of a stream that has {total}, {granularity} at a time."
        )
    whole, rest = divmod(choose, max(total, 1))
    counts = sizes * whole
    if rest:
        order = rng.permutation(len(sizes))
        counts[order] += _give(sizes[order], rest, total, granularity, rng.random())
    return counts


def _give(sizes: Ints, wanted: int, total: int, granularity: int, start: float) -> Ints:
    reached = (np.cumsum(sizes) * (wanted / total / granularity) + start).astype(np.int64)
    given: Ints = np.minimum(np.diff(reached, prepend=0) * granularity, sizes)
    # Shards are no multiples of the granularity: cut short, or take more of those that give.
    given = np.diff(np.minimum(np.cumsum(given), wanted), prepend=0)
    missing = wanted - int(given.sum())
    if missing:
        first = np.argsort(given == 0, kind="stable")
        room = np.cumsum((sizes - given)[first])
        given[first] += np.diff(np.minimum(room, missing), prepend=0)
    return given


def split_units(sizes: Ints, counts: Ints) -> tuple[Ints, Ints, Ints]:
    """The units of shards that have `sizes` and are to give `counts`: whole shards, and a rest.

    Returns:
        The shard of each unit, its size, and the numbers of the units that are not whole shards.

    >>> shards, units, partial = split_units(np.array([4, 3]), np.array([9, 3]))
    >>> shards.tolist(), units.tolist(), partial.tolist()
    ([0, 0, 0, 1], [4, 4, 1, 3], [2])
    """
    whole, part = np.divmod(counts, np.maximum(sizes, 1))
    units_per_shard = whole + (part > 0)
    shards = np.repeat(np.arange(len(sizes)), units_per_shard)
    units = sizes[shards]
    gives_part = np.flatnonzero(part)
    partial = np.cumsum(units_per_shard)[gives_part] - 1
    units[partial] = part[gives_part]
    return shards, units, partial
