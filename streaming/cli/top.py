"""`shardstream top`: the datasets that run on this machine, and who waits for what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streaming.cli import output
from streaming.cli.output import size, text
from streaming.cli.tables import console, show, table
from streaming.stats import named
from streaming.watch.board import IN_RANK, Row
from streaming.watch.diagnosis import Amounts, diagnose, spent, stages, starved_share
from streaming.watch.machine import RunningDataset, running_datasets

__all__ = ["Running", "Top", "Worker", "looks", "top"]


@dataclass(frozen=True)
class Worker:
    """A worker of a rank's loader, or the rank's own process."""

    node: int
    rank: int
    worker: int | None
    """None for the rank's own process."""
    pid: int
    epoch: int
    samples: int
    """Since the start."""
    samples_per_s: float
    fetched_bytes_per_s: float
    spends: dict[str, float]
    """Shares of the time, by what it went into."""
    waits_for: str | None
    waits_s: float | None


@dataclass(frozen=True)
class Running:
    """A dataset that is open."""

    dataset: str
    since_s: float
    samples: int
    samples_per_s: float
    fetched_bytes_per_s: float
    starved: dict[int, float]
    """By rank, the share of the time that its trainer waits; a StreamingDataLoader tells it."""
    diagnoses: list[str]
    workers: list[Worker]


@dataclass(frozen=True)
class Top:
    """What runs on this machine."""

    datasets: list[Running]


def looks(every_s: float) -> Iterator[Top]:
    """Look at what runs, again and again; rates are of the time between two looks.

    Args:
        every_s: Seconds between two looks.

    Raises:
        OSError: If this system does not tell.
    """
    before, before_s = _counted(running_datasets()), time.monotonic()
    while True:
        time.sleep(every_s)
        runs, now_s = running_datasets(), time.monotonic()
        yield Top([_running(run, before, now_s - before_s) for run in runs])
        before, before_s = _counted(runs), now_s


_Key = tuple[int, int, int, int]
_Before = dict[_Key, Amounts]


def _key(run: RunningDataset, row: Row) -> _Key:
    return run.board, row.owner, row.worker, row.pid


def _counted(runs: list[RunningDataset]) -> _Before:
    return {_key(run, row): named(row.counters) for run in runs for row in run.rows}


def _running(run: RunningDataset, before: _Before, passed_s: float) -> Running:
    grown = [spent(before.get(_key(run, row), {}), named(row.counters)) for row in run.rows]
    workers = [_worker(row, each, passed_s) for row, each in zip(run.rows, grown, strict=True)]
    ranks: dict[int, list[Amounts]] = {}
    for row, each in zip(run.rows, grown, strict=True):
        ranks.setdefault(row.rank, []).append(each)
    together = {rank: _sum(amounts) for rank, amounts in ranks.items()}
    asked = {rank: all_ for rank, all_ in together.items() if starved_share(all_) > 0}
    lines = (
        diagnose(all_, rank, sum(row.rank == rank and row.worker != IN_RANK for row in run.rows))
        for rank, all_ in asked.items()
    )
    return Running(
        dataset=run.dataset,
        since_s=max(0.0, time.time() - run.started_s),
        samples=sum(worker.samples for worker in workers),
        samples_per_s=sum(worker.samples_per_s for worker in workers),
        fetched_bytes_per_s=sum(worker.fetched_bytes_per_s for worker in workers),
        starved={rank: starved_share(all_) for rank, all_ in asked.items()},
        diagnoses=[line for line in lines if line is not None],
        workers=workers,
    )


def _sum(amounts: list[Amounts]) -> dict[str, int | float]:
    return {name: sum(each[name] for each in amounts) for name in amounts[0]}


def _worker(row: Row, grown: Amounts, passed_s: float) -> Worker:
    waits_s = max(0.0, time.time() - row.waits_since_s) if row.waits_for else None
    shares = {what: min(1.0, seconds / passed_s) for what, seconds in stages(grown).items()}
    if waits_s is not None:  # a wait is counted when it is over
        shares["downloads"] = min(1.0, shares["downloads"] + waits_s / passed_s)
    fetched = grown["bytes_fetched"] + grown["bytes_fetched_by_range"]
    return Worker(
        node=row.node,
        rank=row.rank,
        worker=None if row.worker == IN_RANK else row.worker,
        pid=row.pid,
        epoch=row.epoch,
        samples=int(named(row.counters)["samples"]),
        samples_per_s=grown["samples"] / passed_s,
        fetched_bytes_per_s=fetched / passed_s,
        spends={what: share for what, share in shares.items() if share > 0},
        waits_for=row.waits_for or None,
        waits_s=waits_s,
    )


def top(every_s: float, once: bool, as_json: bool) -> None:
    """Print what runs; unless once, again and again until it is interrupted.

    Args:
        every_s: Seconds between two looks.
        once: Whether to end after one.
        as_json: Whether to print JSON; one object a line, unless once.

    Raises:
        OSError: If this system does not tell.
    """
    if every_s <= 0:
        raise ValueError(f"--every is {every_s:g}: give the seconds between two looks")
    try:
        if once:
            _print(next(looks(every_s)), as_json, indent=2)
        elif as_json:
            for look in looks(every_s):
                _print(look, as_json, indent=None)
        else:
            _follow(looks(every_s))
    except KeyboardInterrupt:  # how it is meant to end
        return


def _print(look: Top, as_json: bool, indent: int | None) -> None:
    if as_json:
        print(output.as_json(look, indent=indent), flush=True)
    else:
        show(look, console())


def _follow(found: Iterator[Top]) -> None:
    out = console()
    if not out.is_terminal:
        for look in found:
            show(look, out)
        return
    with Live(console=out, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        live.update("looking …", refresh=True)
        for look in found:
            live.update(Group(*_lines(look)), refresh=True)


@show.register
def _(result: Top, out: Console) -> None:
    for line in _lines(result):
        out.print(line)


def _lines(look: Top) -> Iterator[RenderableType]:
    if not look.datasets:
        yield "no dataset is open on this machine"
    for run in look.datasets:
        yield Text(_heading(run), style="bold")
        if run.workers:
            yield _table_of(run)
        for line in run.diagnoses:
            yield Text(f"! {line}")
        yield ""


def _heading(run: Running) -> str:
    ranks = len({worker.rank for worker in run.workers})
    starved = ", ".join(f"rank {rank} {share:.0%}" for rank, share in run.starved.items())
    return (
        f"{text(run.dataset)}: {ranks} ranks, {run.samples_per_s:,.0f} samples/s, "
        f"{size(run.fetched_bytes_per_s)}/s fetched, open for {run.since_s:,.0f} s"
        + (f"; trainers wait: {starved}" if starved else "")
    )


_HEADINGS = (
    *(">node", ">rank", ">worker", ">pid", ">epoch", ">samples", ">samples/s", ">fetched/s"),
    *("time goes into", "waits for"),
)


def _table_of(run: Running) -> Table:
    rows = (
        (
            *(worker.node, worker.rank, "-" if worker.worker is None else worker.worker),
            str(worker.pid),
            *(worker.epoch, worker.samples, f"{worker.samples_per_s:,.0f}"),
            f"{size(worker.fetched_bytes_per_s)}/s",
            ", ".join(f"{what} {share:.0%}" for what, share in _longest(worker.spends)),
            "" if worker.waits_for is None else f"{worker.waits_for} ({worker.waits_s:.1f} s)",
        )
        for worker in run.workers
    )
    return table(*_HEADINGS, rows=rows)


def _longest(spends: dict[str, float]) -> list[tuple[str, float]]:
    """What took most of the time, and is worth showing."""
    order = sorted(spends.items(), key=lambda one: -one[1])
    return [one for one in order if one[1] >= 0.01][:3]
