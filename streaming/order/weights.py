"""How many samples of each stream make an epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Proportions = Sequence[float | None]
Repeats = Sequence[float | None]
Chooses = Sequence[int | None]


class Weights(NamedTuple):
    """The streams' weights in all three forms, one element for each stream."""

    proportion: list[float]
    """Part of the epoch, 0 to 1."""
    repeat: list[float]
    """How often an epoch goes through the stream."""
    choose: list[int]
    """Samples that an epoch takes from the stream."""
    epoch_size: int
    """Samples in an epoch."""


def validate_weights(
    proportions: Proportions, repeats: Repeats, chooses: Chooses
) -> tuple[bool, bool]:
    """Check that streams' weights are sound and go together.

    Args:
        proportions: each stream's relative weight, or None; on every stream or on none.
        repeats: how often each stream is gone through, or None.
        chooses: samples to take of each stream, or None.

    Returns:
        Whether the weights are relative, and whether no stream has any.

    Raises:
        ValueError: a stream has two weights, or one that is negative or not finite, or `proportion`
            is given on some streams only.

    >>> validate_weights([None, None], [1.5, None], [None, 20])
    (False, False)
    >>> validate_weights([0.5, None], [None, None], [None, None])
    Traceback (most recent call last):
        ...
    ValueError: `proportion` weighs streams against one another, so that every stream needs it, or \
none; stream 1 has none.
    """
    unspecified = True
    for stream, weights in enumerate(zip(proportions, repeats, chooses, strict=True)):
        given = {
            name: weight
            for name, weight in zip(("proportion", "repeat", "choose"), weights, strict=True)
            if weight is not None
        }
        unspecified = unspecified and not given
        _check_weight(stream, given)
    lacking = [stream for stream, weight in enumerate(proportions) if weight is None]
    if lacking and len(lacking) < len(proportions):
        raise ValueError(
            "`proportion` weighs streams against one another, so that every stream needs it, or "
            f"none; stream {lacking[0]} has none."
        )
    return not lacking, unspecified


def _check_weight(stream: int, given: dict[str, float]) -> None:
    if len(given) > 1:
        names = " and ".join(f"`{name}`" for name in given)
        raise ValueError(f"A stream takes one weight, but stream {stream} has {names}.")
    for name, weight in given.items():
        if not math.isfinite(weight) or weight < 0:
            raise ValueError(
                f"`{name}` of stream {stream} must be a number from 0 up, not {weight!r}."
            )


def derive_weights(
    proportions: Proportions,
    repeats: Repeats,
    chooses: Chooses,
    samples_per_stream: Sequence[int] | NDArray[np.int64],
    epoch_size: int | None,
    seed: int,
) -> Weights:
    """Derive every stream's weight in all three forms, and the epoch's size.

    Args:
        proportions: each stream's relative weight, or None; on every stream or on none.
        repeats: how often each stream is gone through, or None.
        chooses: samples to take of each stream, or None.
        samples_per_stream: samples that each stream has.
        epoch_size: samples in an epoch. None: the streams' sizes with relative weights, otherwise
            what the weights add up to.
        seed: the data set's shuffle seed. It settles which streams get the samples that are left
            over when proportions are rounded down.

    Raises:
        ValueError: there is no stream; weights contradict one another or `epoch_size`, or are
            negative; samples are to be taken of a stream that has none.

    >>> derive_weights([1, 3], [None, None], [None, None], [50, 50], None, seed=9176)
    Weights(proportion=[0.25, 0.75], repeat=[0.5, 1.5], choose=[25, 75], epoch_size=100)
    """
    if not len(proportions):
        raise ValueError("There are no streams to weigh. Give at least one.")
    relative, unspecified = validate_weights(proportions, repeats, chooses)
    samples = np.asarray(samples_per_stream, np.int64)
    if relative:
        weights = np.array(proportions, np.float64)
    elif unspecified and epoch_size is not None:
        weights = samples.astype(np.float64)
    else:
        return _absolute(repeats, chooses, samples, epoch_size)
    return _relative(weights, samples, epoch_size, seed)


def _relative(
    weights: NDArray[np.float64], samples: NDArray[np.int64], epoch_size: int | None, seed: int
) -> Weights:
    if epoch_size is not None and epoch_size < 1:
        raise ValueError(f"`epoch_size` must be a number of samples from 1 up, not {epoch_size}.")
    if not weights.sum() > 0:
        raise ValueError(
            "No stream weighs anything: every `proportion` is 0, or no stream has samples."
        )
    epoch = int(samples.sum()) if epoch_size is None else int(epoch_size)
    # NumPy's pairwise sum: a plain one rounds differently, and so would every stream's share.
    proportion = weights / weights.sum()
    choose = (epoch * proportion).astype(np.int64)
    shortfall = epoch - int(choose.sum())
    lucky = np.random.default_rng(seed).choice(len(weights), shortfall, replace=False)
    choose[lucky] += 1
    return _collect(proportion, choose, samples, epoch)


def _absolute(
    repeats: Repeats, chooses: Chooses, samples: NDArray[np.int64], epoch_size: int | None
) -> Weights:
    if epoch_size is not None:
        raise ValueError(
            f"`epoch_size` ({epoch_size}) and the streams' absolute weights (`repeat`, `choose`) "
            "both say how long an epoch is. Remove one of them, or use `proportion`."
        )
    choose = np.array(
        [
            int(repeat * size) if repeat is not None else size if own is None else own
            for repeat, own, size in zip(repeats, chooses, samples.tolist(), strict=True)
        ],
        np.int64,
    )
    epoch = int(choose.sum())
    proportion = choose / epoch if epoch else np.zeros(len(choose))
    return _collect(proportion, choose, samples, epoch)


def _collect(
    proportion: NDArray[np.float64],
    choose: NDArray[np.int64],
    samples: NDArray[np.int64],
    epoch: int,
) -> Weights:
    short = np.flatnonzero((samples == 0) & (choose > 0))
    if short.size:
        stream = int(short[0])
        raise ValueError(
            f"Stream {stream} has no samples, but its weight asks for {int(choose[stream])}. Check "
            "its index, or give it the weight 0."
        )
    # An empty stream that nothing is asked of is gone through zero times.
    repeat = np.divide(choose, samples, out=np.zeros(len(samples)), where=samples > 0)
    return Weights(proportion.tolist(), repeat.tolist(), choose.tolist(), epoch)
