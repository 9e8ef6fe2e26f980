"""A report as tables, and as JSON."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streaming.cli.output import plain, size

if TYPE_CHECKING:
    from rich.console import Console

    from streaming.simulate.report import Report

__all__ = ["as_json", "as_text", "facts", "print_report", "tables"]

Table = tuple[str, list[str], list[list[str]]]
"""A title, headings (those that begin with ">" are of numbers), and rows."""
MOST_NODES = 16
"""Nodes that are listed."""


def needs(what: str) -> ImportError:
    """The error of a package of the extra that is not installed."""
    return ImportError(f"The planner's report needs {what}: pip install 'shardstream[plan]'")


def facts(report: Report) -> list[tuple[str, str]]:
    """What the report comes to, as names and values."""
    setup, limit = report.setup, report.setup.cache_limit
    steps = f"{report.waiting_steps:,} of {report.steps:,} steps, {report.waited_s:,.1f} s in all"
    found = [
        ("throughput", f"{report.samples_per_s:,.0f} samples/s"),
        ("time of the run", _time(report.seconds)),
        ("first batch after", f"{report.first_batch_s:,.2f} s"),
        ("waits for data", steps),
        ("bytes fetched", f"{size(report.bytes)}, of a data set of {size(report.data_bytes)}"),
    ]
    if setup.price_per_gb:
        found.append(("cost of egress", f"{report.cost:,.2f}"))
    has = "no limit" if limit is None else f"the limit is {size(int(limit))}"
    found += [
        ("cache for one fetch an epoch", f"{size(report.smallest_cache_limit)} or more ({has})"),
        ("shuffle quality", f"{report.shuffle_quality:.2f}"),
        ("workers busy", f"{report.worker_busy:.0%}"),
        ("simulated", report.note),
    ]
    return found


def tables(report: Report) -> Iterator[Table]:
    """The report's tables."""
    headings = [
        *("epoch", ">samples/s", ">first batch, s", ">waiting steps", ">waited, s"),
        *(">fetched", ">for ranges", ">evicted", ">cost"),
    ]
    rows = [
        [
            str(number),
            f"{epoch.samples_per_s:,.0f}",
            f"{epoch.first_batch_s:,.2f}",
            f"{epoch.waiting_steps:,}",
            f"{epoch.waited_s:,.1f}",
            size(epoch.shard_bytes),
            size(epoch.range_bytes),
            f"{sum(node.evicted for node in epoch.nodes):,}",
            f"{epoch.bytes / 1e9 * report.setup.price_per_gb:,.2f}",
        ]
        for number, epoch in enumerate(report.epochs)
    ]
    yield "Epochs", headings, rows
    own = report.bytes_by_node
    simulated = {node.node for node in report.epochs[0].nodes if node.is_simulated}
    listed = [
        [str(node), size(own[node]), "yes" if node in simulated else "as those that were"]
        for node in range(min(len(own), MOST_NODES))
    ]
    if len(own) > MOST_NODES:
        listed.append([f"… {len(own)} in all", size(sum(own)), ""])
    yield "Nodes", ["node", ">fetched in the run", "simulated"], listed
    if report.suggestions:
        better = [
            [
                each.setting,
                "none" if each.value is None else f"{each.value:,}",
                f"{each.samples_per_s:,.0f}",
                size(each.bytes),
                each.reason,
            ]
            for each in report.suggestions
        ]
        yield "Suggestions", ["setting", ">value", ">samples/s", ">fetched", "reason"], better


def print_report(report: Report, out: Console) -> None:
    """Print a report by rich."""
    from rich.table import Table as RichTable

    summary = RichTable(box=None, pad_edge=False, show_header=False)
    summary.add_column(style="bold")
    summary.add_column(overflow="fold")
    for name, value in facts(report):
        summary.add_row(name, value)
    out.print(summary)
    for title, headings, rows in tables(report):
        out.print()
        out.print(title, style="bold")
        table = RichTable(box=None, pad_edge=False, header_style="bold")
        for heading in headings:
            right = heading.startswith(">")
            table.add_column(
                heading.lstrip(">"), justify="right" if right else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*row)
        out.print(table)


def as_text(report: Report, width: int) -> str:
    """The report's tables as text, so many characters wide."""
    try:
        from rich.console import Console
    except ModuleNotFoundError as error:
        raise needs("rich") from error
    file = io.StringIO()
    out = Console(
        file=file, width=width, markup=False, highlight=False, emoji=False, color_system=None
    )
    print_report(report, out)
    return file.getvalue()


def as_json(report: Report) -> dict[str, Any]:
    """The report as JSON's own types."""
    found: dict[str, Any] = plain(report)
    return found


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.1f} s"
    minutes = seconds / 60
    if minutes < 120:
        return f"{minutes:,.1f} min"
    hours = math.floor(minutes / 60)
    return f"{hours:,} h {minutes - 60 * hours:.0f} min"
