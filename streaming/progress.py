"""A process's side of the epochs: which of a rank's iterations it is in, and what comes next."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.utils.data import get_worker_info

from streaming.epochs import EpochBoard, Iteration, Position, Worker, worker_of_this_process
from streaming.orphans import end_with

Resolve = Callable[[Position], Position]

Standing = tuple[int, int, int]
"""Over how many ranks and workers of each the samples are dealt out, and the worker's number."""


@dataclass(frozen=True, slots=True)
class Own:
    """How far one process had come by itself."""

    position: Position
    """Where its iteration began."""
    samples: int
    """What it had been given since."""
    standing: Standing

    def to_json(self) -> dict[str, int]:
        """For a checkpoint."""
        ranks, workers, worker = self.standing
        return {"ranks": ranks, "workers": workers, "worker": worker, "samples": self.samples}

    @classmethod
    def from_json(cls, position: Position, own: dict[str, int]) -> "Own":
        """From a checkpoint."""
        return cls(position, own["samples"], (own["ranks"], own["workers"], own["worker"]))

    def check(self, standing: Standing) -> None:
        """Check that a process stands where the one did whose progress this was.

        Raises:
            ValueError: If it doesn't.
        """
        if self.samples and standing != self.standing:
            raise ValueError(
                f"This checkpoint is of {_describe(self.standing)}, but it was loaded into "
                f"{_describe(standing)}. What `dataset.state_dict()` gives is one process's own "
                "progress, and goes on only in a process like it. To change the numbers of ranks "
                "or workers, use StreamingDataLoader's state."
            )


def _describe(standing: Standing) -> str:
    ranks, workers, worker = standing
    return f"worker {worker} of {workers} of a rank of {ranks}"


class Progress:
    """Begins iterations, in a rank's process or in its loader workers.

    Copies in workers share the board with the process that made them; all else is each process's
    own.
    """

    def __init__(self) -> None:
        self.board = EpochBoard()
        self._assigned: Iteration | None = None
        self._resumed: Own | None = None
        self._resumed_in: int | None = None
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._iterations = 0
        self._iteration: Iteration | None = None
        self._unused: Position | None = None
        self.done = 0
        """Samples that this process was given in its latest iteration, those skipped included."""

    def begin(
        self, resolve: Resolve, standing: Standing, count: Callable[[Position], int]
    ) -> Iteration:
        """Begin an iteration: with the rank's other workers, or a new one.

        Where a process's own progress was loaded, :attr:`done` samples are to be skipped.

        Args:
            resolve: Given the position that is next, the one to begin at.
            standing: This process's part.
            count: How many samples its part has from a position on.

        Raises:
            RuntimeError: If a later iteration of the rank has begun since this worker's was.
            ValueError: If the progress loaded is of a process with another part.
        """
        if self._pid != os.getpid():
            self._begin_process()
        own, self._resumed = self._resumed, None
        if self.worker() is None:
            resolve = partial(self._begin_here, resolve, own, count)
        elif own is not None and self._resumed_in == os.getpid():
            # Each worker has loaded its own; the first to begin moves the rank's epoch.
            resolve = partial(_always, own.position)
        iteration = self._begin(resolve)
        self._iteration, self.done = iteration, 0
        if own is not None and own.position == (iteration.epoch, iteration.sample_in_epoch):
            own.check(standing)
            self.done = own.samples
        return iteration

    def _begin_here(
        self,
        resolve: Resolve,
        own: Own | None,
        count: Callable[[Position], int],
        position: Position,
    ) -> Position:
        """Where a process without workers begins: past an epoch that it has finished, once."""
        again, self._unused = self._unused, None
        if own is not None and own.position == position and own.samples:
            if own.samples < count(position):
                return position
            self._unused = position[0] + 1, 0
            return self._unused
        if again is not None and not self.done and position == (again[0] + 1, 0):
            # StatefulDataLoader begins twice after a finished epoch, and does not use the first.
            self._unused = again
            return again
        return resolve(position)

    def own(self, standing: Standing) -> tuple[Position, Own | None]:
        """Where this process's iteration began, and how far it has come; or where it will begin.

        Raises:
            RuntimeError: If this process does not iterate, but workers of it do.
        """
        at = self._iteration if self._pid == os.getpid() else None
        if at is not None and self.board.is_latest(at):
            position = at.epoch, at.sample_in_epoch
            return position, Own(position, self.done, standing)
        if self.worker() is None and not self.board.has_begun:
            position, own = self.board.position(), self._resumed
            return position, own if own is not None and own.position == position else None
        raise RuntimeError(
            "`dataset.state_dict()` gives the position of the process that iterates, and this one "
            "does not: what workers have fetched ahead can't be seen from here. Use the state of "
            "the loader (StreamingDataLoader, or torchdata's StatefulDataLoader), or pass "
            "`num_samples` and `from_beginning`."
        )

    def resume(self, position: Position, own: dict[str, int] | None) -> None:
        """Let the next iteration begin at a position, and after what a process had done there."""
        if self.worker() is None:
            self.board.resume(position)
        elif own is None:
            own = {"samples": 0, "ranks": 1, "workers": 1, "worker": 0}
        self._resumed = None if own is None else Own.from_json(position, own)
        self._resumed_in = os.getpid()

    def _begin(self, resolve: Resolve) -> Iteration:
        self._iterations += 1
        worker = self.worker()
        if worker is None:
            return self._assigned or self.board.begin(resolve)
        end_with(worker.owner)
        if self._assigned is not None:
            # The parent wakes persistent workers and waits for them, so that its latest is theirs.
            return self._assigned if self._iterations == 1 else self.board.current(worker)
        iteration = self.board.join(worker, resolve)
        if iteration is None:
            raise superseded(self.board.current(worker))
        return iteration

    def announce(self, resolve: Resolve) -> None:
        """Begin an iteration for the workers that a loader is about to start or wake.

        Raises:
            ValueError: If a single process's own progress was loaded.
        """
        if self._resumed is not None and self._resumed.samples:
            raise ValueError(
                "What was loaded is one process's own progress (`dataset.state_dict()`), which a "
                "StreamingDataLoader can't go on from. Load the state of a StreamingDataLoader."
            )
        self._assigned = self.board.begin(resolve)

    @property
    def assigned(self) -> Iteration:
        """The iteration that was announced."""
        assert self._assigned is not None, "no iteration has been announced"
        return self._assigned

    def announced(self) -> None:
        """Leave iterations by other loaders to themselves again."""
        self._assigned = None

    def worker(self) -> Worker | None:
        """The loader worker that this process is, or None."""
        info = get_worker_info()
        return None if info is None else worker_of_this_process(info.id, self._iterations)

    @property
    def owner(self) -> int:
        """Process id of the rank that this process works for."""
        worker = self.worker()
        return os.getpid() if worker is None else worker.owner

    def check(self, iteration: Iteration) -> None:
        """Make sure that an iteration is the rank's latest. Cheap enough for each sample.

        Raises:
            RuntimeError: If a later one has begun.
        """
        if not self.board.is_latest(iteration):
            raise superseded(iteration)

    def __getstate__(self) -> dict[str, Any]:
        names = ("board", "_assigned", "_resumed", "_resumed_in")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_process()


def _always(there: Position, _: Position) -> Position:
    return there


def superseded(iteration: Iteration) -> RuntimeError:
    """The error of an iteration that a later one has ended."""
    return RuntimeError(
        f"This iteration over epoch {iteration.epoch} of the dataset was ended by a later one: a "
        "dataset is iterated once at a time. Make a second dataset to iterate twice at once."
    )
