"""Batches of several workers, one of each in turn, however many a worker sends at once.

A worker sends its batches in parcels, since a message costs about as much for one small batch as
for sixteen. All workers send equally many in their first parcels, in their second, and so on; what
came early waits for its turn. So the order of batches is the one of single batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

PARCEL_BYTES = 1 << 20
"""How much data a parcel of several batches holds, about."""
MAX_BATCHES = 16
"""How many batches a parcel holds at most."""


class Failure(Protocol):
    """An error that a worker has met."""

    def reraise(self) -> None:
        """Raise it here."""


class Parcel(Generic[T]):
    """What a worker hands over at once.

    Args:
        worker: The worker's number.
        items: What it has made.
        ended: Whether nothing comes after it.
        failure: An error that belongs after the items.
    """

    __slots__ = ("ended", "failure", "items", "worker")

    def __init__(
        self, worker: int, items: list[T], ended: bool = False, failure: Failure | None = None
    ) -> None:
        self.worker = worker
        self.items = items
        self.ended = ended
        self.failure = failure


def sizes(item_bytes: float) -> Iterator[int]:
    """How many items each of a worker's parcels holds: few at first, so that they come soon.

    Args:
        item_bytes: Bytes of an item, on average.

    Example:
        >>> from itertools import islice
        >>> list(islice(sizes(100_000), 6)), list(islice(sizes(10_000_000), 3))
        ([1, 2, 4, 8, 10, 10], [1, 1, 1])
    """
    most = max(1, min(MAX_BATCHES, int(PARCEL_BYTES / max(1.0, item_bytes))))
    size = 1
    while True:
        yield min(size, most)
        size = min(2 * size, most)


def parcels(
    worker: int,
    items: Iterator[T],
    counts: Iterable[int],
    catch: Callable[[Exception], Failure],
) -> Iterator[Parcel[T]]:
    """Put a worker's items into parcels; the last one tells that it has ended.

    An error ends a parcel, and belongs after its items. As torch does, the next item is asked for
    after it all the same: generators have ended by then, others go on.

    Args:
        worker: The worker's number.
        items: What it makes.
        counts: How many go into each parcel.
        catch: Makes of an error what is sent of it.

    Example:
        >>> [(p.items, p.ended) for p in parcels(0, iter("abcd"), [1, 2, 4], str)]
        [(['a'], False), (['b', 'c'], False), (['d'], True)]
    """
    for count in counts:
        parcel: Parcel[T] = Parcel(worker, [])
        try:
            for item in islice(items, count):
                parcel.items.append(item)
            parcel.ended = len(parcel.items) < count
        except Exception as error:
            parcel.failure = catch(error)
        yield parcel
        if parcel.ended:
            return


class Turns(Generic[T]):
    """An iterator over the items of several workers, one of each in turn.

    A worker that has ended is left out from then on. An error is raised where its worker's next
    item would have been; iterating goes on after it.

    Args:
        workers: How many there are.
        pull: Waits for a parcel, given the worker whose turn it is; may give another's, if it comes
            before. Raises whatever keeps parcels from coming.
        in_order: False to give items as they come.

    Example:
        >>> sent = iter([Parcel(0, ["a", "b"]), Parcel(1, ["1"], True), Parcel(0, ["c"], True)])
        >>> list(Turns(2, lambda worker: next(sent)))
        ['a', '1', 'b', 'c']
    """

    def __init__(
        self, workers: int, pull: Callable[[int], Parcel[T]], in_order: bool = True
    ) -> None:
        self._pull = pull
        self._in_order = in_order
        self._waiting: list[deque[T | _Failed]] = [deque() for _ in range(workers)]
        self._ended = [False] * workers
        self._turns = deque(range(workers))

    def __iter__(self) -> Turns[T]:
        return self

    def __next__(self) -> T:
        while self._turns:
            worker = self._next_worker()
            if self._waiting[worker]:
                self._turns.remove(worker)
                self._turns.append(worker)
                item = self._waiting[worker].popleft()
                if not isinstance(item, _Failed):
                    return item
                item.failure.reraise()
            elif self._ended[worker]:
                self._turns.remove(worker)
            else:
                self._take(self._pull(worker))
        raise StopIteration

    def _next_worker(self) -> int:
        if not self._in_order:
            for worker in self._turns:
                if self._waiting[worker] or self._ended[worker]:
                    return worker
        return self._turns[0]

    def _take(self, parcel: Parcel[T]) -> None:
        self._waiting[parcel.worker].extend(parcel.items)
        if parcel.failure is not None:
            self._waiting[parcel.worker].append(_Failed(parcel.failure))
        self._ended[parcel.worker] = parcel.ended


class _Failed:
    """Stands for an error among a worker's items."""

    __slots__ = ("failure",)

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
