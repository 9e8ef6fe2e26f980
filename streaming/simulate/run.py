"""Simulate the epochs of a run, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming.simulate.clock import Clock
from streaming.simulate.data import Data, Work
from streaming.simulate.fetching import Node
from streaming.simulate.shelf import Shelf
from streaming.simulate.training import Trainer, Worker

__all__ = ["EpochRun", "NodeRun", "run_epochs"]


@dataclass(frozen=True, eq=False)
class NodeRun:
    """What one node did in an epoch."""

    node: int
    bytes: int
    """Bytes that came over the network."""
    shard_bytes: int
    """Bytes of shards that came whole."""
    range_bytes: int
    """Bytes of samples that were read by ranges."""
    wanted_bytes: int
    """Bytes of the shards that it needs in the epoch and that were not here before."""
    needed_bytes: int
    """Bytes of all shards that it needs in the epoch, as often as it comes to them."""
    fetched: NDArray[np.int64]
    """How often each shard came."""
    again: int
    """How many of these came again though they had been here for the same use."""
    evicted: int
    most_used: int
    """Most bytes that its shards took."""
    arrivals: NDArray[np.float64]
    """When each shard came, in seconds, and which it was: of shape (arrivals, 2)."""
    worker_waited_s: float
    """How long its workers waited for shards, added up."""
    worker_busy_s: float
    """How long they read and decoded, added up."""


@dataclass(frozen=True, eq=False)
class EpochRun:
    """What happened in an epoch."""

    start_s: float
    """When it began."""
    end_s: float
    """When its last step ended."""
    began_s: NDArray[np.float64]
    """When each step began."""
    waited_s: NDArray[np.float64]
    """How long each step waited for its batches."""
    steps: int
    """Steps of the whole epoch, of which the first ones were simulated."""
    nodes: list[NodeRun]


def run_epochs(
    data: Data,
    nodes: Sequence[int],
    epochs: int,
    batch: int | None = None,
    unit: float | None = None,
    most: int | None = None,
    fetches: int | None = None,
) -> list[EpochRun]:
    """Simulate some epochs on some nodes.

    Args:
        data: The data.
        nodes: The nodes that are simulated; the others are taken to be as fast.
        epochs: How many epochs.
        batch: Simulated samples in a simulated batch; None for the batch size.
        unit: How many steps each simulated step stands for, in which one worker of each node stands
            for all of them; None to simulate each step and each worker.
        most: Simulated steps of an epoch at most; None for all.
        fetches: Shards that a node fetches in an epoch before the simulation is cut short; None for
            all.

    Raises:
        ValueError: If the cache's limit is too small for a shard, or the order's parameters don't
            go together.

    Example:
        >>> from streaming.simulate.setup import Setup, StreamSetup
        >>> stream = StreamSetup(shards=4, samples=100, sample_bytes=1000)
        >>> setup = Setup(
        ...     streams=[stream], ranks=1, workers=0, batch_size=100, shuffle=False, step_s=1.0,
        ...     bandwidth=100_000, connection_bandwidth=None, latency_s=0.0, max_connections=1)
        >>> first, second = run_epochs(Data(setup), [0], 2)
        >>> [round(at, 6) for at in first.began_s.tolist()]
        [1.0, 2.0, 3.0, 4.0]
        >>> second.end_s - second.start_s, first.nodes[0].bytes, second.nodes[0].bytes
        (4.0, 400000, 0)
    """
    setup, clock = data.setup, Clock()
    limit = None if setup.cache_limit is None else int(setup.cache_limit)
    shelves = {node: Shelf(clock, data, limit) for node in nodes}
    cut = _Cut(most, fetches)
    return [_run_epoch(clock, data, shelves, epoch, batch, unit, cut) for epoch in range(epochs)]


@dataclass(frozen=True)
class _Cut:
    """When to simulate no more of an epoch."""

    steps: int | None
    fetches: int | None

    def is_reached(self, trainer: Trainer, nodes: list[Node]) -> bool:
        made = len(trainer.began_s)
        if self.steps is not None and made >= self.steps:
            return True
        if self.fetches is None or made < 2:
            return False
        return any(len(node.arrivals) >= self.fetches for node in nodes)


def _run_epoch(
    clock: Clock,
    data: Data,
    shelves: dict[int, Shelf],
    epoch: int,
    batch: int | None,
    unit: float | None,
    cut: _Cut,
) -> EpochRun:
    setup, start = data.setup, clock.now
    nodes = [
        Node(clock, data, _work(data, epoch, number, batch, unit), shelf)
        for number, shelf in shelves.items()
    ]
    workers = [[Worker(node, process) for process in node.processes] for node in nodes]
    before = [_Before.of(data, node) for node in nodes]
    trainer = Trainer(clock, _by_rank(nodes, workers), setup.step_s * (unit or 1))

    def begin() -> None:
        for own in workers:
            for worker in own:
                worker.begin()

    clock.after(setup.startup_s, begin)
    clock.soon(trainer.begin)
    clock.run(lambda: trainer.is_over or cut.is_reached(trainer, nodes))
    if not trainer.is_over and not cut.is_reached(trainer, nodes):
        raise RuntimeError("The simulation has come to a standstill; please report its settings.")
    end = clock.now if trainer.is_over else trainer.end_s()
    done = [
        _node_run(data, number, node, own, stood)
        for number, node, own, stood in zip(shelves, nodes, workers, before, strict=True)
    ]
    # The epoch's processes end, with what they have under way.
    clock.clear()
    clock.now = end
    for node in nodes:
        node.shelf.give_up()
        if not trainer.is_over and setup.cache_limit is None:
            node.shelf.fill(node.needs.shards)
        for process in node.processes:
            vars(process).clear()  # what waits in it refers to it: only the collector would free it
    began, waited = np.array(trainer.began_s), np.array(trainer.waited_s)
    return EpochRun(start, end, began, waited, trainer.steps, done)


def _work(data: Data, epoch: int, node: int, batch: int | None, unit: float | None) -> Work:
    if unit is None or batch is None:
        return data.work(epoch, node, batch)
    return data.work(epoch, node, max(1, data.setup.batch_size // data.thin)).as_one(batch)


def _by_rank(nodes: list[Node], workers: list[list[Worker]]) -> list[list[Worker]]:
    """The workers of each rank, in the order of their numbers."""
    found: list[list[Worker]] = []
    for node, own in zip(nodes, workers, strict=True):
        of_rank: list[list[Worker]] = [[] for _ in range(max(node.work.ranks) + 1)]
        for rank, worker in zip(node.work.ranks, own, strict=True):
            of_rank[rank].append(worker)
        found.extend(of_rank)
    return found


@dataclass(frozen=True)
class _Before:
    """How things stood on a node when an epoch began."""

    evicted: int
    wanted_bytes: int

    @classmethod
    def of(cls, data: Data, node: Node) -> _Before:
        shelf = node.shelf
        shelf.most_used = shelf.used
        missing = shelf.absent(node.needs.shards)
        return cls(shelf.evicted, int(data.travels[missing].sum()))


def _visits(data: Data, node: Node) -> NDArray[np.int64]:
    """How often a node comes to each shard, long after it has used it before."""
    return np.bincount(data.visits(node.work).shards, minlength=len(data.raw))


def _node_run(
    data: Data, number: int, node: Node, workers: list[Worker], before: _Before
) -> NodeRun:
    return NodeRun(
        node=number,
        bytes=node.bytes,
        shard_bytes=int((node.fetched * data.travels).sum()),
        range_bytes=node.range_bytes,
        wanted_bytes=before.wanted_bytes,
        needed_bytes=int(data.travels[data.visits(node.work).shards].sum()),
        fetched=node.fetched,
        again=int(np.maximum(node.fetched - _visits(data, node), 0).sum()),
        evicted=node.shelf.evicted - before.evicted,
        most_used=node.shelf.most_used,
        arrivals=np.array(node.arrivals, np.float64).reshape(-1, 2),
        worker_waited_s=sum(worker.waited_s for worker in workers),
        worker_busy_s=sum(worker.decoded_s for worker in workers) * node.work.merged,
    )
