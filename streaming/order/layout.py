"""Where a position of an epoch is used: by which node, rank and worker, in which batch and slot."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from streaming.order.arrays import Ints, in_chunks


@dataclass(frozen=True, slots=True)
class Layout:
    """A world that an epoch is dealt out to, and in how many batches.

    Positions of an epoch are numbered in their order of use: all slots of the first global batch,
    rank by rank and node by node, then those of the second. The workers of a rank take the global
    batches in turn. A global batch is therefore a range of positions in every world, which is
    what makes an order elastic.

    >>> layout = Layout(nodes=2, ranks=1, workers=1, batches=2, batch_size=3)
    >>> layout.global_batch, layout.num_positions
    (6, 12)
    >>> layout.positions(node=1, rank=0, worker=0, steps=np.arange(6)).tolist()
    [3, 4, 5, 9, 10, 11]
    """

    nodes: int
    """Physical nodes."""
    ranks: int
    """Ranks of each node."""
    workers: int
    """Workers of each rank."""
    batches: int
    """Batches of each worker, those of padding included."""
    batch_size: int
    """Samples in one device's batch."""

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """Nodes, ranks per node, workers per rank, batches per worker, batch size."""
        return self.nodes, self.ranks, self.workers, self.batches, self.batch_size

    @property
    def global_batch(self) -> int:
        """Samples in a global batch."""
        return self.nodes * self.ranks * self.batch_size

    @property
    def num_positions(self) -> int:
        """Positions in all, padding included."""
        return self.global_batch * self.workers * self.batches

    def positions(self, node: int, rank: int, worker: int, steps: Ints) -> Ints:
        """The positions that a worker uses, its samples numbered by `steps` from 0."""
        batches = steps // self.batch_size
        slots = steps - batches * self.batch_size
        lane = node * self.ranks + rank
        start = worker * self.global_batch + lane * self.batch_size
        return batches * (self.global_batch * self.workers) + (slots + start)

    def of(self, batches: int) -> Layout:
        """The same world, with so many batches for each worker."""
        return replace(self, batches=batches)

    def resume(self, num_batches: int, samples_used: int) -> tuple[int, Layout]:
        """Go on after the whole global batches that make up `samples_used`.

        Args:
            num_batches: global batches of the epoch.
            samples_used: samples used before, over all ranks.

        Returns:
            The positions to skip, and the layout of what is left.

        Warns:
            UserWarning: `samples_used` ends within a global batch, so that the samples used of it
                come again.
        """
        skipped, again = divmod(samples_used, self.global_batch)
        if again:
            warnings.warn(
                f"Resuming after {skipped} whole global batches of {self.global_batch} samples; "
                f"{again} samples that were used of the next one come again. Keep the global batch "
                "size, and stop after whole batches.",
                stacklevel=4,
            )
        left = max(0, num_batches - skipped)
        return skipped * self.global_batch, self.of(-(-left // self.workers))

    def to_array(self, at: Callable[[Ints], Ints]) -> Ints:
        """What `at` gives for every position, as an array of the layout's shape."""
        used = in_chunks(at, 0, self.num_positions)
        dealt = used.reshape(self.batches, self.workers, self.nodes, self.ranks, self.batch_size)
        return np.ascontiguousarray(dealt.transpose(2, 3, 1, 0, 4))

    def batches_of(self, worker: int, first_batches: int) -> int:
        """How many of the epoch's first global batches are a worker's."""
        return max(0, -(-(first_batches - worker) // self.workers))


def check_world(nodes: int, ranks: int, workers: int, batch_size: int) -> None:
    """Check the numbers that a world consists of.

    Raises:
        ValueError: one of them is not positive.
    """
    for name, value in (
        ("nodes", nodes),
        ("ranks per node", ranks),
        ("workers per rank", workers),
        ("samples per batch", batch_size),
    ):
        if value < 1:
            raise ValueError(f"An epoch is dealt out to 1 or more {name}, not {value}.")
