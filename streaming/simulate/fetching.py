"""A simulated process of a node: what it fetches, when, over which connections."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from streaming.cache.ahead import LOOK, LOOK_BYTES
from streaming.cache.cache import BYTES_AHEAD
from streaming.cache.connections import Connections, Turn
from streaming.cache.landing import PART_BYTES
from streaming.cache.prefetch import SMALL_BYTES
from streaming.cache.ranges import REQUEST_BYTES, is_worth, joined
from streaming.cache.space import Victim
from streaming.cache.window import DUE, Window
from streaming.format.ranges import TABLE_BYTES
from streaming.simulate.clock import Clock, Link, Meter
from streaming.simulate.data import Data, Needs, Work
from streaming.simulate.shelf import ABSENT, PRESENT, Shelf

__all__ = ["Node", "Process"]

Ints = NDArray[np.int64]


class Node:
    """A simulated node in one epoch: its cache, its network, and the processes that share them.

    Args:
        clock: The time.
        data: The shards.
        work: What its workers read.
        shelf: What is here from earlier epochs.
    """

    def __init__(self, clock: Clock, data: Data, work: Work, shelf: Shelf) -> None:
        setup = data.setup
        self.clock, self.data, self.shelf, self.work = clock, data, shelf, work
        each = setup.connection_bandwidth
        rate = float(setup.bandwidth)
        self.link = Link(clock, rate, rate if each is None else min(rate, float(each)))
        self.latency_s = setup.latency_s
        self.needs: Needs = work.needs
        order = np.argsort(self.needs.first, kind="stable")
        self.order: list[tuple[int, int]] = list(
            zip(self.needs.first[order].tolist(), self.needs.shards[order].tolist(), strict=True)
        )
        """Where each shard is needed first, and which it is."""
        self.is_limited = setup.cache_limit is not None
        self.travels, self.reserves = data.travels.tolist(), data.reserves.tolist()
        self.is_sparse = np.isin(data.streams, data.sparse).tolist()
        # A sample that stands for many is not read by itself.
        by_itself = data.weight == work.merged == 1
        self.is_ranged = data.ranged & by_itself
        self.waiting: dict[int, list[Callable[[], None]]] = {}
        """Who waits for which shard."""
        self.without_room: list[Callable[[], None]] = []
        self.in_flight = 0
        self.fetched = np.zeros(len(data.raw), np.int64)
        """How often each shard came."""
        self.arrivals: list[tuple[float, int]] = []
        """When each whole shard came, and which."""
        self.range_bytes = 0
        """Bytes of samples that were read by ranges."""
        workers = len(work.shards)
        most = max(1, setup.max_connections // (workers * work.merged)) * work.merged
        self.processes = [Process(self, number, workers, most) for number in range(workers)]
        shelf.on_evict = self._evicted

    def _evicted(self, shard: int) -> None:
        for process in self.processes:
            process.evicted(shard)

    def arrive(self, shard: int) -> None:
        """Note that a shard is here, and let those go on who wait for it."""
        self.shelf.land(shard)
        self.in_flight -= 1
        self.fetched[shard] += 1
        self.arrivals.append((self.clock.now, shard))
        for call in self.waiting.pop(shard, ()):
            call()
        again, self.without_room = self.without_room, []
        for call in again:
            call()

    @property
    def bytes(self) -> int:
        """Bytes that came over the network, those of transfers that were cut off included."""
        return round(sum(process.meter.read() for process in self.processes))


@dataclass
class _Span:
    """Samples that one request asks for."""

    is_here: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)


@dataclass
class _Ranged:
    """A shard that a process reads by ranges."""

    spent: int = 0
    cost: int = 0
    table: _Span | None = None
    """The shard's table of offsets, which has to be here before samples can be asked for."""
    spans: dict[int, _Span] = field(default_factory=dict)
    """Which request brings which sample."""


class Process:
    """A process that reads a node's data: a loader worker, or a rank without workers."""

    def __init__(self, node: Node, number: int, workers: int, most: int) -> None:
        data = node.data
        setup, weight = data.setup, data.weight
        self.node, self.number, self._workers = node, number, workers
        self.meter = Meter(node.link)
        self._counted = 0
        self.connections = Connections(most, clock=lambda: node.clock.now)
        ahead = (
            None
            if setup.predownload is None
            else -(-int(setup.predownload) * node.work.merged // weight)
        )
        limit = None if setup.cache_limit is None else int(setup.cache_limit)
        size = data.sample_bytes * weight
        self.window = Window(
            workers,
            ahead,
            size,
            BYTES_AHEAD if limit is None else min(BYTES_AHEAD, limit // 2),
            due=max(1, DUE // weight),
        )
        self._batch = node.work.batch
        self._ids, self._shards = node.work.ids[number], node.work.shards[number]
        # The walk through the order of need: its next entry, what was evicted since and is needed
        # again, and from which position on nothing was looked at yet.
        self._next = self._scan = 0
        self._again: list[tuple[int, int]] = []
        self._most, self._threads = most, 0
        self._blocked: list[tuple[int, int]] = []
        self._knows_parts = False
        self._opened: set[int] = set()
        # Samples that are asked for by ranges.
        self._look = max(1, min(LOOK, int(LOOK_BYTES / max(1.0, size))))
        self._position = self._asked = 0
        self._ranged: dict[int, _Ranged] = {}

    # What happens to it.

    def begin(self) -> None:
        """Begin an iteration."""
        self.connections.urgent_most = self.connections.most
        self._ask_ahead()
        self._look_for_work()

    def advance(self, done: int) -> None:
        """Hear how many of its samples are used."""
        if not self.node.data.sparse:
            self.connections.urgent_most = max(1, self.connections.most // 4)
        self._position = done
        self._ask_ahead()
        self.window.move(done * self._workers)
        blocked, self._blocked = self._blocked, []
        for need, shard in blocked:
            if self._is_ahead(shard):
                self._request(need, shard)
            else:
                self._threads -= 1
                self._take_again(shard, self._scan)
        self._look_for_work()

    def evicted(self, shard: int) -> None:
        """Hear that a shard is not here any more."""
        self._opened.discard(shard)
        self._take_again(shard, self._scan)

    def _take_again(self, shard: int, position: int) -> None:
        found = self.node.needs.next(shard, position)
        if found is not None:
            heapq.heappush(self._again, (found, shard))

    def open(self, shards: Ints) -> None:
        """Open shards that are here, those that are not open yet."""
        new = [shard for shard in shards.tolist() if shard not in self._opened]
        if new:
            self._opened.update(new)
            self.node.shelf.open(new)

    # Whole shards, ahead of the iteration.

    def _look_for_work(self) -> None:
        while self._threads < self._most:
            found = self._take()
            if found is None:
                return
            self._threads += 1
            self._request(*found)

    def _take(self) -> tuple[int, int] | None:
        """The next shard to fetch, and where it is needed; None if there is enough ahead."""
        node, window, state = self.node, self.window, self.node.shelf.state
        order, again = node.order, self._again
        while True:
            is_first = self._next < len(order) and (not again or order[self._next] <= again[0])
            if not is_first and not again:
                self._scan = max(self._scan, len(node.work.node))
                return None
            position, shard = order[self._next] if is_first else again[0]
            is_passed = position < window.position
            if not is_passed and window.is_enough(position):
                # So far, every entry of the order was looked at.
                far = window.ahead if window.wake_at else window.due
                self._scan = max(self._scan, min(position, window.position + far))
                return None
            if is_first:
                self._next += 1
            else:
                heapq.heappop(again)
            if is_passed:
                if state[shard] == ABSENT:
                    self._take_again(shard, window.position)
                continue
            self._scan = max(self._scan, position + 1)
            is_missing = shard not in window and state[shard] != PRESENT
            if not is_missing or node.is_sparse[shard]:
                continue
            window.take(position, shard, node.reserves[shard])
            return position, shard

    def _request(self, need: int, shard: int) -> None:
        small = self.node.reserves[shard] <= SMALL_BYTES
        urgent = small and need < self.window.position + 2 * self._batch * self._workers
        go = partial(self._fetch_ahead, need, shard, urgent)
        self.connections.ask(need, urgent, partial(self.node.clock.soon, go))

    def _fetch_ahead(self, need: int, shard: int, urgent: bool) -> None:
        turn = Turn(self.connections, urgent)
        if self.node.shelf.state[shard] != ABSENT:
            turn.end()
            self._end_thread()
        elif self.node.shelf.reserve(shard, self._may_evict):
            self._land(shard, need, urgent, turn, self._end_thread)
        else:
            turn.end()
            self._blocked.append((need, shard))

    def _end_thread(self) -> None:
        self._threads -= 1
        self._look_for_work()

    def _may_evict(self, victim: Victim) -> bool:
        if not self.window.may_evict(victim.shard, victim.was_opened):
            return False
        return not self._is_ahead(victim.shard)

    def _is_ahead(self, shard: int) -> bool:
        """Whether a shard is needed between what was used and what was looked at."""
        needed = self.node.needs.next(shard, self.window.position)
        return needed is not None and needed < self._scan

    # Shards that somebody waits for.

    def demand(self, shard: int, then: Callable[[], None]) -> None:
        """Have a shard that is not here, fetched now if nobody fetches it.

        Raises:
            ValueError: If there can't be room for it.
        """
        node = self.node
        node.waiting.setdefault(shard, []).append(then)
        if node.shelf.state[shard] == ABSENT:
            node.clock.soon(partial(self._fetch, shard))  # those who fetch ahead are quicker

    def _fetch(self, shard: int) -> None:
        node = self.node
        if node.shelf.state[shard] != ABSENT:
            return
        if not node.shelf.reserve(shard, lambda victim: True):
            if not node.in_flight:
                raise ValueError(
                    f"`cache_limit` is {node.data.setup.cache_limit:,} bytes, too little for a "
                    f"shard of {node.reserves[shard]:,} bytes."
                )
            node.without_room.append(partial(self._fetch, shard))
            return
        self._land(shard, -1.0, node.reserves[shard] <= SMALL_BYTES, None, lambda: None)

    # On their way.

    def _land(
        self, shard: int, need: float, urgent: bool, turn: Turn | None, then: Callable[[], None]
    ) -> None:
        """Bring a shard that is claimed, in parts side by side."""
        self.node.in_flight += 1
        size = self.node.travels[shard]
        part = self._part_bytes(size)
        if size <= part * 3 // 2:
            parts = [size]
        else:
            parts = [min(part, size - start) for start in range(0, size, part)]
        left = len(parts)

        def ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                # Whether the remote was rewritten is asked once a shard is complete.
                self.node.clock.after(self.node.latency_s, arrived)

        def arrived() -> None:
            self.node.arrive(shard)
            then()

        def bring_others() -> None:
            self._knows_parts = True
            for part in parts[1:]:
                self._bring(part, need, urgent, ended)

        if self._knows_parts or left == 1:
            self._bring(parts[0], need, urgent, ended, turn)
            bring_others()
        else:
            self._bring(parts[0], need, urgent, ended, turn, bring_others)

    def _part_bytes(self, size: int) -> int:
        """How large the parts are that a shard comes in.

        Where samples stand for many, no more parts are followed than there are connections.
        """
        if self.node.data.weight == 1:
            return PART_BYTES
        return max(PART_BYTES, -(-size // self.node.data.setup.max_connections))

    def _bring(
        self,
        size: int,
        need: float,
        urgent: bool,
        then: Callable[[], None],
        turn: Turn | None = None,
        on_answer: Callable[[], None] | None = None,
    ) -> None:
        """Ask for some bytes over a connection, once it is its turn."""
        clock = self.node.clock

        def start() -> None:
            clock.after(self.node.latency_s, flow)

        def flow() -> None:
            if on_answer is not None:
                on_answer()
            self.node.link.send(size, self.meter, ended)

        def ended() -> None:
            came = int(self.meter.read())
            self.connections.moved(came - self._counted)
            self._counted = came
            Turn(self.connections, urgent).end()
            then()

        if turn is not None:
            start()
        else:
            self.connections.ask(need, urgent, partial(clock.soon, start))

    # Samples by ranges.

    def _ask_ahead(self) -> None:
        """Ask for the samples that come next, as :class:`~streaming.cache.ahead.RangesAhead`."""
        if not self.node.is_ranged.any():
            return
        look, step = self._look, self._batch
        while self._asked < len(self._ids):
            far = look if self._position else min(look, 2 * step)
            enough = step if self._asked < look else max(1, look // 2)
            if self._position + far - self._asked < enough:
                return
            skipped = max(0, self._position - self._asked)
            count = max(min(step, self._position + far - self._asked), skipped)
            start, self._asked = self._asked + skipped, self._asked + count
            if start < self._asked:
                self.ask(start, self._asked)

    def ask(self, start: int, stop: int) -> None:
        """Ask for some of its samples, those whose shards are not here, where it is worth it."""
        node = self.node
        shards = self._shards[start:stop]
        for shard in node.shelf.absent(np.unique(shards)):
            if node.is_ranged[shard] and self._is_worth(shard):
                self._ask(shard, self._ids[start:stop][shards == shard].tolist())

    def _is_worth(self, shard: int) -> bool:
        ranged = self._ranged.setdefault(shard, _Ranged())
        if self.node.is_sparse[shard]:
            return True
        return is_worth(ranged.spent, ranged.cost, int(self.node.data.raw[shard]))

    def _ask(self, shard: int, ids: list[int]) -> None:
        ranged = self._ranged[shard]
        ids = [each for each in ids if each not in ranged.spans]
        if not ids:
            return
        data = self.node.data
        if not data.fixed_size[shard] and ranged.table is None:
            size = min(TABLE_BYTES, 4 * (int(data.samples[shard]) + 2))
            ranged.table = self._bring_span(ranged, size)
        bring = []
        size = int(data.raw[shard]) // max(1, int(data.samples[shard]))
        begins = {
            int(place) * size: each
            for place, each in zip(data.place(np.array(ids), shard), ids, strict=True)
        }
        for start, stop in joined([(begin, begin + size) for begin in sorted(begins)]):
            span = _Span()
            for begin, each in begins.items():
                if start <= begin < stop:
                    ranged.spans[each] = span
            ranged.spent += stop - start
            ranged.cost += stop - start + REQUEST_BYTES
            bring.append(partial(self._bring_bytes, stop - start, span))
        for call in bring:
            if ranged.table is None or ranged.table.is_here:
                call()
            else:
                ranged.table.waiting.append(call)

    def _bring_span(self, ranged: _Ranged, size: int) -> _Span:
        span = _Span()
        ranged.spent += size
        ranged.cost += size + REQUEST_BYTES
        self._bring_bytes(size, span)
        return span

    def _bring_bytes(self, size: int, span: _Span) -> None:
        def ended() -> None:
            self.node.range_bytes += size
            self._knows_parts = True
            span.is_here = True
            for call in span.waiting:
                call()

        self._bring(size, 0, True, ended)

    def ranges_of(self, shard: int, ids: Ints) -> list[_Span] | None:
        """The requests for samples of a shard that is not here; None if the whole has to come."""
        if not self.node.is_ranged[shard]:
            return None
        ranged = self._ranged.setdefault(shard, _Ranged())
        wanted = ids.tolist()
        missing = [each for each in wanted if each not in ranged.spans]
        if missing and self._is_worth(shard):
            self._ask(shard, missing)
        elif missing:
            return None
        return [ranged.spans[each] for each in wanted]
