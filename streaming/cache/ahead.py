"""Asking for samples by ranges before they are needed, where their shards are not here yet."""

import logging
import threading
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger("streaming")

Ints = NDArray[np.int64]

LOOK_BYTES = 8 << 20
"""How far to look ahead: samples of so many bytes,"""
LOOK = 256
"""but no more of them than this."""


class RangesAhead:
    """Has the samples that come next asked for, by a thread that follows an iteration.

    Args:
        ask: Called with the shards of some samples and their places in them; asks for those whose
            shards are not here.
        samples: The iteration's samples as their shards and places, in blocks.
        look: How many samples ahead to ask.
        step: How many to ask for at once: what is asked for together comes in any order.
    """

    def __init__(
        self,
        ask: Callable[[Ints, Ints], None],
        samples: Iterator[tuple[Ints, Ints]],
        look: int,
        step: int,
    ) -> None:
        self._ask, self._samples = ask, samples
        self._look, self._step = max(1, look), max(1, step)
        self._changed = threading.Condition()
        self._position = self._asked = 0
        self._stopped = False
        self._left: tuple[Ints, Ints] = np.empty(0, np.int64), np.empty(0, np.int64)
        threading.Thread(target=self._run, name="streaming-ranges", daemon=True).start()

    def advance(self, position: int) -> None:
        """Tell how many samples the iteration has handed out."""
        with self._changed:
            self._position = position
            if self._is_due():
                self._changed.notify()

    def stop(self) -> None:
        """Let the thread end."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _is_due(self) -> bool:
        """Whether to ask for more: step by step at first, then not for too few at once."""
        look = self._how_far()
        enough = self._step if self._asked < self._look else max(1, look // 2)
        return self._stopped or self._position + look - self._asked >= enough

    def _how_far(self) -> int:
        """How many samples to look ahead: no further than two batches until the first is there."""
        return self._look if self._position else min(self._look, 2 * self._step)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._is_due)
                if self._stopped:
                    return
                skipped = max(0, self._position - self._asked)
                count = min(self._step, self._position + self._how_far() - self._asked)
                count = max(count, skipped)
            shards, places = self._take(count)
            self._asked += len(shards)
            if not len(shards):
                return
            try:
                self._ask(shards[skipped:], places[skipped:])
            except Exception as error:
                # Whoever needs the samples finds out itself.
                log.debug("Could not ask for samples ahead: %s", error)
                return

    def _take(self, count: int) -> tuple[Ints, Ints]:
        """The next samples; fewer only at the end."""
        shards, places = self._left
        while len(shards) < count:
            block = next(self._samples, None)
            if block is None:
                break
            shards, places = np.concatenate([shards, block[0]]), np.concatenate([places, block[1]])
        self._left = shards[count:], places[count:]
        return shards[:count], places[:count]
