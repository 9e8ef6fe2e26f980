"""A simulated training loop: workers that make batches, ranks that take them, step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from streaming.simulate.clock import Clock
from streaming.simulate.fetching import Node, Process
from streaming.simulate.shelf import PRESENT
from streaming.turns import sizes

__all__ = ["Trainer", "Worker"]

Ints = NDArray[np.int64]


class Worker:
    """Makes the batches of one process, as many ahead as the loader lets it.

    Args:
        node: The node that it is on.
        process: The process.
    """

    def __init__(self, node: Node, process: Process) -> None:
        setup, merged = node.data.setup, node.work.merged
        is_one = node.data.weight == merged == 1
        self._node, self._process = node, process
        number, self._size = process.number, node.work.batch
        self._ids, self._shards = node.work.ids[number], node.work.shards[number]
        self.batches = -(-len(self._ids) // self._size)
        """How many batches it makes."""
        self.ready = 0
        """How many are ready."""
        self.on_ready: Callable[[], None] | None = None
        """Called when more are ready; once."""
        self._is_asked = setup.workers == 0
        # A simulated batch that stands for many is more than workers make ahead.
        self._ahead = setup.prefetch_factor if is_one else 1
        self._parcels: Iterator[int] = repeat(1)
        if setup.by_column and setup.workers and is_one:
            self._parcels = sizes(setup.batch_size * node.data.sample_bytes)
        busy = setup.workers_of_node
        slower = max(1.0, busy / setup.cpus) if setup.cpus else 1.0
        self._sample_s = setup.decode_s * slower * node.data.weight / merged
        self._begun = 0
        self._is_busy = True  # until it has started
        self._not_taken: deque[int] = deque()
        self._start = self._stop = 0
        self._left: list[int] = []
        self.waited_s = 0.0
        """How long it waited for shards."""
        self.decoded_s = 0.0
        """How long it read and decoded."""

    def begin(self) -> None:
        """Begin an iteration."""
        self._process.begin()
        self._is_busy = False
        if not self._is_asked or self.on_ready is not None:
            self._go_on()

    def wants(self, batch: int) -> bool:
        """Hear that a batch is wanted next; whether it is ready.

        With that, what it was sent in has been taken, so that another may be made.
        """
        if self._is_asked and batch == self._begun and not self._is_busy:
            self._make()
        if batch >= self.ready:
            return False
        if self._not_taken and self._not_taken[0] == batch:
            self._not_taken.popleft()
            if not self._is_asked:
                self._go_on()
        return True

    def _go_on(self) -> None:
        if not self._is_busy and len(self._not_taken) < self._ahead and self._begun < self.batches:
            self._make()

    def _make(self) -> None:
        """Make as many batches as are sent together."""
        self._is_busy = True
        if self._begun:
            self._process.advance(self._begun * self._size)
        count = min(next(self._parcels), self.batches - self._begun)
        self._start = self._begun * self._size
        self._stop = min(len(self._ids), self._start + count * self._size)
        self._not_taken.append(self._begun)
        self._begun += count
        shards = np.unique(self._shards[self._start : self._stop])
        absent = self._node.shelf.absent(shards)
        self._began_s = self._node.clock.now
        if absent:
            self._process.ask(self._start, self._stop)
            self._left = absent
            self._gather()
        else:
            self._decode(shards)

    def _gather(self) -> None:
        """Wait for what is not here, one shard after the other."""
        while self._left:
            shard = self._left[0]
            if self._node.shelf.state[shard] != PRESENT:
                own = self._shards[self._start : self._stop] == shard
                spans = self._process.ranges_of(shard, self._ids[self._start : self._stop][own])
                if spans is None:
                    self._process.demand(shard, self._gather)
                    return
                for span in spans:
                    if not span.is_here:
                        span.waiting.append(self._gather)
                        return
            del self._left[0]
        self._decode(np.unique(self._shards[self._start : self._stop]))

    def _decode(self, shards: Ints) -> None:
        clock = self._node.clock
        self.waited_s += clock.now - self._began_s
        here = shards[self._node.shelf.here(shards)]
        self._process.open(here)
        self._node.shelf.use(here)
        seconds = self._sample_s * (self._stop - self._start)
        self.decoded_s += seconds
        clock.after(seconds, self._end)

    def _end(self) -> None:
        self.ready = self._begun
        self._is_busy = False
        call, self.on_ready = self.on_ready, None
        if call is not None:
            call()
        if not self._is_asked:
            self._go_on()


class Trainer:
    """Ranks that train in step: a step begins when every rank has its batch.

    Args:
        clock: The time.
        ranks: The workers of each rank.
        step_s: Seconds of a step.
    """

    def __init__(self, clock: Clock, ranks: list[list[Worker]], step_s: float) -> None:
        self._clock, self._step_s = clock, step_s
        self._lanes = [_turns(workers) for workers in ranks]
        self.steps = max(map(len, self._lanes), default=0)
        self.began_s: list[float] = []
        """When each step began."""
        self.waited_s: list[float] = []
        """How long it waited for its batches."""
        self.is_over = False
        self._missing = 0
        self._asked_s = 0.0

    def begin(self) -> None:
        """Ask for the first batches."""
        self._ask()

    def end_s(self) -> float:
        """When the last step that has begun ends."""
        return self.began_s[-1] + self._step_s if self.began_s else self._clock.now

    def _ask(self) -> None:
        step = len(self.began_s)
        if step == self.steps:
            self.is_over = True
            return
        self._asked_s = self._clock.now
        wanted = [lane[step] for lane in self._lanes if step < len(lane)]
        self._missing = len(wanted)
        for worker, batch in wanted:
            self._want(worker, batch)

    def _want(self, worker: Worker, batch: int) -> None:
        if worker.wants(batch):
            self._missing -= 1
            if not self._missing:
                self._step()
        else:
            worker.on_ready = lambda: self._want(worker, batch)

    def _step(self) -> None:
        self.began_s.append(self._clock.now)
        self.waited_s.append(self._clock.now - self._asked_s)
        self._clock.after(self._step_s, self._ask)


def _turns(workers: list[Worker]) -> list[tuple[Worker, int]]:
    """A rank's batches in the order of use: workers take turns; who has ended is left out."""
    numbered = [
        (batch, number) for number, worker in enumerate(workers) for batch in range(worker.batches)
    ]
    return [(workers[number], batch) for batch, number in sorted(numbered)]
