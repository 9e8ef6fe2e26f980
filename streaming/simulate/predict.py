"""How the planner comes to what it predicts."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streaming.simulate.cache_limit import roomy_cache_limit, smallest_cache_limit
from streaming.simulate.data import Data
from streaming.simulate.quality import diversity, ideal_diversity
from streaming.simulate.report import EpochReport, NodeReport, Report, Timeline
from streaming.simulate.run import EpochRun, NodeRun, run_epochs
from streaming.simulate.setup import Setup

__all__ = ["predict", "simulate"]

MOST_SAMPLES = 1 << 19
"""Samples of an epoch that are followed one by one; of more, each stands for several."""
MOST_BATCHES = 8_000
"""Batches that are followed one by one, over all simulated nodes and epochs."""
MOST_STEPS = 5_000
"""Steps that a run of more than that is simulated in."""
MOST_FETCHES = 1_500
"""Shards that a node fetches in an epoch before what follows is taken to be like what was."""
WAIT_S = 0.001
"""A step that waits longer for its data is counted as one that waits."""
WINDOW = 512
"""Samples in a row of which it is counted how many shards they are from."""


@dataclass(frozen=True)
class _Scale:
    """How finely a run is simulated."""

    nodes: list[int]
    thin: int = 1
    """Samples that each simulated sample stands for."""
    unit: float | None = None
    """Steps that each simulated step stands for; None for itself."""
    batch: int | None = None
    """Simulated samples that a node uses in such a step."""
    step_s: float = 0.0
    """Seconds of a step."""

    @property
    def is_exact(self) -> bool:
        return self.unit is None


def _scale(data: Data) -> _Scale:
    setup = data.setup
    samples, typical = data.epoch_size, int(np.median(data.samples))
    batches = max(1, samples // setup.batch_size) * setup.epochs
    most = max(1, min(setup.nodes, MOST_BATCHES * setup.nodes // batches))
    nodes = sorted({number * setup.nodes // most for number in range(most)})
    if samples <= MOST_SAMPLES and batches * len(nodes) <= MOST_BATCHES * setup.nodes:
        return _Scale(nodes)
    thin = 1
    while samples / thin > MOST_SAMPLES and typical // (2 * thin) >= 8:
        thin *= 2
    of_node = samples / thin / setup.nodes * setup.epochs
    batch = max(1, math.ceil(of_node / MOST_STEPS))
    # No more finely than by steps.
    batch = max(batch, math.ceil(setup.ranks * setup.batch_size / thin))
    unit = batch * thin / (setup.ranks * setup.batch_size)
    return _Scale(nodes, thin, unit, batch, setup.step_s)


def simulate(setup: Setup, suggestions: bool = True) -> Report:
    """Predict how a run will stream its data.

    Epochs are planned as the library plans them, and the same rules say what is fetched when, over
    how many connections, and what is evicted; files, network and workers are simulated. Of more
    than half a million samples each simulated one stands for several; of many nodes some stand for
    all.

    Args:
        setup: The run.
        suggestions: Whether to look for better settings, which takes some more simulations.

    Raises:
        ValueError: If settings don't go together, or the cache's limit is too small for a shard.
        StoreError: If an index can't be had.

    Example:
        >>> from streaming.simulate import Setup, StreamSetup, simulate
        >>> stream = StreamSetup(shards=100, samples=1000, sample_bytes="10kb")
        >>> setup = Setup(streams=[stream], ranks=2, workers=2, bandwidth="100mb", step_s=0.1)
        >>> report = simulate(setup)
        >>> report.bytes == report.data_bytes + report.epochs[0].range_bytes
        True
        >>> report.epochs[1].bytes, report.thrashes
        (0, False)
        >>> 630 < report.samples_per_s < 640  # 64 samples in a step of 0.1 s
        True
    """
    data = Data(setup)
    report = predict(data)
    if not suggestions:
        return report
    from streaming.simulate.suggest import suggest

    return replace(report, suggestions=suggest(data, report))


def predict(data: Data) -> Report:
    """What :func:`simulate` predicts, of data that were opened before, without suggestions."""
    with _uncollected():
        return _predict(data)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python's collector of cycles from going through a simulation's many small objects.

    It would take a quarter of the time, and find nothing before the end.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _predict(data: Data) -> Report:
    setup = data.setup
    scale = _scale(data)
    scaled = data.thinned_by(scale.thin)
    fetches = None if scale.is_exact else MOST_FETCHES
    runs = run_epochs(scaled, scale.nodes, setup.epochs, scale.batch, scale.unit, fetches=fetches)
    first_s = _first_batch_s(data, scale, runs)
    work = scaled.work(0, scale.nodes[0], max(1, setup.batch_size // scale.thin))
    epochs = [_epoch_report(scaled, scale, run, number) for number, run in enumerate(runs)]
    if not scale.is_exact:
        epochs = [
            _with_start(epoch, run, scale, first_s) for epoch, run in zip(epochs, runs, strict=True)
        ]
    smallest = smallest_cache_limit(scaled, work)
    limit = setup.cache_limit
    busy = sum(node.worker_busy_s for run in runs for node in run.nodes)
    time = sum(run.end_s - run.start_s for run in runs) * len(scale.nodes) * setup.workers_of_node
    return Report(
        setup=setup,
        epochs=epochs,
        first_batch_s=first_s,
        is_exact=scale.is_exact and len(scale.nodes) == setup.nodes,
        note=_note(data, scale, runs),
        data_bytes=int(data.travels.sum()),
        smallest_cache_limit=smallest,
        roomy_cache_limit=roomy_cache_limit(scaled, work),
        cache_factor=math.inf if limit is None or not smallest else int(limit) / smallest,
        shuffle_quality=_quality(scaled, work.node),
        worker_busy=busy / time if time else 0.0,
        timeline=_timeline(scaled, scale, runs),
    )


def _with_start(epoch: EpochReport, run: EpochRun, scale: _Scale, first_s: float) -> EpochReport:
    """An epoch, less what its first steps waited only because many were simulated as one.

    All data of the first steps has to be here before the first of them begins: as many seconds as
    these steps take, later ones' data has more time.
    """
    waited, startup = float(run.waited_s[0]), epoch.first_batch_s
    least = min(startup, first_s)
    more = (scale.unit or 1.0) - 1
    spared = min(waited - least, more * scale.step_s)
    if waited <= least or spared <= 0:
        return epoch
    waits = epoch.waiting_steps - (round(more) if waited - spared <= least + WAIT_S else 0)
    return replace(
        epoch,
        seconds=epoch.seconds - spared,
        waited_s=epoch.waited_s - spared,
        first_batch_s=least,
        waiting_steps=max(1, waits),
    )


def _note(data: Data, scale: _Scale, runs: list[EpochRun]) -> str:
    nodes = f"{len(scale.nodes)} of {data.setup.nodes} nodes"
    if scale.is_exact:
        return f"every batch of {nodes}"
    note = (
        f"{nodes}, one sample for {scale.thin}, {scale.unit:.1f} steps at a time; samples that are "
        "read before their shards are here are not counted"
    )
    share = min(len(run.began_s) / max(1, run.steps) for run in runs)
    if share < 1:
        note += f"; the first {share:.0%} of an epoch at least, and the rest taken to go on so"
    return note


def _first_batch_s(data: Data, scale: _Scale, runs: list[EpochRun]) -> float:
    if scale.is_exact:
        return float(runs[0].began_s[0]) - runs[0].start_s
    # Of the thinned order, as if its samples stood for one each: its first ones are of as many
    # shards as the first ones of the whole order are.
    fine = data.thinned_by(scale.thin, weight=1)
    (start,) = run_epochs(fine, scale.nodes[:1], 1, data.setup.batch_size, most=1)
    return float(start.began_s[0])


def _epoch_report(data: Data, scale: _Scale, run: EpochRun, number: int) -> EpochReport:
    setup = data.setup
    made = len(run.began_s)
    seconds, waited = run.end_s - run.start_s, float(run.waited_s.sum())
    waiting = int((run.waited_s > WAIT_S).sum())
    left = run.steps - made
    if left:
        # What follows is like the second half of what was.
        tail = slice(made // 2, None)
        each = max(1, len(run.began_s[tail]))
        waits = run.waited_s[tail]
        seconds += left * (setup.step_s * (scale.unit or 1) + float(waits.mean()))
        waited += left * float(waits.mean())
        waiting += round(left * float((waits > WAIT_S).sum()) / each)
    simulated = {
        node.node: _node_report(data, run, node, left / max(1, made)) for node in run.nodes
    }
    others = _mean(list(simulated.values()))
    nodes = [simulated.get(node, replace(others, node=node)) for node in range(setup.nodes)]
    batches = -(-data.epoch_size // setup.global_batch)
    steps = run.steps if scale.is_exact else batches
    samples = -(-data.epoch_size // (setup.nodes * setup.ranks)) * setup.nodes * setup.ranks
    first = float(run.began_s[0]) - run.start_s if made else 0.0
    return EpochReport(
        seconds=seconds,
        samples=samples,
        steps=steps,
        first_batch_s=first,
        waiting_steps=min(steps, round(waiting * (scale.unit or 1))),
        waited_s=waited,
        fetched=sum(int(node.fetched.sum()) for node in run.nodes),
        fetched_again=sum(node.again for node in run.nodes),
        nodes=nodes,
    )


def _node_report(data: Data, run: EpochRun, node: NodeRun, left: float) -> NodeReport:
    shard_bytes = node.shard_bytes
    if left and data.setup.cache_limit is None:
        shard_bytes = node.wanted_bytes
    elif left:
        shard_bytes = round(shard_bytes * (1 + left))
        if not node.again:  # what was fetched ahead does not come again
            shard_bytes = min(shard_bytes, node.needed_bytes)
    most = node.most_used
    if left and data.setup.cache_limit is None:
        most += shard_bytes - node.shard_bytes
    return NodeReport(
        node=node.node,
        is_simulated=True,
        shard_bytes=shard_bytes,
        range_bytes=node.range_bytes,
        evicted=round(node.evicted * (1 + left)),
        most_used=most,
    )


def _mean(nodes: list[NodeReport]) -> NodeReport:
    def mean(name: str) -> int:
        total: int = sum(getattr(node, name) for node in nodes)
        return round(total / len(nodes))

    return NodeReport(
        node=-1,
        is_simulated=False,
        shard_bytes=mean("shard_bytes"),
        range_bytes=mean("range_bytes"),
        evicted=mean("evicted"),
        most_used=mean("most_used"),
    )


def _quality(data: Data, order: Any) -> float:
    window = min(WINDOW, len(order))
    if not window:
        return 1.0
    ideal = ideal_diversity(data.samples, window)
    return min(1.0, diversity(order, window) / ideal) if ideal else 1.0


POINTS = 200
"""Points of a timeline."""


def _timeline(data: Data, scale: _Scale, runs: list[EpochRun]) -> Timeline:
    setup = data.setup
    end = runs[-1].end_s
    edges = np.linspace(0.0, end, POINTS + 1)
    step = max(edges[1], 1e-9)
    began = np.concatenate([run.began_s for run in runs])
    waited = np.concatenate([run.waited_s for run in runs])
    samples = np.histogram(began, edges)[0] * (setup.global_batch * (scale.unit or 1)) / step
    arrivals = [node.arrivals for run in runs for node in run.nodes]
    at = np.concatenate([each[:, 0] for each in arrivals])
    sizes = data.travels[np.concatenate([each[:, 1] for each in arrivals]).astype(np.int64)]
    came = np.histogram(at, edges, weights=sizes)[0] / step / len(scale.nodes)
    return Timeline(
        seconds=edges[1:].tolist(),
        samples_per_s=samples.tolist(),
        bytes_per_s=came.tolist(),
        waited=_spread(began - waited, began, edges).tolist(),
        starts=[run.start_s for run in runs],
        is_whole=all(len(run.began_s) == run.steps for run in runs),
    )


def _spread(starts: Any, stops: Any, edges: Any) -> Any:
    """The share of each stretch of time that some intervals, which don't overlap, cover."""
    done = np.concatenate([np.zeros(1), np.cumsum(stops - starts)])
    index = np.searchsorted(starts, edges, "right")
    before = done[np.maximum(index - 1, 0)]
    last = np.maximum(index - 1, 0)
    over = np.where(index > 0, np.clip(edges - starts[last], 0, (stops - starts)[last]), 0.0)
    return np.diff(before + over) / np.maximum(np.diff(edges), 1e-9)
