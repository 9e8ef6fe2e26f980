"""The smallest cache limit with which no shard is fetched twice in an epoch."""

from __future__ import annotations

import numpy as np

from streaming.cache.cache import BYTES_AHEAD
from streaming.simulate.data import Data, Work

__all__ = ["in_hand_bytes", "roomy_cache_limit", "smallest_cache_limit"]


def in_hand_bytes(data: Data, work: Work) -> int:
    """Most bytes of shards that a node has used and is to use again in an epoch.

    A shard that it has used is counted for as long as the longest pause between two uses: until
    then it can't be told from what is used again. And workers may be ahead of one another by the
    batches that the loader lets them make.

    Example:
        >>> from streaming.simulate.setup import Setup, StreamSetup
        >>> stream = StreamSetup(shards=10, samples=1000, sample_bytes=100)
        >>> plan = Setup(streams=[stream], ranks=1, workers=1, shuffle=False)
        >>> in_hand_bytes(Data(plan), Data(plan).work(0, 0))  # one, or two for a moment
        200000
        >>> plan = plan.but(shuffle=True, shuffle_algo="naive")
        >>> in_hand_bytes(Data(plan), Data(plan).work(0, 0))
        1000000
    """
    visits = data.visits(work)
    if not len(visits.shards):
        return 0
    keeps = data.keeps[visits.shards]
    setup = data.setup
    ahead = setup.batch_size * (setup.prefetch_factor if setup.workers else 1)
    apart = ahead * setup.workers_of_node // data.weight
    comes, goes = visits.first, visits.last + visits.longest_pause + apart
    at = np.concatenate([comes, goes + 1])
    change = np.concatenate([keeps, -keeps])
    order = np.lexsort((change, at))  # at one position, what goes is gone before others come
    return int(np.cumsum(change[order]).max())


def smallest_cache_limit(data: Data, work: Work) -> int:
    """The smallest limit in bytes with which no shard is fetched twice in an epoch.

    There has to be room for what is in hand, and for a shard that comes, in its compressed form as
    well. With so little, shards come late: see :func:`roomy_cache_limit`.
    """
    if not len(work.needs.shards):
        return 0
    largest = int(data.reserves[work.needs.shards].max())
    total = int(data.keeps[work.needs.shards].sum()) + largest
    return min(total, in_hand_bytes(data, work) + largest)


def roomy_cache_limit(data: Data, work: Work) -> int:
    """A limit in bytes with which, besides, as much can be fetched ahead as without a limit."""
    if not len(work.needs.shards):
        return 0
    largest = int(data.reserves[work.needs.shards].max())
    total = int(data.keeps[work.needs.shards].sum()) + largest
    smallest = smallest_cache_limit(data, work)
    # By bytes, half of the limit is fetched ahead at most.
    ahead = BYTES_AHEAD if data.setup.predownload is None else _ahead_bytes(data, work)
    return min(total, max(smallest + ahead, 2 * BYTES_AHEAD))


def _ahead_bytes(data: Data, work: Work) -> int:
    """Most bytes of shards that are needed first within what is fetched ahead by samples."""
    needs = work.needs
    ahead = -(-int(data.setup.predownload or 0) // data.weight) * len(work.shards)
    order = np.argsort(needs.first, kind="stable")
    first, keeps = needs.first[order], data.keeps[needs.shards][order]
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(keeps)])
    ends = np.searchsorted(first, first + ahead, "left")
    return int((sums[ends] - sums[:-1]).max())
