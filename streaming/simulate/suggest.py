"""Better settings for a run, each with its reason, and tried in a simulation of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streaming.cache.cache import BYTES_AHEAD
from streaming.simulate.data import Data
from streaming.simulate.predict import predict
from streaming.simulate.report import Report
from streaming.simulate.setup import Setup

__all__ = ["Suggestion", "suggest"]

WORTH = 1.02
"""By which factor something has to get better to be suggested."""
WAITING = 0.02
"""The share of the time that steps may wait without anything being suggested about it."""
MIXES = 0.2
"""Below which quality a larger shuffle block is looked for."""


@dataclass(frozen=True)
class Suggestion:
    """One setting that should have another value."""

    setting: str
    value: Any
    reason: str
    samples_per_s: float
    """What the run would come to, everything else as it is."""
    bytes: int
    """What all nodes would fetch."""


def suggest(data: Data, report: Report) -> list[Suggestion]:
    """Look for better settings of a run.

    Args:
        data: Its data.
        report: What was predicted of it.

    Example:
        >>> from streaming.simulate import Setup, StreamSetup, simulate
        >>> stream = StreamSetup(shards=40, samples=500, sample_bytes=1000)
        >>> setup = Setup(streams=[stream], ranks=1, workers=1, step_s=0.01, decode_s=0.001)
        >>> [(each.setting, each.value) for each in simulate(setup).suggestions]
        [('workers', 4)]
    """
    if report.thrashes:  # What else would help, shows when that is over.
        return [*_workers(data, report), *_cache_limit(data, report)]
    looks = (_workers, _connections, _predownload, _block, _canonical_nodes)
    return [found for look in looks for found in look(data, report)]


def _try(data: Data, **changes: Any) -> Report | None:
    """What a run comes to with other settings; None if they don't go together."""
    try:
        return predict(data.ordered_by(data.setup.but(**changes)))
    except ValueError:
        return None


def _of(setting: str, value: Any, reason: str, then: Report) -> Suggestion:
    return Suggestion(setting, value, reason, then.samples_per_s, then.bytes)


def _waits(report: Report) -> bool:
    return report.waited_s - report.first_batch_s > WAITING * report.seconds


def _batch_s(setup: Setup, workers: int) -> float:
    """Seconds for each batch that a rank's workers make together."""
    busy = setup.ranks * max(1, workers)
    slower = max(1.0, busy / setup.cpus) if setup.cpus else 1.0
    each = setup.decode_s * setup.batch_size * slower / max(1, workers)
    return each + (setup.step_s if not workers else 0.0)


def _workers(data: Data, report: Report) -> Iterator[Suggestion]:
    setup = data.setup
    made_s = _batch_s(setup, setup.workers)
    if not setup.decode_s or not _waits(report) or made_s <= setup.step_s:
        return
    most = setup.cpus // setup.ranks if setup.cpus else 1 << 10
    wanted = most
    if setup.step_s:
        # A tenth more, so that a worker that is late now and then holds nobody up.
        wanted = min(most, math.ceil(1.1 * setup.decode_s * setup.batch_size / setup.step_s))
    if wanted <= setup.workers or (not setup.step_s and not setup.cpus):
        return
    then = _try(data, workers=wanted)
    if then is not None and then.samples_per_s > report.samples_per_s * WORTH:
        reason = (
            f"{setup.workers} workers of a rank make a batch in {made_s:.3g} s, a step takes "
            f"{setup.step_s:.3g} s: decoding holds the training up."
        )
        yield _of("workers", wanted, reason, then)


def _connections(data: Data, report: Report) -> Iterator[Suggestion]:
    setup = data.setup
    if setup.connection_bandwidth is None or not _waits(report):
        return
    each, rate = float(setup.connection_bandwidth), float(setup.bandwidth)
    if setup.max_connections * each >= rate:
        return
    wanted = math.ceil(rate / each)
    then = _try(data, max_connections=wanted)
    if then is not None and then.samples_per_s > report.samples_per_s * WORTH:
        reason = (
            f"{setup.max_connections} connections give {setup.max_connections * each / 1e6:,.0f} "
            f"MB/s at most, of the {rate / 1e6:,.0f} MB/s that the node can receive."
        )
        yield _of("max_connections", wanted, reason, then)


def _cache_limit(data: Data, report: Report) -> Iterator[Suggestion]:
    again = sum(epoch.fetched_again for epoch in report.epochs)
    value = report.roomy_cache_limit
    for _ in range(3):
        then = _try(data, cache_limit=value)
        if then is not None and not then.thrashes:
            reason = (
                f"Shards are evicted before all of their samples are used: they come again "
                f"{again:,} times within their epochs, as far as it was simulated."
            )
            yield _of("cache_limit", value, reason, then)
            break
        value = value * 5 // 4
    setup = data.setup
    if setup.shuffle and setup.shuffle_algo in ("py1e", "py1br", "blockwise"):
        block = int(
            data.params().shuffle_block_size * data.thin * min(1.0, report.cache_factor) / 2
        )
        then = _try(data, shuffle_block_size=max(2, block)) if block > 1 else None
        if then is not None and not then.thrashes:
            reason = (
                "If the cache can't be larger: in a smaller block fewer shards are in hand at a "
                f"time. Shuffle quality goes from {report.shuffle_quality:.2f} to "
                f"{then.shuffle_quality:.2f}."
            )
            yield _of("shuffle_block_size", block, reason, then)


def _predownload(data: Data, report: Report) -> Iterator[Suggestion]:
    setup = data.setup
    if setup.predownload is None or not _waits(report):
        return
    then = _try(data, predownload=None)
    if then is not None and then.samples_per_s > report.samples_per_s * WORTH:
        reason = (
            f"{int(setup.predownload):,} samples of each worker are too few to keep the network "
            f"busy; without `predownload`, {BYTES_AHEAD >> 20} MiB are fetched ahead, or half of "
            "`cache_limit` if that is less."
        )
        yield _of("predownload", None, reason, then)


def _block(data: Data, report: Report) -> Iterator[Suggestion]:
    setup = data.setup
    if report.shuffle_quality >= MIXES or not setup.shuffle:
        return
    if setup.shuffle_algo not in ("py1e", "py1br", "blockwise"):
        return
    block = 4 * data.params().shuffle_block_size * data.thin
    then = _try(data, shuffle_block_size=block)
    if then is None or then.thrashes or then.shuffle_quality < report.shuffle_quality * 1.2:
        return
    if then.samples_per_s * WORTH < report.samples_per_s:
        return
    reason = (
        f"Samples in a row come of few shards: shuffle quality {report.shuffle_quality:.2f}, then "
        f"{then.shuffle_quality:.2f}. A node's cache then has to hold "
        f"{then.smallest_cache_limit / 1e9:,.1f} GB instead of "
        f"{report.smallest_cache_limit / 1e9:,.1f} GB."
    )
    yield _of("shuffle_block_size", block, reason, then)


def _canonical_nodes(data: Data, report: Report) -> Iterator[Suggestion]:
    setup = data.setup
    given = setup.num_canonical_nodes
    if given is None or given >= setup.nodes or setup.batching_method != "random":
        return
    then = _try(data, num_canonical_nodes=setup.nodes)
    if then is not None and then.bytes * WORTH < report.bytes:
        reason = (
            f"{setup.nodes} nodes share {given} canonical nodes, so that several of them fetch the "
            "same shards. It changes the order: choose it before the first run."
        )
        yield _of("num_canonical_nodes", setup.nodes, reason, then)
