"""A process's side of the epochs: which of a rank's iterations it is in, and what comes next."""

import os
from collections.abc import Callable
from typing import Any

from torch.utils.data import get_worker_info

from streaming.epochs import EpochBoard, Iteration, Position, Worker, worker_of_this_process

Resolve = Callable[[Position], Position]


class Progress:
    """Begins iterations, in a rank's process or in its loader workers.

    Copies in workers share the board with the process that made them; all else is each process's
    own.
    """

    def __init__(self) -> None:
        self.board = EpochBoard()
        self._assigned: Iteration | None = None
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._iterations = 0

    def begin(self, resolve: Resolve) -> Iteration:
        """Begin an iteration: with the rank's other workers, or a new one.

        Args:
            resolve: Given the position that is next, the one to begin at.

        Raises:
            RuntimeError: If a later iteration of the rank has begun since this worker's was.
        """
        if self._pid != os.getpid():
            self._begin_process()
        self._iterations += 1
        worker = self.worker()
        if worker is None:
            return self._assigned or self.board.begin(resolve)
        if self._assigned is not None:
            # The parent wakes persistent workers and waits for them, so that its latest is theirs.
            return self._assigned if self._iterations == 1 else self.board.current(worker)
        iteration = self.board.join(worker, resolve)
        if iteration is None:
            raise superseded(self.board.current(worker))
        return iteration

    def announce(self, resolve: Resolve) -> None:
        """Begin an iteration for the workers that a loader is about to start or wake."""
        self._assigned = self.board.begin(resolve)

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
        return {"board": self.board, "_assigned": self._assigned}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_process()


def superseded(iteration: Iteration) -> RuntimeError:
    """The error of an iteration that a later one has ended."""
    return RuntimeError(
        f"This iteration over epoch {iteration.epoch} of the dataset was ended by a later one: a "
        "dataset is iterated once at a time. Make a second dataset to iterate twice at once."
    )
