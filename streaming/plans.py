"""An epoch's draws, made once on a node: the compatible shuffles are whole arrays of numbers."""

import hashlib
import sys
import threading
from functools import partial
from typing import Any

import numpy as np

from streaming.early import Early, Publish, get_early
from streaming.keep import Arrays, Keep, user_keep
from streaming.order.draws import (
    EarlyIds,
    EpochDraws,
    SampleIds,
    SharedIds,
    draw_ids,
    shuffle_block_size,
)
from streaming.order.params import OrderParams, StreamShape
from streaming.order.share import Share, share_of

LARGE = 4_000_000
"""Samples of an epoch from which on its draws are kept. Fewer are drawn in less than half a second,
and take 16 MB."""

SLOW = 20_000_000
"""Samples of an epoch from which on the first part of its draws is used before the rest is there.
Fewer are drawn in about a second."""

_AHEAD_AFTER = 2
"""How many slices of an epoch are asked for before the next epoch's draws are made: a process that
only looks at a plan should not make another. An iteration asks for each slice twice, to use it and
to fetch it ahead."""


class KeptDraws(EpochDraws):
    """Draws that one process of the node makes, and all of them map; also those of later runs.

    While an epoch is gone through, one process draws the next one.

    Args:
        params: The data set's parameters.
        epoch: The epoch's number.
        keep: Where they are kept.
        num_nodes: Physical nodes of the world.
        node: Which of them this is: only what its ranks can be given is kept.
    """

    def __init__(
        self, params: OrderParams, epoch: int, keep: Keep, num_nodes: int = 1, node: int = 0
    ) -> None:
        super().__init__(params, epoch)
        self._keep = keep
        self._place = num_nodes, node
        self._asked = 0
        self._early_draws: dict[int | None, Early] = {}

    def ids(self, stream_id: int | None) -> SampleIds | EarlyIds | SharedIds:
        """The ids behind the sample numbers of all streams, or of one."""
        found = super().ids(stream_id)
        self._asked += 1
        if self._asked == _AHEAD_AFTER:
            threading.Thread(
                target=self._draw_next, name="streaming-next-plan", daemon=True
            ).start()
        return found

    def _make(self, stream_id: int | None) -> SampleIds | EarlyIds | SharedIds:
        if not self._is_large(stream_id):
            return super()._make(stream_id)
        share = self._share(stream_id)
        slow = num_samples(self.params, stream_id) >= SLOW
        own = self._early(stream_id, share) if slow else self._kept(stream_id, share)
        if share is None:
            return own
        whole = partial(self._kept, stream_id, None)
        return SharedIds(share, own, whole)

    def _share(self, stream_id: int | None) -> Share | None:
        return share_of(self.params, stream_id, *self._place)

    def _kept(self, stream_id: int | None, share: Share | None) -> SampleIds:
        what = self.params, self.epoch, stream_id, share
        return _ids_of(self._keep.get("plan", digest(*what), partial(_draw, *what)))

    def _early(self, stream_id: int | None, share: Share | None) -> SampleIds | EarlyIds:
        what = self.params, self.epoch, stream_id, share
        early = get_early(self._keep, "plan", digest(*what), partial(_draw, *what))
        self._early_draws[stream_id] = early
        if early.is_whole:
            return _ids_of(early.arrays)
        return EarlyIds(_ids_of(early.arrays), lambda: _ids_of(early.whole()))

    def _is_large(self, stream_id: int | None) -> bool:
        return _is_large(self.params, stream_id)

    def _draw_next(self) -> None:
        for stream_id in list(self._drawn):
            if self._is_large(stream_id):
                # One epoch after the other. If another process draws this one, so it will the next.
                early = self._early_draws.get(stream_id)
                if early is not None and not early.end():
                    continue
                what = self.params, self.epoch + 1, stream_id, self._share(stream_id)
                self._keep.make_ahead("plan", digest(*what), partial(_draw, *what))

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the lock, and what another process maps for itself."""
        return {
            **super().__getstate__(),
            "_drawn": {},
            "_early_draws": {},
            "_keep": self._keep,
            "_place": self._place,
            "_asked": 0,
        }


def _draw(
    params: OrderParams,
    epoch: int,
    stream_id: int | None,
    share: Share | None,
    publish: Publish | None = None,
) -> Arrays:
    on_first = None if publish is None else lambda first: publish(_arrays_of(first))
    return _arrays_of(draw_ids(params, epoch, stream_id, share, on_first))


def _arrays_of(ids: SampleIds) -> Arrays:
    assert ids.table is not None
    return {"table": ids.table, "offset": np.array([ids.offset])}


def _ids_of(arrays: Arrays) -> SampleIds:
    return SampleIds(arrays["table"], int(arrays["offset"][0]))


def draws_for(
    params: OrderParams, epoch: int, num_nodes: int = 1, node: int = 0
) -> EpochDraws | None:
    """What to give to ``plan_epoch``: draws that are kept, if it is worth it; None otherwise.

    Args:
        params: The data set's parameters.
        epoch: The epoch's number.
        num_nodes: Physical nodes of the world.
        node: Which of them this is.
    """
    if not _is_large(params, None):
        return None
    keep = user_keep()
    return None if keep is None else KeptDraws(params, epoch, keep, num_nodes, node)


def _is_large(params: OrderParams, stream_id: int | None) -> bool:
    """Whether there is much to draw for all streams, or for one by itself."""
    chosen = _streams(params, stream_id)
    if params.is_computed or num_samples(params, stream_id) < LARGE:
        return False
    return params.shuffle or any(each.choose != each.num_samples for each in chosen)


def num_samples(params: OrderParams, stream_id: int | None) -> int:
    """Samples that an epoch takes of all streams together, or of one."""
    return sum(stream.choose for stream in _streams(params, stream_id))


def _streams(params: OrderParams, stream_id: int | None) -> tuple[StreamShape, ...]:
    return params.streams if stream_id is None else (params.streams[stream_id],)


def digest(
    params: OrderParams, epoch: int, stream_id: int | None, share: Share | None = None
) -> str:
    """A hex digest of all that the draws of an epoch depend on."""
    hasher = hashlib.blake2b(digest_size=20)
    chosen = range(len(params.streams)) if stream_id is None else (stream_id,)
    settings = (
        *(2, sys.byteorder, np.__version__),
        *(
            params.shuffle,
            params.shuffle_algo,
            params.shuffle_seed,
            epoch,
            params.num_canonical_nodes,
        ),
        *(shuffle_block_size(params, stream_id), params.sampling_method),
        *(params.sampling_granularity, int(params.stream_offsets[chosen[0]])),
        [(len(params.streams[each].shard_sizes), params.streams[each].choose) for each in chosen],
    )
    hasher.update(repr(settings).encode())
    hasher.update(repr(share).encode())
    for each in chosen:
        hasher.update(np.ascontiguousarray(params.streams[each].shard_sizes, np.int64).data)
    return hasher.hexdigest()
