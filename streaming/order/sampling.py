"""Which samples of a stream an epoch takes, where that is not each of them once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints, Narrow, cumulate, join_ranges, narrowest, shuffle_in_place
from streaming.order.choices import choose_sorted
from streaming.order.params import OrderParams, StreamShape
from streaming.order.units import Sampling, split_units


def get_sampling(
    samples_per_shard: NDArray[np.int64],
    choose: int,
    granularity: int,
    seed: int,
    epoch: int,
    use_epoch: bool,
) -> NDArray[np.int64]:
    """How many samples each shard of a stream gives to an epoch.

    Whole passes through the stream take every shard alike. What remains is drawn in picks of
    `granularity` samples of one shard, so that a fraction of a stream need not touch all shards.

    Args:
        samples_per_shard: samples that each shard has.
        choose: samples to take of the stream in all; may be more than it has.
        granularity: samples in a pick; the last pick of a shard holds what is left of it.
        seed: the data set's shuffle seed.
        epoch: number of the epoch, from 0.
        use_epoch: whether other picks are drawn in each epoch.

    Returns:
        One count for each shard, which add up to `choose`.

    Raises:
        ValueError: an argument is negative, `granularity` is 0, or an empty stream is to give
            samples.

    >>> get_sampling(np.array([10, 10, 5]), 30, 5, seed=9176, epoch=0, use_epoch=True)
    array([10, 15,  5])
    """
    sizes = np.asarray(samples_per_shard, np.int64)
    total = int(sizes.sum())
    _check(total, choose, granularity, seed, epoch)
    if not choose:
        return np.zeros(len(sizes), np.int64)
    if choose % total == 0:
        return sizes * (choose // total)
    rng = np.random.default_rng(seed + epoch if use_epoch else seed)
    return sizes * (choose // total) + _draw_picks(rng, sizes, choose % total, granularity)


def _check(total: int, choose: int, granularity: int, seed: int, epoch: int) -> None:
    for name, value, least in (
        ("choose", choose, 0),
        ("granularity", granularity, 1),
        ("seed", seed, 0),
        ("epoch", epoch, 0),
    ):
        if value < least:
            raise ValueError(f"Sampling needs `{name}` from {least} up, not {value}.")
    if choose and not total:
        raise ValueError(f"Can't choose {choose} samples of a stream that has none.")


def _draw_picks(rng: np.random.Generator, sizes: Ints, wanted: int, granularity: int) -> Ints:
    """Draw picks until `wanted` samples, less than there are, are reached; count them by shard."""
    picks_per_shard = -(-sizes // granularity)
    bounds = cumulate(picks_per_shard)
    picks = np.arange(bounds[-1], dtype=narrowest(int(bounds[-1])))
    shuffle_in_place(rng, picks)
    if granularity == 1:
        return _count_by_shard(picks[:wanted], sizes)
    # No pick is empty, so that so many are enough.
    drawn = picks[:wanted].astype(np.int64)
    shards = np.searchsorted(bounds, drawn, side="right") - 1
    ends_shard = drawn == bounds[shards + 1] - 1
    given = np.where(
        ends_shard, sizes[shards] - (drawn - bounds[shards]) * granularity, granularity
    )
    reached = np.cumsum(given)
    last = int(np.searchsorted(reached, wanted))
    given[last] -= reached[last] - wanted
    # The sums are whole numbers under 2**53, which float64 adds exactly.
    counts = np.bincount(shards[: last + 1], weights=given[: last + 1], minlength=len(sizes))
    return counts.astype(np.int64)


def _count_by_shard(samples: Narrow, sizes: Ints) -> Ints:
    """How many of some different samples each shard holds."""
    total = int(sizes.sum())
    drawn = np.zeros(total, np.bool_)
    drawn[samples] = True
    counts = np.zeros_like(sizes)
    shards = np.flatnonzero(sizes)
    counts[shards] = np.add.reduceat(drawn, cumulate(sizes)[shards], dtype=np.int64)
    return counts


class Resampled(NamedTuple):
    """What an epoch takes, before it is shuffled."""

    units: Ints
    """Sizes of the runs of samples that shuffling treats as shards."""
    ids: Narrow | None
    """The sample id behind each number of the epoch; None: the numbers from `offset` up."""
    offset: int
    """The id of the first sample of the streams looked at."""


def resample_narrow(params: OrderParams, epoch: int, stream_id: int | None = None) -> Resampled:
    """`resample`, without an array of ids where every shard gives each of its samples once."""
    offsets = params.stream_offsets
    chosen = range(len(params.streams)) if stream_id is None else range(stream_id, stream_id + 1)
    sizes = np.concatenate(
        [np.asarray(params.streams[index].shard_sizes, np.int64) for index in chosen]
    )
    counts = _counts((params.streams[index] for index in chosen), params, epoch)
    first = int(offsets[chosen[0]])
    if np.array_equal(sizes, counts):
        return Resampled(sizes[sizes > 0], None, first)
    begins = first + cumulate(sizes)[:-1]
    seed = params.shuffle_seed + (epoch if params.sampling_method == "balanced" else 0)
    dtype = narrowest(int(offsets[-1]))
    return Resampled(
        *_repeat_and_pick(np.random.default_rng(seed), begins, sizes, counts, dtype), first
    )


def _counts(streams: Iterable[StreamShape], params: OrderParams, epoch: int) -> Ints:
    """Samples to take of each shard of the streams."""
    return np.concatenate(
        [
            get_sampling(
                stream.shard_sizes,
                stream.choose,
                params.sampling_granularity,
                params.shuffle_seed,
                epoch,
                params.draws_anew_each_epoch,
            )
            for stream in streams
        ]
    )


def _repeat_and_pick(
    rng: np.random.Generator,
    begins: Ints,
    sizes: Ints,
    counts: Ints,
    dtype: np.dtype[np.unsignedinteger],
) -> tuple[Ints, Narrow]:
    """Units and ids of shards that begin at `begins`, have `sizes`, and are to give `counts`."""
    shards, units, partial = split_units(sizes, counts)
    ids = join_ranges(begins[shards], units, dtype)
    if partial.size:
        places = choose_sorted(rng, sizes[shards[partial]], units[partial])
        places += np.repeat(begins[shards[partial]], units[partial])
        starts = cumulate(units)[:-1][partial]
        ids[join_ranges(starts, units[partial], np.dtype(np.int64))] = places
    return units, ids


def resample(params: OrderParams, epoch: int, stream_id: int | None = None) -> tuple[Ints, Ints]:
    """Which samples the streams, or one of them, give to an epoch, shard by shard.

    Args:
        params: the data set's parameters.
        epoch: number of the epoch, from 0.
        stream_id: number of the stream to look at alone; None: all streams.

    Returns:
        `(shuffle_units, sample_ids)`: the sizes of the runs of samples that shuffling treats as
        shards, and the ids of the samples, as many as the units add up to.

    Raises:
        ValueError: `epoch`, the seed or the granularity is out of range.

    >>> from streaming.order import OrderParams, StreamShape
    >>> stream = StreamShape(np.array([4, 4]), choose=12, proportion=1.0)
    >>> params = OrderParams((stream,), epoch_size=12, batch_size=1, num_canonical_nodes=1)
    >>> units, ids = resample(params, epoch=0)
    >>> units.tolist(), ids[:4].tolist()
    ([4, 2, 4, 2], [0, 1, 2, 3])
    """
    if params.is_computed:
        return Sampling.draw(params, epoch, stream_id).write_out()
    units, ids, offset = resample_narrow(params, epoch, stream_id)
    if ids is None:
        return units, np.arange(offset, offset + int(units.sum()), dtype=np.int64)
    return units, ids.astype(np.int64)
