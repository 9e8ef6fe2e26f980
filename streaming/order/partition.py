"""Partition: which sample of an epoch stands at which position, by arithmetic."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming.order.arrays import Ints
from streaming.order.layout import Layout, check_world

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """An epoch's samples, dealt out over the ranks of some nodes.

    Each canonical node owns a run of consecutive samples. The *common sequence* takes a sample
    of each canonical node in turn; it does not depend on the world. The physical nodes take its
    elements in turn, and so do the ranks of each node what that node got. What is missing for all
    ranks to get equally much is made up by repeating samples, at the end of the common sequence or
    at the end of each node's share of it.

    Positions, numbered as `Layout` does, are translated to samples by `samples`, at any place and
    in any order, for the cost of a few integer operations each.
    """

    layout: Layout
    """The world that was dealt out to, which `relaxed` keeps as it was when the run began."""
    num_samples: int
    canonical_nodes: int
    starts: Ints
    """The first sample of each canonical node, and past them `num_samples`."""
    stripe: int
    """Samples of each canonical node that everybody uses, its one repeat included."""
    padding: int
    """Samples by which each canonical node is prolonged so that the physical nodes come out."""
    padded_from: int
    """Where in a canonical node's run the samples come from that prolong it."""
    cyclic: bool
    """Whether there are too few samples, so that they are repeated one by one instead."""
    drop_first: int
    """Elements of the common sequence that were used before."""
    per_node: int
    """Samples of each physical node, before its ranks are brought to come out."""
    per_rank: int
    """Samples of each rank; its other positions are padding."""

    def samples(self, positions: Ints) -> Ints:
        """The samples that stand at `positions`, -1 where padding does."""
        world = self.layout
        batches = positions // world.global_batch
        within = positions - batches * world.global_batch
        lanes = within // world.batch_size
        # Position of each sample among its rank's, then among its node's, then among all.
        of_rank = batches * world.batch_size + (within - lanes * world.batch_size)
        nodes = lanes // world.ranks
        of_node = of_rank * world.ranks + (lanes - nodes * world.ranks)
        over = of_node >= self.per_node
        if over.any():
            of_node[over] = self._repeat_in_node(of_node[over])
        samples = self._common_sequence(self.drop_first + of_node * world.nodes + nodes)
        padding = of_rank >= self.per_rank
        if padding.any():
            samples[padding] = -1
        return samples

    def _repeat_in_node(self, of_node: Ints) -> Ints:
        """Where a node finds what it repeats for its ranks to come out (anything for padding)."""
        over = of_node - self.per_node
        missing = self.per_rank * self.layout.ranks - self.per_node
        if self.layout.ranks + missing - 1 <= self.per_node:
            first = self.per_node - self.layout.ranks - missing + 1
            return first + np.minimum(over, missing)
        over %= max(self.per_node, 1)
        return over

    def _common_sequence(self, elements: Ints) -> Ints:
        """The samples that stand at `elements` of the sequence that is the same for all worlds."""
        steps = elements // self.canonical_nodes
        owners = elements - steps * self.canonical_nodes
        if self.cyclic:
            run = self.stripe + self.padding
            steps = owners * run + steps
            steps %= max(self.num_samples, 1)
            return steps
        late = steps >= self.stripe - 1
        if late.any():
            late_steps, late_owners = steps[late], owners[late]
            late_steps -= np.where(late_steps < self.stripe, 0, self.stripe - self.padded_from)
            runs = self.starts[late_owners + 1] - self.starts[late_owners]
            steps[late] = np.minimum(late_steps, runs - 1)
        steps += self.starts[owners]
        return steps

    @property
    def num_positions(self) -> int:
        """Positions in all, padding included."""
        return self.layout.num_positions

    @property
    def whole_batches(self) -> int:
        """Global batches of the layout that hold no padding; they come first."""
        return self.per_rank // self.layout.batch_size


def make_partition(
    algo: str,
    num_samples: int,
    num_canonical_nodes: int,
    num_physical_nodes: int,
    ranks_per_node: int,
    workers_per_rank: int,
    batch_size: int,
    drop_first: int = 0,
    initial_physical_nodes: int | None = None,
) -> Partition:
    """Partition an epoch by arithmetic; the arguments and errors are `get_partitions`'.

    The positions of the result are those of a world of `num_physical_nodes` at `batch_size`, also
    where its own layout is an earlier world's: a global batch is the same range of positions in
    both.
    """
    check_world(num_physical_nodes, ranks_per_node, workers_per_rank, batch_size)
    _check_samples(num_samples, num_canonical_nodes, drop_first)
    world = num_physical_nodes * ranks_per_node
    # The common sequence may be longer than `check_used` allows for.
    if drop_first > common_length(num_samples, num_canonical_nodes):
        check_used(num_samples, world, drop_first)
    if algo not in PARTITION_ALGOS:
        raise ValueError(
            f"There is no partition algorithm {algo!r}; use one of {', '.join(PARTITION_ALGOS)}."
        )
    nodes = num_physical_nodes
    if (
        algo == "relaxed"
        and initial_physical_nodes is not None
        and not _divide(num_canonical_nodes, nodes)
    ):
        # An earlier world's partition in its order of use: the same batches, dealt out differently.
        global_batch = world * batch_size
        devices = initial_physical_nodes * ranks_per_node
        check_world(initial_physical_nodes, 1, 1, 1)
        if global_batch % devices:
            raise ValueError(
                f"A global batch of {global_batch} samples can't be dealt out to the {devices} "
                f"ranks that this run began on ({initial_physical_nodes} nodes of "
                f"{ranks_per_node}). Keep the global batch size when the world changes."
            )
        nodes, batch_size = initial_physical_nodes, global_batch // devices
    layout = Layout(nodes, ranks_per_node, workers_per_rank, 0, batch_size)
    return _deal_out(layout, num_samples, num_canonical_nodes, drop_first)


def _deal_out(
    world: Layout, num_samples: int, num_canonical_nodes: int, drop_first: int
) -> Partition:
    """Partition an epoch over a world whose number of batches remains to be found."""
    nodes, ranks = world.nodes, world.ranks
    if not _divide(num_canonical_nodes, nodes):
        raise ValueError(
            f"{num_canonical_nodes} canonical nodes can't be dealt out to {nodes} physical nodes: "
            "one number must divide the other. Choose `num_canonical_nodes` so."
        )
    if drop_first % nodes:
        logger.warning(
            "An epoch can't be resumed after %d samples on %d nodes; resuming after %d.",
            drop_first,
            nodes,
            drop_first - drop_first % nodes,
        )
        drop_first -= drop_first % nodes
    stripe = -(-num_samples // num_canonical_nodes)
    nodes_each = max(nodes // num_canonical_nodes, 1)
    padding = -stripe % nodes_each
    cyclic = num_samples < num_canonical_nodes or (
        num_samples == num_canonical_nodes and num_canonical_nodes < nodes
    )
    if cyclic and num_samples:
        _warn_few(num_samples, num_canonical_nodes, "canonical nodes")
    padded_from = stripe - nodes_each + 1 - padding
    if padding and padded_from < 0 and not cyclic:
        raise ValueError(
            f"{num_samples} samples are too few to be dealt out to {nodes} nodes. Use fewer nodes, "
            "or more samples in an epoch."
        )
    length = num_canonical_nodes * (stripe + padding)
    per_node = max(length - drop_first, 0) // nodes
    per_rank = -(-per_node // ranks)
    if ranks + per_rank * ranks - per_node - 1 > per_node > 0:
        _warn_few(per_node, ranks, "ranks of each node")
    starts = np.arange(num_canonical_nodes + 1) * num_samples // num_canonical_nodes
    batches = -(-per_rank // (world.workers * world.batch_size))
    return Partition(
        Layout(nodes, ranks, world.workers, batches, world.batch_size),
        num_samples,
        num_canonical_nodes,
        starts,
        stripe,
        padding,
        padded_from,
        cyclic,
        drop_first,
        per_node,
        per_rank,
    )


def common_length(num_samples: int, num_canonical_nodes: int) -> int:
    """Elements of the sequence that all worlds have in common; past them there are only repeats.

    >>> common_length(10, 4)
    12
    """
    return num_canonical_nodes * -(-num_samples // num_canonical_nodes)


def check_used(num_samples: int, num_ranks: int, drop_first: int) -> None:
    """Check that an epoch can be resumed after so many samples, as mosaicml-streaming does.

    Raises:
        ValueError: it has not so many.
    """
    if num_samples + num_ranks - num_samples % num_ranks < drop_first:
        raise ValueError(
            f"Can't resume after {drop_first} samples of an epoch that has {num_samples}. The "
            "checkpoint belongs to another data set, or to another epoch size."
        )


def _divide(left: int, right: int) -> bool:
    return left % right == 0 or right % left == 0


def _check_samples(num_samples: int, num_canonical_nodes: int, drop_first: int) -> None:
    if num_samples < 0:
        raise ValueError(f"An epoch can't have {num_samples} samples.")
    if num_canonical_nodes < 1:
        raise ValueError(f"`num_canonical_nodes` must be from 1 up, not {num_canonical_nodes}.")
    if drop_first < 0:
        raise ValueError(f"Can't resume an epoch after {drop_first} samples.")


def _warn_few(num_samples: int, parts: int, what: str) -> None:
    warnings.warn(
        f"{num_samples} samples are few for {parts} {what}: an epoch will repeat many of them.",
        stacklevel=5,
    )


PARTITION_ALGOS = ("orig", "relaxed")
"""The names of the partition algorithms."""


def get_partitions(
    algo: str,
    num_samples: int,
    num_canonical_nodes: int,
    num_physical_nodes: int,
    ranks_per_node: int,
    workers_per_rank: int,
    batch_size: int,
    drop_first: int = 0,
    initial_physical_nodes: int | None = None,
) -> NDArray[np.int64]:
    """Deal out the samples of an epoch to the workers of a world.

    Args:
        algo: `orig`, or `relaxed`, which also allows a run to be resumed on a number of nodes that
            the canonical nodes can't be dealt out to.
        num_samples: samples in the epoch.
        num_canonical_nodes: runs that the samples are cut into; fixed for a training run, so that
            the order is the same on any number of nodes.
        num_physical_nodes: nodes there are now. It and the canonical nodes must divide one
            another, one way or the other (`orig`).
        ranks_per_node: ranks of each node.
        workers_per_rank: workers of each rank.
        batch_size: samples in one device's batch.
        drop_first: samples that were used before, over all ranks; rounded down to a multiple of
            the nodes.
        initial_physical_nodes: nodes that the run began on, for `relaxed`.

    Returns:
        Sample numbers, -1 where there is padding, of shape (nodes, ranks per node, workers per
        rank, batches per worker, batch size).

    Raises:
        ValueError: the nodes or the global batch can't be dealt out, more is dropped than there
            is, or there are too few samples for so many nodes.

    >>> get_partitions("orig", 10, 2, 2, 1, 1, 3).tolist()
    [[[[[0, 1, 2], [3, 4, -1]]]], [[[[5, 6, 7], [8, 9, -1]]]]]
    """
    partition = make_partition(
        algo,
        num_samples,
        num_canonical_nodes,
        num_physical_nodes,
        ranks_per_node,
        workers_per_rank,
        batch_size,
        drop_first,
        initial_physical_nodes,
    )
    check_used(num_samples, num_physical_nodes * ranks_per_node, drop_first)
    world = Layout(
        num_physical_nodes,
        ranks_per_node,
        workers_per_rank,
        partition.layout.batches,
        batch_size,
    )
    return world.to_array(partition.samples)


def get_partitions_orig(
    num_samples: int,
    num_canonical_nodes: int,
    num_physical_nodes: int,
    ranks_per_node: int,
    workers_per_rank: int,
    batch_size: int,
    drop_first: int = 0,
    initial_physical_nodes: int | None = None,
) -> NDArray[np.int64]:
    """`get_partitions` by the algorithm `orig`."""
    return get_partitions(
        "orig",
        num_samples,
        num_canonical_nodes,
        num_physical_nodes,
        ranks_per_node,
        workers_per_rank,
        batch_size,
        drop_first,
        initial_physical_nodes,
    )


def get_partitions_relaxed(
    num_samples: int,
    num_canonical_nodes: int,
    num_physical_nodes: int,
    ranks_per_node: int,
    workers_per_rank: int,
    batch_size: int,
    drop_first: int = 0,
    initial_physical_nodes: int | None = None,
) -> NDArray[np.int64]:
    """`get_partitions` by the algorithm `relaxed`."""
    return get_partitions(
        "relaxed",
        num_samples,
        num_canonical_nodes,
        num_physical_nodes,
        ranks_per_node,
        workers_per_rank,
        batch_size,
        drop_first,
        initial_physical_nodes,
    )
