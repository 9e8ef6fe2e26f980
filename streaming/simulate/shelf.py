"""The shards on a simulated node: which are here, the room they take, who makes way."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streaming.cache.cache import TOUCH_S
from streaming.cache.space import MayEvict, Victim, make_way
from streaming.simulate.clock import Clock
from streaming.simulate.data import Data

__all__ = ["ABSENT", "CLAIMED", "PRESENT", "Shelf"]

ABSENT, CLAIMED, PRESENT = range(3)


class Shelf:
    """A node's cache directory.

    Args:
        clock: The time.
        data: The shards.
        limit: Bytes that they may take, or None.

    Example:
        >>> from streaming.simulate.setup import Setup, StreamSetup
        >>> stream = StreamSetup(shards=3, samples=10, sample_bytes=10)
        >>> shelf = Shelf(Clock(), Data(Setup(streams=[stream])), limit=200)
        >>> for shard in 0, 1:
        ...     _ = shelf.reserve(shard, lambda victim: True)
        ...     shelf.land(shard)
        >>> shelf.reserve(2, lambda victim: True), shelf.state[0] == ABSENT, shelf.used
        (True, True, 200)
    """

    def __init__(self, clock: Clock, data: Data, limit: int | None) -> None:
        self._clock, self._limit = clock, limit
        self._reserves, self._keeps = data.reserves.tolist(), data.keeps.tolist()
        self.state = bytearray(len(data.raw))
        """For each shard, whether it is here, or claimed by somebody who fetches it."""
        self._states = np.frombuffer(self.state, np.uint8)
        self.opened = bytearray(len(data.raw))
        """Whether a shard was opened since it was fetched."""
        self.used = self.most_used = 0
        """Bytes that shards take, those on their way at their full size; now, and at most."""
        self.evicted = 0
        self.on_evict: Callable[[int], None] = lambda shard: None
        self._order: OrderedDict[int, None] = OrderedDict()  # the one unused longest first
        self._last_use = np.zeros(len(data.raw)) if limit is not None else None
        self._touched_s = 0.0

    def absent(self, shards: NDArray[np.int64]) -> list[int]:
        """Which of some shards are not here."""
        absent: list[int] = shards[self._states[shards] != PRESENT].tolist()
        return absent

    def here(self, shards: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of some shards is here."""
        found: NDArray[np.bool_] = self._states[shards] == PRESENT
        return found

    def reserve(self, shard: int, may_evict: MayEvict) -> bool:
        """Claim a shard that is not here, and make room for it; False if there can be none now."""
        needed = self._reserves[shard]
        if self._limit is not None:
            victims = (
                Victim(0, each, self._keeps[each], 0, bool(self.opened[each]))
                for each in list(self._order)
            )
            if not make_way(self.used + needed - self._limit, victims, may_evict, self._evict):
                return False
        self.used += needed
        self.most_used = max(self.most_used, self.used)
        self.state[shard] = CLAIMED
        return True

    def _evict(self, victim: Victim) -> int:
        shard = victim.shard
        del self._order[shard]
        self.state[shard], self.opened[shard] = ABSENT, False
        self.used -= victim.size
        self.evicted += 1
        self.on_evict(shard)
        return victim.size

    def land(self, shard: int) -> None:
        """Note that a shard that was claimed is here."""
        self.state[shard] = PRESENT
        self.used += self._keeps[shard] - self._reserves[shard]
        self._order[shard] = None

    def give_up(self) -> None:
        """Note that nobody fetches any more what is claimed."""
        for shard in np.flatnonzero(self._states == CLAIMED).tolist():
            self.state[shard] = ABSENT
            self.used -= self._reserves[shard]

    def fill(self, shards: NDArray[np.int64]) -> None:
        """Take it that some shards are here, as they are after a whole epoch without a limit."""
        for shard in self.absent(shards):
            self.state[shard] = PRESENT
            self.used += self._keeps[shard]
            self._order[shard] = None

    def open(self, shards: list[int]) -> None:
        """Note that a reader opens shards that are here, which counts as use."""
        for shard in shards:
            self.opened[shard] = True
            if shard in self._order:
                self._order.move_to_end(shard)

    def use(self, shards: NDArray[np.int64]) -> None:
        """Note that some shards are read.

        As readers do, it marks those that are open as used only now and then.
        """
        if self._last_use is None:
            return
        self._last_use[shards] = self._clock.now
        if self._clock.now - self._touched_s > TOUCH_S:
            self._touched_s = self._clock.now
            opened = [shard for shard in self._order if self.opened[shard]]
            for shard in sorted(opened, key=self._last_use.__getitem__):
                self._order.move_to_end(shard)
