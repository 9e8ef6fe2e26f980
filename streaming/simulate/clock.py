"""A simulated clock, and a network whose connections share a node's bandwidth."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable

__all__ = ["Clock", "Link", "Meter"]

Call = Callable[[], None]

_DUST = 1e-6
"""Bytes that rounding may leave of a transfer."""


class Clock:
    """Calls what is due, one after the other, and sets the time forward in between.

    Example:
        >>> clock, said = Clock(), []
        >>> clock.after(2.0, lambda: said.append(clock.now))
        >>> clock.after(1.0, lambda: clock.soon(lambda: said.append(clock.now)))
        >>> clock.run(lambda: False)
        >>> said
        [1.0, 2.0]
    """

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the beginning."""
        self.links: list[Link] = []
        self._due: list[tuple[float, int, Call]] = []
        self._soon: deque[Call] = deque()
        self._numbers = itertools.count()

    def after(self, seconds: float, call: Call) -> None:
        """Have something called after some time."""
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), call))

    def soon(self, call: Call) -> None:
        """Have something called at the present time, after what is being done now."""
        self._soon.append(call)

    def clear(self) -> None:
        """Forget all that is due, and all links."""
        self._due.clear()
        self._soon.clear()
        self.links.clear()

    def run(self, is_over: Callable[[], bool]) -> None:
        """Go on until something is over, or nothing is left to be done."""
        soon, due = self._soon, self._due
        while not is_over():
            if soon:
                soon.popleft()()
                continue
            link = min(self.links, key=_next_of, default=None)
            if link is not None and (not due or link.next_at <= due[0][0]):
                if link.next_at == float("inf"):
                    return
                self.now = max(self.now, link.next_at)
                link.finish()
            elif due:
                at, _, call = heapq.heappop(due)
                self.now = max(self.now, at)
                call()
            else:
                return


def _next_of(link: Link) -> float:
    return link.next_at


class Meter:
    """Counts the bytes that come over some of a link's connections, while they come.

    All connections of a link are equally fast, so that it is enough to know how many are busy.
    """

    __slots__ = ("_active", "_bytes", "_link", "_since")

    def __init__(self, link: Link) -> None:
        self._link, self._active = link, 0
        self._bytes = self._since = 0.0

    def read(self) -> float:
        """The bytes that came so far."""
        served = self._link.served()
        self._bytes += self._active * (served - self._since)
        self._since = served
        return self._bytes

    def change(self, by: int) -> None:
        """Note that so many more connections are busy now."""
        self.read()
        self._active += by


class Link:
    """A node's way to the store: all busy connections are equally fast, up to a limit for each.

    Args:
        clock: The time.
        rate: Bytes a second that all connections may give together.
        connection_rate: Bytes a second that one of them may give.

    Example:
        >>> clock, ended = Clock(), []
        >>> link = Link(clock, rate=100.0, connection_rate=60.0)
        >>> meter = Meter(link)
        >>> link.send(60, meter, lambda: ended.append(clock.now))  # 60 bytes a second at first
        >>> clock.after(0.5, lambda: link.send(75, meter, lambda: ended.append(clock.now)))
        >>> clock.run(lambda: False)
        >>> [round(at, 3) for at in ended], meter.read()
        ([1.1, 1.85], 135.0)
    """

    def __init__(self, clock: Clock, rate: float, connection_rate: float) -> None:
        self.next_at = float("inf")
        """When the next transfer ends, if none begins before."""
        self._clock, self._rate, self._connection_rate = clock, rate, connection_rate
        self._served = self._since = 0.0  # bytes of a connection that is busy all the time
        self._each = 0.0
        self._busy: list[tuple[float, int, Meter, Call]] = []
        self._numbers = itertools.count()
        clock.links.append(self)

    def served(self) -> float:
        """The bytes that one connection would have given, had it been busy all the time."""
        now = self._clock.now
        if now > self._since:
            self._served += self._each * (now - self._since)
            self._since = now
        return self._served

    def send(self, size: float, meter: Meter, then: Call) -> None:
        """Have bytes come over one more connection, and something called when they are here."""
        meter.change(1)
        heapq.heappush(self._busy, (self.served() + size, next(self._numbers), meter, then))
        self._share()

    def finish(self) -> None:
        """End the transfers whose time has come."""
        served = self.served()
        if self._busy:
            served = max(served, self._busy[0][0])  # rounding must not keep it from ending
            self._served = served
        ended = []
        while self._busy and self._busy[0][0] <= served + _DUST:
            ended.append(heapq.heappop(self._busy))
        for _, _, meter, _ in ended:
            meter.change(-1)
        self._share()
        for _, _, _, then in ended:
            then()

    def _share(self) -> None:
        served = self.served()
        if not self._busy:
            self._each, self.next_at = 0.0, float("inf")
            return
        self._each = min(self._connection_rate, self._rate / len(self._busy))
        left = max(0.0, self._busy[0][0] - served)
        self.next_at = self._clock.now + left / self._each
