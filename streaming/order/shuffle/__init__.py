"""Shuffles: permutations of an epoch's samples that keep downloads in bounds.

All are pure functions of the shards' sizes, the number of canonical nodes, the seed and the epoch.
They draw the same numbers whatever integer type the result is kept in. `blockwise` is our own, and
the only one that an epoch's plan need not draw as a whole; the others are mosaicml-streaming's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import narrowest
from streaming.order.share import Share
from streaming.order.shuffle.blockwise import draw_blockwise
from streaming.order.shuffle.naive import draw_naive
from streaming.order.shuffle.py1br import draw_py1br
from streaming.order.shuffle.py1e import OnFirst, draw_py1e, draw_py1e_of
from streaming.order.shuffle.py1s import draw_py1s
from streaming.order.shuffle.py2s import draw_py2s

DrawShuffle = Callable[
    [NDArray[np.int64], int, int, int, int, "np.dtype[Any]"],
    NDArray[Any],
]
"""(shard sizes, canonical nodes, seed, epoch, block size, type of the result) -> permutation."""

SHUFFLE_ALGOS: dict[str, DrawShuffle] = {
    "naive": draw_naive,
    "py1br": draw_py1br,
    "py1e": draw_py1e,
    "py1s": draw_py1s,
    "py2s": draw_py2s,
    "blockwise": draw_blockwise,
}
"""The shuffle algorithms by name."""

_LEAST_BLOCK = {"blockwise": 2, "py1br": 2, "py1e": 1}


def check_shuffle(algo: str, num_samples: int, num_canonical_nodes: int, block_size: int) -> None:
    """Check what a shuffle can be asked for, without drawing it.

    Raises:
        ValueError: there is no such algorithm, its block is too small, or it needs a sample for
            every canonical node and there are fewer.

    >>> check_shuffle("py1e", 3, 4, 1000)
    Traceback (most recent call last):
        ...
    ValueError: py1e needs a sample for each of the 4 canonical nodes, but there are 3. Use fewer \
canonical nodes or another shuffle, or take more samples.
    """
    if algo not in SHUFFLE_ALGOS:
        raise ValueError(
            f"There is no shuffle algorithm {algo!r}; use one of {', '.join(SHUFFLE_ALGOS)}."
        )
    if num_canonical_nodes < 1:
        raise ValueError(f"`num_canonical_nodes` must be from 1 up, not {num_canonical_nodes}.")
    least = _LEAST_BLOCK.get(algo)
    if least is not None and block_size < least:
        raise ValueError(
            f"{algo} can't draw blocks of {block_size} samples; make `shuffle_block_size` larger."
        )
    if algo == "py1e" and num_samples < num_canonical_nodes:
        raise ValueError(
            f"py1e needs a sample for each of the {num_canonical_nodes} canonical nodes, but there "
            f"are {num_samples}. Use fewer canonical nodes or another shuffle, or take more "
            "samples."
        )


def draw_shuffle(
    algo: str,
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
    dtype: np.dtype[Any] | None = None,
    share: Share | None = None,
    on_first: OnFirst | None = None,
) -> NDArray[Any]:
    """`get_shuffle` in the narrowest unsigned type that holds the result, or in `dtype`.

    Of a physical node's `share` only that is kept; `py1e` leaves out most of the work for others'.
    Where there are many samples, `py1e` calls `on_first` with the first of the result, in another
    thread and long before the others are settled.

    >>> draw_shuffle("naive", np.array([3, 4]), 1, seed=0, epoch=0).dtype
    dtype('uint8')
    """
    sizes = np.asarray(shard_sizes, np.int64)
    num_samples = int(sizes.sum())
    check_shuffle(algo, num_samples, num_canonical_nodes, block_size)
    dtype = dtype or narrowest(num_samples)
    arguments = sizes, num_canonical_nodes, seed, epoch, block_size, dtype
    if algo == "py1e" and (share is None or share.is_whole_runs):
        wanted = range(num_canonical_nodes) if share is None else share.owners
        return draw_py1e_of(wanted, *arguments, on_first)
    whole = SHUFFLE_ALGOS[algo](*arguments)
    return whole if share is None else share.take(whole)


def get_shuffle(
    algo: str,
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """Draw the permutation of an epoch's samples.

    Args:
        algo: `blockwise`, `naive`, `py1br`, `py1e`, `py1s` or `py2s`.
        shard_sizes: samples of each shard, or of each run that counts as one.
        num_canonical_nodes: parts of the permutation, which are shuffled separately.
        seed: seed of the whole training run.
        epoch: number of the epoch, from 0.
        block_size: samples within which `blockwise`, `py1br` and `py1e` shuffle.

    Returns:
        The sample numbers from 0 up to the sum of the sizes, each once, in their new order.

    Raises:
        ValueError: as `check_shuffle` says, or the seed is negative.

    >>> get_shuffle("py1s", np.array([2, 3]), 1, seed=0, epoch=0).tolist()
    [0, 1, 4, 2, 3]
    """
    dtype = np.dtype(np.int64)
    return draw_shuffle(algo, shard_sizes, num_canonical_nodes, seed, epoch, block_size, dtype)


def get_shuffle_blockwise(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """`get_shuffle` by the algorithm `blockwise`."""
    return get_shuffle("blockwise", shard_sizes, num_canonical_nodes, seed, epoch, block_size)


def get_shuffle_naive(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """`get_shuffle` by the algorithm `naive`."""
    return get_shuffle("naive", shard_sizes, num_canonical_nodes, seed, epoch, block_size)


def get_shuffle_py1br(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """`get_shuffle` by the algorithm `py1br`."""
    return get_shuffle("py1br", shard_sizes, num_canonical_nodes, seed, epoch, block_size)


def get_shuffle_py1e(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """`get_shuffle` by the algorithm `py1e`."""
    return get_shuffle("py1e", shard_sizes, num_canonical_nodes, seed, epoch, block_size)


def get_shuffle_py1s(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """`get_shuffle` by the algorithm `py1s`."""
    return get_shuffle("py1s", shard_sizes, num_canonical_nodes, seed, epoch, block_size)


def get_shuffle_py2s(
    shard_sizes: NDArray[np.int64],
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> NDArray[np.int64]:
    """`get_shuffle` by the algorithm `py2s`."""
    return get_shuffle("py2s", shard_sizes, num_canonical_nodes, seed, epoch, block_size)
