"""The connections that a process has to stores: how many at once, and whose turn it is.

"How many connections pay?" is answered by :meth:`Connections._adapt`: their number is raised for as
long as more bytes come for it. "Who is next?" is answered by :meth:`Connections.turn`: samples that
somebody waits for, then what is needed first.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from types import TracebackType

MAX_CONNECTIONS = 32
"""Most connections that the processes of a node have to a store together, unless told otherwise."""
INTERVAL_S = 0.25
"""How long the bytes that come are counted before the number of connections is judged."""
GAIN = 1.08
"""By which factor more has to come for a raised number to be kept."""
MAX_REST = 64
"""Intervals until a number that did not pay is tried again: doubled each time up to this."""
FIRST = 8
"""Connections to begin with, if so many are allowed."""


class Turn:
    """The right to use one connection; a context manager. Giving it back again is harmless."""

    __slots__ = ("_connections", "_urgent")

    def __init__(self, connections: "Connections", urgent: bool) -> None:
        self._connections: Connections | None = connections
        self._urgent = urgent

    def end(self) -> None:
        """Give the connection back."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections._end(self._urgent)

    def __enter__(self) -> "Turn":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


class Connections:
    """Deals out a number of connections that adapts itself.

    It begins with a few, and raises their number while the bytes that come in a second grow by it;
    what did not pay is tried again later, and ever more rarely. An answer that asks for fewer
    requests takes one connection away, and four good ones give it back, so that a store that
    refuses a fifth of the requests or less is used in full.

    Args:
        most: Most connections at once.
        clock: Gives the time in seconds.

    Example:
        >>> connections = Connections(4)
        >>> with connections.turn(need=0), connections.turn(need=1):
        ...     connections.busy
        2
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = max(1, most)
        self._highest = self.most - self.most // 8  # some are left for what is urgent
        self.limit = max(1, min(FIRST, self.most // 2))
        """How many may be busy now with what nobody waits for yet."""
        self.urgent_most = self.most
        """How many may be busy with what somebody waits for."""
        self.busy = 0
        self._clock = clock
        self._urgent = 0
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._urgently_waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._bytes = 0
        self._begin_interval()
        self._baseline: float | None = None
        self._before: int | None = None  # the number from which a higher one is being tried
        self._rest = 1
        self._resting = 0
        self._lost = 0
        self._good = 0

    def turn(self, need: float, urgent: bool = False) -> Turn:
        """Wait for a connection.

        Args:
            need: Whoever needs it first, by the lowest number, is next.
            urgent: Whether somebody waits already, for little: such are before all others, and keep
                to :attr:`urgent_most` instead of :attr:`limit`, which is about bytes in a second.
        """
        gate = threading.Lock()
        gate.acquire()
        self.ask(need, urgent, gate.release)
        gate.acquire()  # whoever ends a turn hands it on
        return Turn(self, urgent)

    def ask(self, need: float, urgent: bool, go: Callable[[], None]) -> None:
        """Ask for a connection without waiting for it.

        Args:
            need: As for :meth:`turn`.
            urgent: As for :meth:`turn`.
            go: Called once there is one, perhaps at once, and perhaps by another thread, which
                holds a lock meanwhile: it may do no more than note it. The connection is given back
                by ending a :class:`Turn`.
        """
        with self._lock:
            if not self._is_free(urgent):
                waiting = self._urgently_waiting if urgent else self._waiting
                heapq.heappush(waiting, (need, next(self._order), go))
                return
            self._take(urgent)
        go()

    def moved(self, count: int) -> None:
        """Note that bytes came."""
        self._bytes += count

    def answered(self, throttled: bool) -> None:
        """Note that a store has answered, and whether it asked for fewer requests."""
        with self._lock:
            if throttled:
                self._settle()
                self._good = 0
                if self.limit > 1:
                    self.limit -= 1
                    self._lost += 1
            elif self._lost:
                self._good += 1
                if self._good == 4:
                    self._good = 0
                    self._lost -= 1
                    self.limit = min(self._highest, self.limit + 1)
                    self._hand_on()

    def _is_free(self, urgent: bool) -> bool:
        if self.busy >= self.most:
            return False
        if urgent:
            return self._urgent < self.urgent_most
        return self.busy - self._urgent < self.limit

    def _take(self, urgent: bool) -> None:
        self.busy += 1
        self._urgent += urgent

    def _end(self, urgent: bool) -> None:
        with self._lock:
            self.busy -= 1
            self._urgent -= urgent
            self._hand_on()
            if self.busy - self._urgent < self.limit:
                self._was_idle = True
            self._adapt()

    def _hand_on(self) -> None:
        for waiting in self._urgently_waiting, self._waiting:
            urgent = waiting is self._urgently_waiting
            while waiting and self._is_free(urgent):
                self._take(urgent)
                heapq.heappop(waiting)[2]()

    # How many.

    def _begin_interval(self) -> None:
        self._since = self._clock()
        self._at = self._bytes
        self._was_idle = False

    def _adapt(self) -> None:
        """Judge the number of connections by the bytes that came since it was last judged."""
        elapsed = self._clock() - self._since
        if elapsed < INTERVAL_S:
            return
        rate, idle = (self._bytes - self._at) / elapsed, self._was_idle
        self._begin_interval()
        if idle:  # There was not enough to do to tell.
            self._settle()
        elif self._resting:
            self._resting -= 1
        elif self._baseline is None:
            self._baseline = rate
            self._raise()
        elif rate > self._baseline * GAIN:
            self._baseline, self._rest = rate, 1
            self._raise()
        elif self._before is not None:
            self.limit, self._before, self._baseline = self._before, None, None
            self._resting = self._rest
            self._rest = min(MAX_REST, 2 * self._rest)

    def _raise(self) -> None:
        if self.limit < self._highest:
            self._before = self.limit
            self.limit = min(self._highest, self.limit + max(1, self.limit // 2))
            self._hand_on()
        else:
            self._baseline, self._before, self._resting = None, None, self._rest

    def _settle(self) -> None:
        """Keep the present number, and measure anew."""
        self._baseline = self._before = None
