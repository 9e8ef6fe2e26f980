"""Bytes of an object on their way here: resumed where they were cut off, moved on when they stall.

A transfer is one range of one object. It is asked for once, and again from where it stopped for as
long as its retries last. A connection on which nothing comes for longer than is usual now is given
up for a second one, before the store's own time-out ends it.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from streaming.cache.connections import MAX_CONNECTIONS, Connections, Turn
from streaming.storage import Body, ObjectChanged, RetryPolicy, Store, StoreError, Throttled
from streaming.watch.spans import span
from streaming.watch.trace_file import CONNECTIONS

log = logging.getLogger("streaming")

Sink = Callable[[int, bytes | memoryview], None]
"""Takes bytes, and where in the object they begin."""


class Version:
    """The version of an object that all its parts have to be of: the first one's that comes."""

    def __init__(self) -> None:
        self.etag: str | None = None
        self._lock = threading.Lock()

    def check(self, body: Body) -> None:
        """Note the first version, and refuse any other.

        Raises:
            ObjectChanged: If it is another.
        """
        with self._lock:
            if self.etag is None:
                self.etag = body.etag
            if body.etag is not None and body.etag != self.etag:
                raise ObjectChanged(
                    f"{body.url}: the object has changed since it was first read", url=body.url
                )


@dataclass
class Source:
    """An object to be read."""

    store: Store
    key: str
    size: int
    """The bytes that it has to have."""
    retry: RetryPolicy
    version: Version = field(default_factory=Version)
    on_retry: Callable[[StoreError], None] = lambda error: None
    ranged: bool = True
    """False once the store was found to send all of an object when asked for a part."""
    confirmed: bool = False
    """True once the store has said that the object has the bytes it has to have."""

    def open(self, start: int, stop: int) -> Body:
        """Ask for [start, stop) of it.

        Up to the end it is asked for without saying where that is, which shows whether there is
        more than there should be.

        Raises:
            StoreError: If it can't be had, or has another size.
        """
        to_end = stop == self.size
        body = self.store.open(self.key, start, None if to_end else stop, etag=self.version.etag)
        try:
            self.version.check(body)
            if body.from_whole:
                self.ranged = False
            if body.total is not None:
                if body.total != self.size:
                    raise self.wrong_size(body.total)
                self.confirmed = True
            if to_end and body.length is not None and body.length != stop - start:
                raise self.wrong_size(start + body.length)
        except BaseException:
            body.close()
            raise
        return body

    def wrong_size(self, size: int) -> StoreError:
        """The error of an object of another size.

        It is worth another try: a proxy's error page and a half-written object look like this.
        """
        url = self.store.url_of(self.key)
        return StoreError(
            f"{url} is {size:,} bytes, the index says {self.size:,}", url=url, retryable=True
        )


class _ReplacedError(Exception):
    """Another connection has taken over."""


class Transfer:
    """One range of an object, brought by a thread of its own.

    Args:
        connections: Whose turns it waits for.
        watch: Looks after it while it waits for bytes.
        source: The object.
        start: First byte.
        stop: Byte to stop before.
        sink: Where the bytes go. It is called by one thread at a time, and not after :meth:`cancel`
            has returned.
        need: How soon it is needed, as for :meth:`Connections.turn`.
        urgent: Whether somebody waits for it.
    """

    def __init__(
        self,
        connections: Connections,
        watch: "Watch",
        source: Source,
        start: int,
        stop: int,
        sink: Sink,
        need: float = 0,
        urgent: bool = False,
    ) -> None:
        self.start, self.size = start, stop - start
        self.source = source
        self.got = 0
        """How many bytes are here, from the beginning."""
        self.bytes = 0
        """How many have travelled for that."""
        self.error: BaseException | None = None
        self.moved_s = 0.0
        """When something last came."""
        self.patience_s = 0.0
        """How long to wait for the next bytes before another connection is tried."""
        self.on_end: Callable[[Transfer], None] | None = None
        """Called once when it ends, before whoever waits for that goes on."""
        self._connections, self._watch = connections, watch
        self._sink, self._need, self._urgent = sink, need, urgent
        self._changed = threading.Condition()
        self._generation = 0
        self._ended = False
        self._wanted: int | None = None
        self._body: Body | None = None
        self._turn: Turn | None = None

    def begin(self, turn: Turn | None = None) -> "Transfer":
        """Begin.

        Args:
            turn: A connection that the caller has waited for already.
        """
        self._turn = turn
        self._spawn()
        return self

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be waited for."""
        return self._ended

    def wait(self) -> None:
        """Wait until all is here.

        Raises:
            StoreError: If it can't be had; with the reason of each attempt.
        """
        # Not only until the last byte is here: that nothing follows it, and what it all came to, is
        # known at the end.
        with self._changed:
            while not self._ended:
                self._changed.wait()
            if self.error is not None:
                raise self.error

    def wait_for(self, count: int) -> int:
        """Wait until so many bytes are here, and return how many are.

        Raises:
            StoreError: If they can't be had.
        """
        with self._changed:
            while self.got < count and not self._ended:
                self._wanted = count
                self._changed.wait()
            if self.error is not None:
                raise self.error
            return self.got

    def cancel(self) -> None:
        """Give up, and let the sink alone from now on."""
        with self._changed:
            self._generation += 1
            self._ended = True
            body, turn = self._body, self._turn
            self._watch.remove(self)
            self._changed.notify_all()
        self._drop(body, turn)

    def replace(self, now: float) -> None:
        """Go on over another connection; called when this one has stalled."""
        with self._changed:
            if self._ended or now - self.moved_s < self.patience_s:
                return
            self._generation += 1
            self.patience_s *= 2
            body, turn = self._body, self._turn
            self._body = self._turn = None
            self._watch.remove(self)
            self._spawn()
        log.debug("%s stood still: asked again", self.source.key)
        self._drop(body, turn)

    def _drop(self, body: Body | None, turn: Turn | None) -> None:
        if body is not None:
            body.close()
        if turn is not None:
            turn.end()

    def _spawn(self) -> None:
        threading.Thread(
            target=self._run, args=(self._generation,), name="streaming-transfer", daemon=True
        ).start()

    def _run(self, generation: int) -> None:
        source = self.source
        url = source.store.url_of(source.key)
        error: BaseException | None = None
        try:
            source.retry.call(
                partial(self._attempt, generation), f"fetching {url}", source.on_retry
            )
        except _ReplacedError:
            return
        except BaseException as failure:
            error = failure
            if isinstance(error, StoreError):
                error.retryable = False  # that has been done
        with self._changed:
            if generation != self._generation:
                return
            self.error = error
            if self.on_end is not None:
                self.on_end(self)
            self._ended = True
            self._changed.notify_all()

    def _attempt(self, generation: int) -> None:
        turn = self._take_turn(generation)
        try:
            self._ask(generation)
        except Throttled:
            self._connections.answered(throttled=True)
            raise
        finally:
            with self._changed:
                current = generation == self._generation
                if current:
                    self._body = self._turn = None
            if current:
                self._watch.remove(self)
            turn.end()

    def _take_turn(self, generation: int) -> Turn:
        turn, self._turn = self._turn, None
        if turn is None:
            turn = self._connections.turn(self._need, self._urgent)
        with self._changed:
            if generation == self._generation:
                self._turn = turn
                self.moved_s = time.monotonic()
                self.patience_s = max(self.patience_s, self._usual_patience_s())
                if not self.source.store.can_range:
                    self.got = 0
                return turn
        turn.end()
        raise _ReplacedError

    def _usual_patience_s(self) -> float:
        return self._watch.patience_s(self.source.store.timeout_s)

    def _ask(self, generation: int) -> None:
        self._watch.add(self)
        begin = self.start + self.got
        if self.got == self.size and self.size:
            return
        url = self.source.store.url_of(self.source.key)
        about = {"url": url, "from_byte": begin, "to_byte": self.start + self.size}
        with (
            span("transfer", CONNECTIONS, **about),
            self.source.open(begin, self.start + self.size) as body,
        ):
            self._connections.answered(throttled=False)
            with self._changed:
                if generation != self._generation:
                    raise _ReplacedError
                self._body = body
            for chunk in body:
                self._keep(generation, chunk)
        if self.got != self.size:
            raise self.source.wrong_size(self.start + self.got)

    def _keep(self, generation: int, chunk: bytes | memoryview) -> None:
        count = len(chunk)
        with self._changed:
            if generation != self._generation:
                raise _ReplacedError
            if self.got + count > self.size:
                raise self.source.wrong_size(self.start + self.got + count)
            self._sink(self.start + self.got, chunk)
            self.got += count
            self.bytes += count
            now = time.monotonic()
            self._watch.note(now - self.moved_s)
            self.moved_s = now
            self.patience_s = self._usual_patience_s()
            if self._wanted is not None and self.got >= self._wanted:
                self._wanted = None
                self._changed.notify_all()
        self._connections.moved(count)


FLOOR_S = 1.0
"""Nobody is called stalled sooner: a busy machine makes everybody wait so long now and then."""


class Watch:
    """Finds transfers on which nothing comes any more, and has them go on by other connections.

    One thread looks, and only while there are transfers. It wakes when the first of them would have
    been silent for too long.
    """

    LINGER_S = 5.0

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: set[Transfer] = set()
        self._new: set[Transfer] = set()
        self._thread: threading.Thread | None = None
        self._mean = self._spread = 0.0
        self._looked_s = 0.0

    def patience_s(self, longest: float) -> float:
        """How long to wait for the next bytes now: far longer than one had to lately."""
        return min(longest, FLOOR_S + 4 * self._mean + 8 * self._spread)

    def note(self, gap_s: float) -> None:
        """Note how long the bytes that have just come took."""
        off = gap_s - self._mean
        self._mean += off / 16
        self._spread += (abs(off) - self._spread) / 16

    def add(self, transfer: Transfer) -> None:
        """Look after a transfer from now on."""
        with self._changed:
            self._watched.add(transfer)
            self._new.add(transfer)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="streaming-stalls", daemon=True
                )
                self._thread.start()
            elif len(self._watched) == 1:
                self._changed.notify()

    def remove(self, transfer: Transfer) -> None:
        """Leave a transfer alone."""
        with self._changed:
            self._watched.discard(transfer)
            self._new.discard(transfer)

    def _run(self) -> None:
        # A frame for each look: one that lingers must not keep the last transfers, and through them
        # a dataset that nobody uses any more.
        self._looked_s = time.monotonic()
        while self._look():
            pass

    def _look(self) -> bool:
        """Wait until a transfer may be late, and replace those that are; False if there is none."""
        with self._changed:
            if not self._watched:
                self._changed.wait(self.LINGER_S)
                self._looked_s = time.monotonic()
            if not self._watched:
                self._thread = None
                return False
            now = time.monotonic()
            # Unless this process itself stood still, and has not looked at what came meanwhile.
            stood_still = now - self._looked_s > FLOOR_S * 5 / 4
            for transfer in self._watched if stood_still else self._new:
                transfer.moved_s = now
            self._new.clear()
            self._looked_s = now
            late = [t for t in self._watched if t.moved_s + t.patience_s <= now]
            if not late:
                due = min(t.moved_s + t.patience_s for t in self._watched)
                self._changed.wait(min(due - now, FLOOR_S))
        for transfer in late:
            transfer.replace(now)
        return True


class Network:
    """A process's connections, and the transfers over them."""

    def __init__(self, most: int = MAX_CONNECTIONS) -> None:
        self.connections = Connections(most)
        self._watch = Watch()
        self._gives_parts: dict[str, bool] = {}

    def gives_parts(self, url: str) -> bool | None:
        """Whether a store gives parts of objects and tells their version; None if unknown yet."""
        return self._gives_parts.get(url)

    def note_parts(self, url: str, gives: bool) -> None:
        """Note whether it does."""
        self._gives_parts[url] = gives

    def bring(
        self,
        source: Source,
        start: int,
        stop: int,
        sink: Sink,
        *,
        need: float = 0,
        urgent: bool = False,
    ) -> Transfer:
        """A transfer, to be begun by the caller."""
        return Transfer(self.connections, self._watch, source, start, stop, sink, need, urgent)
