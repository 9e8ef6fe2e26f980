"""What is drawn at random for an epoch. It is the same for every world and every process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints, Narrow
from streaming.order.params import OrderParams
from streaming.order.sampling import resample_narrow
from streaming.order.share import Share
from streaming.order.shuffle import check_shuffle, draw_shuffle
from streaming.order.shuffle.blockwise import Blockwise
from streaming.order.units import Sampling


@dataclass(frozen=True, slots=True, eq=False)
class SampleIds:
    """The sample ids behind the sample numbers of an epoch, shuffled and resampled.

    >>> SampleIds(None, 100)(np.array([0, 2, -1])).tolist()
    [100, 102, -1]
    """

    table: Narrow | None
    """An id for each number, less `offset`; None: the numbers themselves."""
    offset: int
    computed: Callable[[Ints], Ints] | None = None
    """What gives an id, less `offset`, for each of some numbers, in place of a table."""

    def __call__(self, numbers: Ints) -> Ints:
        """The ids of `numbers`; -1, for padding, stays -1."""
        if self.computed is not None:
            ids = self.computed(np.maximum(numbers, 0)) if numbers.size else numbers
        else:
            ids = numbers if self.table is None else self.table[numbers].astype(np.int64)
        return np.where(numbers < 0, -1, ids + self.offset)


class EarlyIds:
    """The ids behind the first numbers; whoever asks for others waits until they are drawn.

    Args:
        first: The ids behind the first numbers, in a table.
        whole: Waits for the ids behind all numbers.

    >>> ids = EarlyIds(SampleIds(np.array([7, 5], np.uint8), 0), lambda: SampleIds(None, 100))
    >>> ids(np.array([1, -1])).tolist(), ids(np.array([1, 2])).tolist()
    ([5, -1], [101, 102])
    """

    def __init__(self, first: SampleIds, whole: Callable[[], SampleIds]) -> None:
        assert first.table is not None
        self._first, self._count = first, len(first.table)
        self._get = whole
        self._whole: SampleIds | None = None

    def __call__(self, numbers: Ints) -> Ints:
        """The ids of `numbers`; -1, for padding, stays -1."""
        if numbers.size and int(numbers.max()) >= self._count:
            return self.whole()(numbers)
        return self._first(numbers)

    def whole(self) -> SampleIds:
        """Wait for the ids behind all numbers."""
        if self._whole is None:
            self._whole = self._get()
        return self._whole


@dataclass(frozen=True, slots=True, eq=False)
class SharedIds:
    """The ids behind the numbers that one node can be given; others' are looked up elsewhere.

    >>> share = Share(num_samples=4, canonical_nodes=2, nodes=2, node=1)
    >>> own = SampleIds(np.array([7, 5], np.uint8), 0)
    >>> SharedIds(share, own, lambda: SampleIds(None, 0))(np.array([3, -1, 2])).tolist()
    [5, -1, 7]
    """

    share: Share
    own: SampleIds | EarlyIds
    """The ids behind places in the share."""
    whole: Callable[[], SampleIds]
    """Gives the ids behind all numbers."""

    def __call__(self, numbers: Ints) -> Ints:
        """The ids of `numbers`; -1, for padding, stays -1."""
        places = self.share.places(numbers)
        if ((places < 0) & (numbers >= 0)).any():
            return self.whole()(numbers)
        return self.own(places)


def shuffle_block_size(params: OrderParams, stream_id: int | None) -> int:
    """Samples of a shuffle block: one stream's part of it where it is shuffled by itself."""
    if stream_id is None:
        return params.shuffle_block_size
    return int(params.shuffle_block_size * params.streams[stream_id].proportion)


def check_draws(params: OrderParams, stream_id: int | None) -> None:
    """Check that `draw_ids` can be asked for this, without drawing.

    Raises:
        ValueError: the samples can't be shuffled by the algorithm, as `check_shuffle` says.
    """
    if not params.shuffle:
        return
    streams = params.streams if stream_id is None else (params.streams[stream_id],)
    check_shuffle(
        params.shuffle_algo,
        sum(stream.choose for stream in streams),
        params.num_canonical_nodes,
        shuffle_block_size(params, stream_id),
    )


def draw_ids(
    params: OrderParams,
    epoch: int,
    stream_id: int | None = None,
    share: Share | None = None,
    on_first: Callable[[SampleIds], None] | None = None,
) -> SampleIds:
    """Draw which samples an epoch takes, and in which order, before they are dealt out.

    Args:
        params: the data set's parameters.
        epoch: number of the epoch, from 0.
        stream_id: number of the stream to draw for alone; None: all streams together.
        share: what to keep of a shuffle that has to be drawn as a whole; None: everything.
        on_first: called with the ids behind the first numbers, where `draw_shuffle` tells of them.

    Returns:
        The ids behind all numbers, or behind all places in the share.

    Raises:
        ValueError: as `resample` and `get_shuffle` do.

    >>> from streaming.order import OrderParams, StreamShape
    >>> stream = StreamShape(np.array([2, 2]), choose=4, proportion=1.0)
    >>> params = OrderParams((stream,), 4, batch_size=1, num_canonical_nodes=1, shuffle=True)
    >>> draw_ids(params, epoch=0)(np.arange(4)).tolist()
    [2, 0, 3, 1]
    """
    if params.is_computed:
        return _compute_ids(params, epoch, stream_id)
    taken = resample_narrow(params, epoch, stream_id)
    if not params.shuffle:
        if share is None:
            return SampleIds(taken.ids, 0 if taken.ids is not None else taken.offset)
        if taken.ids is None:
            return SampleIds(share.take(np.arange(share.num_samples)), taken.offset)
        return SampleIds(share.take(taken.ids), 0)

    def ids_of(shuffle: NDArray[Any]) -> SampleIds:
        if taken.ids is None:
            return SampleIds(shuffle, taken.offset)
        return SampleIds(taken.ids[shuffle], 0)

    shuffle = draw_shuffle(
        params.shuffle_algo,
        taken.units,
        params.num_canonical_nodes,
        params.shuffle_seed,
        epoch,
        shuffle_block_size(params, stream_id),
        share=share,
        on_first=None if on_first is None else lambda first: on_first(ids_of(first)),
    )
    return ids_of(shuffle)


def _compute_ids(params: OrderParams, epoch: int, stream_id: int | None) -> SampleIds:
    sampling = Sampling.draw(params, epoch, stream_id)
    shuffle = Blockwise.draw(
        sampling.units,
        params.num_canonical_nodes,
        params.shuffle_seed,
        epoch,
        shuffle_block_size(params, stream_id),
        stream_id,
    )
    offset = sampling.offset
    if offset is not None:
        return SampleIds(None, offset, shuffle)
    return SampleIds(None, 0, Resampled(sampling, shuffle))


@dataclass(frozen=True, slots=True, eq=False)
class Resampled:
    """The ids of samples by their places in a shuffle, each computed by itself."""

    sampling: Sampling
    shuffle: Blockwise

    def __call__(self, numbers: Ints) -> Ints:
        """The ids at places from 0 up."""
        return self.sampling(self.shuffle(numbers))


class EpochDraws:
    """An epoch's draws, made when they are first asked for and then kept.

    A plan asks for all streams together (`stream_id` None) or for each by itself, according to its
    batching method. Several threads may ask at once.
    """

    def __init__(self, params: OrderParams, epoch: int) -> None:
        self.params = params
        self.epoch = epoch
        self._drawn: dict[int | None, SampleIds | EarlyIds | SharedIds] = {}
        self._lock = threading.Lock()

    def ids(self, stream_id: int | None) -> SampleIds | EarlyIds | SharedIds:
        """The ids behind the sample numbers of all streams, or of one."""
        drawn = self._drawn.get(stream_id)
        if drawn is None:
            with self._lock:
                drawn = self._drawn.get(stream_id)
                if drawn is None:
                    drawn = self._make(stream_id)
                    self._drawn[stream_id] = drawn
        return drawn

    def _make(self, stream_id: int | None) -> SampleIds | EarlyIds | SharedIds:
        return draw_ids(self.params, self.epoch, stream_id)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the lock."""
        return {"params": self.params, "epoch": self.epoch, "_drawn": self._drawn}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
