"""What a loader's worker that is a thread knows of itself: its number, and random generators."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch


@dataclass(eq=False)
class ThreadWorkerInfo:
    """A worker of a :class:`StreamingDataLoader` with ``worker_type="thread"``.

    The generators belong to this worker alone, so that drawing from them takes no lock and gives
    the same numbers whatever other threads do.

    Args:
        id: The worker's number, from 0.
        num_workers: How many workers the loader has.
        seed: What its generators are seeded with: the loader's seed for the iteration, plus ``id``.
        dataset: The dataset; the same object in every thread.

    Example:
        >>> info = ThreadWorkerInfo(id=1, num_workers=2, seed=7, dataset=None)
        >>> info.random.random() == ThreadWorkerInfo(1, 2, 7, None).random.random()
        True
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any
    part: Any = field(default=None, repr=False)
    """What the dataset deals out to this worker; the dataset's own."""

    @cached_property
    def random(self) -> random.Random:
        """A generator of Python's."""
        return random.Random(self.seed)

    @cached_property
    def numpy(self) -> np.random.Generator:
        """A generator of NumPy's."""
        return np.random.default_rng(self.seed % 2**64)

    @cached_property
    def torch(self) -> torch.Generator:
        """A generator of torch's, on the CPU."""
        generator = torch.Generator()
        generator.manual_seed(self.seed)
        return generator


class _Here(threading.local):
    info: ThreadWorkerInfo | None = None


_here = _Here()


def thread_worker_info() -> ThreadWorkerInfo | None:
    """The loader's worker that this thread is; None in any other thread.

    It is to threads what ``torch.utils.data.get_worker_info()`` is to processes. Transforms that
    draw random numbers take their generators from it, since the global ones are shared by all
    threads of the process.

    Example:
        >>> thread_worker_info() is None
        True
    """
    return _here.info


def enter(info: ThreadWorkerInfo | None) -> None:
    """Let this thread be a worker, or none any more."""
    _here.info = info
