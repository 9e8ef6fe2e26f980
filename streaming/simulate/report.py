"""What the planner predicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streaming.simulate.setup import Setup

if TYPE_CHECKING:
    from streaming.simulate.suggest import Suggestion

__all__ = ["EpochReport", "NodeReport", "Report", "Timeline"]

THRASHES = 0.02
"""The share of shards that may come again within an epoch without its being called thrashing."""


@dataclass(frozen=True)
class NodeReport:
    """What one node fetches in an epoch."""

    node: int
    is_simulated: bool
    """Whether it was simulated itself; otherwise it is taken to be as those that were."""
    shard_bytes: int
    """Bytes of whole shards."""
    range_bytes: int
    """Bytes of samples that are read before their shards are here."""
    evicted: int
    """Shards that made way for others."""
    most_used: int
    """Most bytes that its shards take."""

    @property
    def bytes(self) -> int:
        """All bytes that it fetches."""
        return self.shard_bytes + self.range_bytes


@dataclass(frozen=True)
class EpochReport:
    """What happens in an epoch."""

    seconds: float
    """From its beginning to the end of its last step."""
    samples: int
    """Samples that all ranks get, repeats to come out even included."""
    steps: int
    first_batch_s: float
    """From its beginning to its first step."""
    waiting_steps: int
    """Steps that wait for data for more than a millisecond."""
    waited_s: float
    """How long steps wait for data, all together."""
    fetched: int
    """How many shards were fetched, over simulated nodes, as far as they were simulated."""
    fetched_again: int
    """How many of these came again though they had been fetched for the same use."""
    nodes: list[NodeReport]

    @property
    def samples_per_s(self) -> float:
        """Samples a second, over all ranks."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def bytes(self) -> int:
        """Bytes that all nodes fetch."""
        return sum(node.bytes for node in self.nodes)

    @property
    def shard_bytes(self) -> int:
        """Bytes of whole shards that all nodes fetch."""
        return sum(node.shard_bytes for node in self.nodes)

    @property
    def range_bytes(self) -> int:
        """Bytes of samples that all nodes read before their shards are here."""
        return sum(node.range_bytes for node in self.nodes)


@dataclass(frozen=True)
class Timeline:
    """How it goes on, as points in time over all epochs.

    Where epochs were not simulated to their ends, the parts that were follow one another.
    """

    seconds: list[float]
    samples_per_s: list[float]
    """Since the point before."""
    bytes_per_s: list[float]
    """Of shards that a node fetches on average, since the point before."""
    waited: list[float]
    """The share of the time since the point before in which steps waited."""
    starts: list[float]
    """When each epoch begins."""
    is_whole: bool
    """Whether epochs were simulated to their ends."""


@dataclass(frozen=True)
class Report:
    """What a run will be like.

    Show it by ``print(report.text())`` or :meth:`figures`, or in a page of its own by
    :meth:`html`.
    """

    setup: Setup
    epochs: list[EpochReport]
    first_batch_s: float
    """From the beginning of the run to its first step."""
    is_exact: bool
    """Whether every batch of every node was followed by itself."""
    note: str
    """What was simulated."""
    data_bytes: int
    """Bytes of all shards, as they travel."""
    smallest_cache_limit: int
    """Bytes with which shards are not fetched twice in an epoch, apart from streams that are gone
    through several times in it."""
    roomy_cache_limit: int
    """Bytes with which, besides, as much can be fetched ahead as without a limit."""
    cache_factor: float
    """``cache_limit`` over the smallest one; infinite without a limit."""
    shuffle_quality: float
    """Distinct shards among 512 samples in a row of a node, over those of a shuffle of everything:
    1 at best."""
    worker_busy: float
    """The share of their time in which workers read and decode."""
    timeline: Timeline
    suggestions: list[Suggestion] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long the run takes."""
        return sum(epoch.seconds for epoch in self.epochs)

    @property
    def samples_per_s(self) -> float:
        """Samples a second over the run, over all ranks."""
        samples = sum(epoch.samples for epoch in self.epochs)
        return samples / self.seconds if self.seconds else 0.0

    @property
    def steps(self) -> int:
        """Training steps of the run."""
        return sum(epoch.steps for epoch in self.epochs)

    @property
    def waiting_steps(self) -> int:
        """Steps that wait for data."""
        return sum(epoch.waiting_steps for epoch in self.epochs)

    @property
    def waited_s(self) -> float:
        """How long steps wait for data."""
        return sum(epoch.waited_s for epoch in self.epochs)

    @property
    def bytes(self) -> int:
        """Bytes that all nodes fetch in the run."""
        return sum(epoch.bytes for epoch in self.epochs)

    @property
    def bytes_by_node(self) -> list[int]:
        """Bytes that each node fetches in the run."""
        return [
            sum(epoch.nodes[node].bytes for epoch in self.epochs)
            for node in range(self.setup.nodes)
        ]

    @property
    def cost(self) -> float:
        """What the store asks for these bytes, in the currency of ``price_per_gb``."""
        return self.bytes / 1e9 * self.setup.price_per_gb

    @property
    def thrashes(self) -> bool:
        """Whether shards are fetched again within an epoch, more than now and then one."""
        return any(epoch.fetched_again > THRASHES * epoch.fetched for epoch in self.epochs)

    def text(self, width: int = 100) -> str:
        """The report as tables; needs rich, which is in the extra ``plan``."""
        from streaming.simulate.show import as_text

        return as_text(self, width)

    def figures(self) -> dict[str, Any]:
        """The report's plots by their names, as matplotlib's figures.

        Needs matplotlib, which is in the extra ``plan``.
        """
        from streaming.simulate.figures import figures

        return figures(self)

    def html(self) -> str:
        """The report as a page that stands alone, plots included."""
        from streaming.simulate.page import as_html

        return as_html(self)

    def _repr_html_(self) -> str:
        """How notebooks show it: the page in a frame, since its style is not theirs."""
        from streaming.simulate.page import as_frame

        return as_frame(self)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON's own types."""
        from streaming.simulate.show import as_json

        return as_json(self)
