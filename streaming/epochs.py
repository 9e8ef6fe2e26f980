"""Which epoch an iteration belongs to: how a rank's process and its workers agree on it.

A plain ``DataLoader`` starts each worker with a copy of the dataset and runs none of our code in
the parent, so that the workers have to find out by themselves whether they begin an epoch together
or a new one. They do so through an :class:`EpochBoard`, a few integers in anonymous shared memory.
Each rank has a slot of its own there, keyed by the process whose workers they are, so that ranks
that were forked from one process don't disturb one another.
"""

import multiprocessing
import os
from collections.abc import Callable
from dataclasses import dataclass

from streaming.shared import SharedInts, is_alive

Position = tuple[int, int]
"""An epoch, and the samples of it that were already handed out over all devices."""

# The integers of a slot.
_OWNER, _SERIAL, _STARTED = 0, 1, 2
_EPOCH, _SAMPLE = 3, 4
_NEXT_EPOCH, _NEXT_SAMPLE = 5, 6
_CANONICAL_NODES, _SEED, _INITIAL_NODES = 7, 8, 9
_JOINED = 10  # the serial number of the iteration that the latest generation of workers belongs to
_GENERATIONS, _NUM_GENERATIONS = 11, 6
_ENDED = 23  # how many workers have ended the iteration
_COUNTERS, _NUM_COUNTERS = 32, 24
_AT_START = _COUNTERS + _NUM_COUNTERS  # the counters when the iteration began
_SLOT, _NUM_SLOTS = 96, 64


@dataclass(frozen=True, slots=True)
class Iteration:
    """One pass of a rank over (what is left of) an epoch."""

    slot: int
    """Where on the board the rank's integers begin."""
    serial: int
    """Counts the rank's iterations: the latest is the one that may go on."""
    epoch: int
    sample_in_epoch: int
    """Samples handed out before this pass, over all devices, each replica group once."""


@dataclass(frozen=True, slots=True)
class Worker:
    """What tells one iteration of a worker's process from the next."""

    owner: int
    """Process id of the rank whose worker this is."""
    generation: int
    """The same for all workers that were started together, greater for those started later."""
    count: int
    """How many iterations this process has begun, this one included."""


def worker_of_this_process(worker_id: int, count: int) -> Worker:
    """Describe the DataLoader worker that this process is.

    Works for fork, spawn and forkserver, since the parent counts the processes that it makes:
    workers started together have consecutive numbers.
    """
    parent = multiprocessing.parent_process()
    owner = os.getppid() if parent is None or parent.pid is None else parent.pid
    identity = multiprocessing.current_process()._identity
    return Worker(owner, (identity[-1] if identity else 0) - worker_id, count)


class EpochBoard:
    """Where a rank and its workers agree on the epoch, and add up what they did.

    Example:
        >>> board = EpochBoard()
        >>> board.begin().epoch, board.begin().epoch
        (0, 1)
        >>> board.resume((5, 320))
        >>> board.begin()
        Iteration(slot=0, serial=3, epoch=5, sample_in_epoch=320)
    """

    def __init__(self) -> None:
        self._ints = SharedInts(_SLOT * _NUM_SLOTS)
        self._ints[_OWNER] = os.getpid()

    def begin(self, resolve: Callable[[Position], Position] | None = None) -> Iteration:
        """Begin the rank's next iteration, in the rank's own process.

        Args:
            resolve: Given the position that is next, the one to begin at: an epoch that is
                finished makes way for the one after it.
        """
        with self._ints.lock():
            return self._advance(self._slot_of(os.getpid()), resolve)

    def join(
        self, worker: Worker, resolve: Callable[[Position], Position] | None = None
    ) -> Iteration | None:
        """Begin an iteration in a worker, with others of its generation or as their first.

        Returns:
            The iteration, or None if a later one has begun since this worker's: an older one never
            moves the epoch.
        """
        with self._ints.lock():
            slot = self._slot_of(worker.owner)
            seen = self._generations(slot)
            latest = next(iter(seen), None)
            if latest == (worker.generation, worker.count):
                superseded = self._ints[slot + _JOINED] != self._ints[slot + _SERIAL]
                return None if superseded else self._current(slot)
            known = dict(seen)
            if worker.generation in known:
                newer = worker.count > known[worker.generation]
            else:
                newer = worker.generation > max(known, default=-1)
            if not newer:
                return None
            iteration = self._advance(slot, resolve)
            self._ints[slot + _JOINED] = iteration.serial
            known.pop(worker.generation, None)
            self._set_generations(slot, [(worker.generation, worker.count), *known.items()])
            return iteration

    def current(self, worker: Worker) -> Iteration:
        """The iteration that the worker's rank has begun last."""
        with self._ints.lock():
            return self._current(self._slot_of(worker.owner))

    def is_latest(self, iteration: Iteration) -> bool:
        """Whether no later iteration of the rank has begun. Cheap enough to ask at each sample."""
        return self._ints[iteration.slot + _SERIAL] == iteration.serial

    def watch(self, iteration: Iteration) -> memoryview:
        """A view whose only integer is the iteration's serial until a later one has begun.

        Looking at it costs less than a call of :meth:`is_latest`, which makes a difference where
        that is done at each sample.
        """
        return self._ints.view(iteration.slot + _SERIAL)

    def position(self) -> Position:
        """Where this rank's present iteration began, or where its first will."""
        with self._ints.lock():
            at = self._slot_of(os.getpid())
            fields = (_EPOCH, _SAMPLE) if self._ints[at + _STARTED] else (_NEXT_EPOCH, _NEXT_SAMPLE)
            return self._ints[at + fields[0]], self._ints[at + fields[1]]

    def resume(self, position: Position) -> None:
        """Let this rank's next iteration begin at a position."""
        with self._ints.lock():
            at = self._slot_of(os.getpid())
            self._ints[at + _NEXT_EPOCH], self._ints[at + _NEXT_SAMPLE] = position
            self._ints[at + _STARTED] = 0

    @property
    def next_epoch(self) -> int:
        """The epoch of this rank's next iteration."""
        with self._ints.lock():
            return self._ints[self._slot_of(os.getpid()) + _NEXT_EPOCH]

    @property
    def has_begun(self) -> bool:
        """Whether this rank has begun an iteration since it was made or resumed."""
        with self._ints.lock():
            return bool(self._ints[self._slot_of(os.getpid()) + _STARTED])

    def set_order(
        self,
        canonical_nodes: int | None,
        seed: int,
        initial_nodes: int | None,
        owner: int | None = None,
    ) -> None:
        """Publish what a checkpoint says of a rank's order, for workers that already run."""
        with self._ints.lock():
            at = self._slot_of(owner or os.getpid())
            self._ints[at + _CANONICAL_NODES] = canonical_nodes or 0
            self._ints[at + _SEED] = seed + 1
            self._ints[at + _INITIAL_NODES] = initial_nodes or 0

    def order(self, owner: int) -> tuple[int | None, int, int | None] | None:
        """What a rank's :meth:`set_order` left: nodes, seed, initial nodes; None if nothing."""
        with self._ints.lock():
            slot = self._slot_of(owner)
            nodes, seed, initial = self._ints.slice(
                slot + _CANONICAL_NODES, slot + _INITIAL_NODES + 1
            )
        return (nodes or None, seed - 1, initial or None) if seed else None

    def add(self, owner: int, amounts: dict[int, int]) -> None:
        """Add to the counters of a rank, by their numbers."""
        with self._ints.lock():
            at = self._slot_of(owner) + _COUNTERS
            for number, amount in amounts.items():
                self._ints[at + number] += amount

    def counters(self) -> list[int]:
        """The counters of this rank and its workers."""
        with self._ints.lock():
            at = self._slot_of(os.getpid()) + _COUNTERS
            return self._ints.slice(at, at + _NUM_COUNTERS)

    def end(self, iteration: Iteration, workers: int) -> list[int] | None:
        """Note that one of a rank's workers has ended an iteration.

        Returns:
            What the counters have grown by in it, if all workers have; None otherwise, or if a
            later iteration has begun.
        """
        ints, at = self._ints, iteration.slot
        with ints.lock():
            if ints[at + _SERIAL] != iteration.serial:
                return None
            ints[at + _ENDED] += 1
            if ints[at + _ENDED] != workers:
                return None
            now = ints.slice(at + _COUNTERS, at + _COUNTERS + _NUM_COUNTERS)
            before = ints.slice(at + _AT_START, at + _AT_START + _NUM_COUNTERS)
        return [late - early for late, early in zip(now, before, strict=True)]

    def _slot_of(self, owner: int) -> int:
        """The slot of a rank's process; a new one starts from the state of the maker's."""
        ints = self._ints
        for slot in range(0, _SLOT * _NUM_SLOTS, _SLOT):
            if ints[slot + _OWNER] == owner:
                return slot
        for slot in range(_SLOT, _SLOT * _NUM_SLOTS, _SLOT):
            if not is_alive(ints[slot + _OWNER]):
                for at in range(_COUNTERS):
                    ints[slot + at] = ints[at]
                for at in range(_COUNTERS, _SLOT):
                    ints[slot + at] = 0
                for at in range(_GENERATIONS, _GENERATIONS + 2 * _NUM_GENERATIONS):
                    ints[slot + at] = 0
                ints[slot + _OWNER] = owner
                return slot
        raise RuntimeError(
            f"More than {_NUM_SLOTS} processes iterate one dataset object. Make a dataset in each "
            f"process instead."
        )

    def _advance(self, at: int, resolve: Callable[[Position], Position] | None) -> Iteration:
        ints = self._ints
        position = ints[at + _NEXT_EPOCH], ints[at + _NEXT_SAMPLE]
        epoch, sample = resolve(position) if resolve is not None else position
        ints[at + _SERIAL] += 1
        ints[at + _STARTED] = 1
        ints[at + _ENDED] = 0
        for counter in range(_NUM_COUNTERS):
            ints[at + _AT_START + counter] = ints[at + _COUNTERS + counter]
        ints[at + _EPOCH], ints[at + _SAMPLE] = epoch, sample
        ints[at + _NEXT_EPOCH], ints[at + _NEXT_SAMPLE] = epoch + 1, 0
        return self._current(at)

    def _current(self, at: int) -> Iteration:
        ints = self._ints
        return Iteration(at, ints[at + _SERIAL], ints[at + _EPOCH], ints[at + _SAMPLE])

    def _generations(self, at: int) -> list[tuple[int, int]]:
        """Generations of workers with their counts of iterations, the one that began last first."""
        flat = self._ints.slice(at + _GENERATIONS, at + _GENERATIONS + 2 * _NUM_GENERATIONS)
        return [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2) if flat[i + 1]]

    def _set_generations(self, at: int, generations: list[tuple[int, int]]) -> None:
        flat = [number for pair in generations[:_NUM_GENERATIONS] for number in pair]
        flat += [0] * (2 * _NUM_GENERATIONS - len(flat))
        for offset, number in enumerate(flat):
            self._ints[at + _GENERATIONS + offset] = number
