"""Results as tables and lines for people, by rich."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import singledispatch
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from streaming.cli.bench import Bench
from streaming.cli.cp import Copied
from streaming.cli.diff import Difference
from streaming.cli.doctor import Doctor
from streaming.cli.info import Column, Folder, Info, Spread
from streaming.cli.ls import Listing
from streaming.cli.machine import Check
from streaming.cli.merge import Merged
from streaming.cli.output import size, spoken, text
from streaming.cli.repair import Repaired
from streaming.cli.reshard import Resharded
from streaming.cli.samples import Shown
from streaming.cli.state import State
from streaming.cli.verify import Problem, Verified
from streaming.convert.commit import Report

__all__ = ["console", "show", "table"]

_MOST_PROBLEMS = 50


def console() -> Console:
    """Where results are printed. What data sets say is never taken for markup."""
    out = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    if not out.is_terminal:
        out.width = 200  # Whoever reads it is a program, which lines must not be broken for.
    return out


def table(*headings: str, rows: Iterable[Iterable[Any]]) -> Table:
    """A table; headings that begin with ">" are of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        right = heading.startswith(">")
        table.add_column(heading.lstrip(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{v:,}" if type(v) is int else text(str(v)) for v in row))
    return table


def _facts(facts: Iterable[tuple[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, f"{value:,}" if type(value) is int else text(str(value)))
    return table


@singledispatch
def show(result: Any, out: Console) -> None:
    """Print a result.

    Args:
        result: What a command's function returned.
        out: Where to.
    """
    raise TypeError(f"there is no table for a {type(result).__name__}")


@show.register
def _(result: Info, out: Console) -> None:
    saved = result.raw_bytes / result.stored_bytes if result.stored_bytes else 1.0
    out.print(
        _facts(
            [
                ("data set", result.url),
                ("samples", result.samples),
                ("shards", result.shards),
                ("size", f"{size(result.raw_bytes)} ({result.raw_bytes:,} bytes)"),
                ("stored", f"{size(result.stored_bytes)}, compressed {saved:.2f} times"),
                ("index", size(result.index_bytes)),
                ("samples per shard", _spread(result.samples_per_shard)),
                ("bytes per shard", _spread(result.bytes_per_shard)),
            ]
        )
    )
    for schema in result.schemas:
        out.print()
        limit = "none" if schema.size_limit is None else size(schema.size_limit)
        out.print(
            f"{schema.format}, compression {schema.compression or 'none'}, "
            f"hashes {', '.join(schema.hashes) or 'none'}, size limit {limit}: "
            f"{schema.shards:,} shards, {schema.samples:,} samples"
        )
        out.print(_columns(schema.columns))
    if result.tree.folders:
        out.print()
        tree = Tree(_folder(result.tree))
        _grow(tree, result.tree)
        out.print(tree)


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    return f"{spread.least:,} to {spread.most:,}, mean {spread.mean:,.1f}"


def _columns(columns: list[Column]) -> Table:
    rows = ((c.name, c.encoding, "varies" if c.bytes is None else f"{c.bytes:,}") for c in columns)
    return table("column", "encoding", ">bytes", rows=rows)


def _folder(folder: Folder) -> str:
    return (
        f"{text(folder.name)}: {folder.shards:,} shards, {folder.samples:,} samples, "
        f"{size(folder.raw_bytes)}"
    )


def _grow(tree: Tree, folder: Folder) -> None:
    for one in folder.folders:
        _grow(tree.add(_folder(one)), one)


@show.register
def _(result: Shown, out: Console) -> None:
    out.print(f"sample {result.id:,}", style="bold")
    out.print(_facts((f"  {text(name)}", spoken(value)) for name, value in result.sample.items()))


@show.register
def _(result: Listing, out: Console) -> None:
    if result.is_dataset:
        out.print(f"{result.url} is a data set")
    with_sizes = any(entry.bytes is not None for entry in result.entries)
    rows = (
        (e.name, e.kind, e.files, *([size(e.bytes or 0)] if with_sizes else []))
        for e in result.entries
    )
    headings = ["name", "kind", ">files", *([">size"] if with_sizes else [])]
    out.print(table(*headings, rows=rows))


def _problems(problems: list[Problem], out: Console) -> None:
    rows = (
        (p.kind, p.file, "" if p.sample is None else f"{p.sample}", p.message)
        for p in problems[:_MOST_PROBLEMS]
    )
    if problems:
        out.print(table("problem", "file", ">sample", "what", rows=rows))
    if len(problems) > _MOST_PROBLEMS:
        out.print(f"… and {len(problems) - _MOST_PROBLEMS} more: --json lists all")


@show.register
def _(result: Verified, out: Console) -> None:
    _problems(result.problems, out)
    for note in result.notes:
        out.print(f"note: {text(note)}")
    absent = f", {result.absent:,} shards not there" if result.absent else ""
    out.print(
        f"{result.url}: {result.shards:,} shards, {result.samples:,} samples{absent}; "
        f"read {result.files:,} files, {size(result.bytes)}, decoded {result.decoded:,} samples "
        f"in {result.seconds:.1f} s"
    )
    out.print(_verdict(result.ok, "whole", f"DAMAGED: {len(result.problems)} problems"))


def _verdict(ok: bool, good: str, bad: str) -> str:
    return good if ok else bad


@show.register
def _(result: Repaired, out: Console) -> None:
    _problems(result.problems, out)
    for name in result.replaced:
        out.print(f"replaced {text(name)}")
    if result.remaining:
        out.print("still wrong:")
        _problems(result.remaining, out)
    count = f"{len(result.replaced)} files replaced, {size(result.bytes)}, from {result.remote}"
    good = count if result.problems else "nothing was wrong"
    out.print(f"{result.url}: {_verdict(result.ok, good, f'STILL DAMAGED: {count}')}")


@show.register
def _(result: Merged, out: Console) -> None:
    for part in result.copied:
        out.print(f"copied {text(part)}")
    out.print(f"{result.out}: {result.shards:,} shards, {result.samples:,} samples")


@show.register
def _(result: Resharded, out: Console) -> None:
    order = "in their order" if result.seed is None else f"shuffled with seed {result.seed}"
    out.print(
        f"{result.out}: {result.samples:,} samples {order}, {result.shards_before:,} shards became "
        f"{result.shards:,}, {size(result.bytes)}, in {result.seconds:.1f} s"
    )


@show.register
def _(result: Copied, out: Console) -> None:
    kept = f", {result.kept:,} were there already" if result.kept else ""
    rate = result.bytes / result.seconds if result.seconds else 0
    out.print(
        f"{result.out}: {result.files:,} files copied{kept}, {size(result.bytes)} in "
        f"{result.seconds:.1f} s ({size(rate)}/s)"
    )


@show.register
def _(result: Difference, out: Console) -> None:
    one, other = result.urls
    rows = [
        ("samples", *result.samples),
        ("shards", *result.shards),
        ("format", *(", ".join(names) for names in result.formats)),
        ("columns of its own", *(_named(columns) for columns in result.columns_only)),
        ("samples of its own", *result.only),
    ]
    out.print(table("", f">{one}", f">{other}", rows=rows))
    for url, count, ids in zip(result.urls, result.only, result.only_ids, strict=True):
        if count:
            out.print(f"only in {url}: {_ids(ids, count)}")
    if result.moved:
        out.print(f"at other numbers: {result.moved:,} samples")
    if result.changed:
        out.print(f"numbers with different samples: {_ids(result.changed, None)}")
    if not result.compared and result.samples != (0, 0):
        out.print("no column was compared: none has the same name")
    out.print(_verdict(result.ok, "the same samples in the same order", "DIFFERENT"))


def _named(columns: list[Column]) -> str:
    return ", ".join(f"{c.name} ({c.encoding})" for c in columns) or "none"


def _ids(ids: list[int], count: int | None) -> str:
    listed = ", ".join(map(str, ids[:20]))
    more = len(ids) > 20 or (count is not None and count > len(ids))
    total = "" if count is None else f" ({count:,} in all)"
    return f"{listed}{' …' if more else ''}{total}"


@show.register
def _(result: State, out: Console) -> None:
    for found in result.datasets:
        out.print(f"data set's state at {text(found.where)}", style="bold")
        out.print(_facts((f"  {text(name)}", value) for name, value in found.values.items()))
        if found.problem:
            out.print(f"  it can't be loaded: {text(found.problem)}")
    if result.entries:
        out.print(f"{result.kind} file with")
        out.print(_facts((f"  {text(entry.name)}", entry.what) for entry in result.entries))
    if not result.datasets:
        out.print(f"{result.url} holds no state of a data set")


@show.register
def _(result: Doctor, out: Console) -> None:
    _checks("this machine", result.machine, out)
    if result.url is not None:
        _checks(result.url, result.dataset, out)
    advised = [check for check in [*result.machine, *result.dataset] if check.advice]
    for check in advised:
        out.print(f"{check.status if check.status != 'ok' else 'hint'}: {check.name}: ", end="")
        out.print(text(check.advice))


def _checks(title: str, checks: list[Check], out: Console) -> None:
    out.print(title, style="bold")
    marks = {"ok": " ", "warning": "!", "error": "✗"}
    rows = ((marks[check.status], check.name, check.value) for check in checks)
    out.print(table("", "what", "found", rows=rows))


@show.register
def _(result: Bench, out: Console) -> None:
    rows = (
        (
            rate.what,
            f"{rate.samples_per_s:,.0f}",
            f"{size(rate.bytes_per_s)}/s",
            "" if rate.first_s is None else f"{rate.first_s:.2f} s",
            f"{rate.samples:,} in {rate.seconds:.2f} s{'' if rate.complete else ' (a part)'}",
        )
        for rate in result.rates
    )
    out.print(table("reading", ">samples/s", ">bytes/s", ">first after", ">samples", rows=rows))
    if result.share is not None:
        out.print(f"The loader reads at {result.share:.0%} of the speed of bare reading.")


@show.register
def _(result: Report, out: Console) -> None:
    again = f", {result.resumed_parts:,} of them done before" if result.resumed_parts else ""
    rate = result.rows / result.seconds if result.seconds else 0.0
    out.print(
        f"{result.out}: {result.samples:,} samples in {result.shards:,} shards "
        f"({size(result.bytes)}) of {result.rows:,} rows, {result.parts:,} parts{again}; "
        f"{result.seconds:.1f} s, {rate:,.0f} rows/s"
    )
    if result.version is not None:
        out.print(
            f"The data set has {result.total_samples:,} samples; its old index is {result.version}"
        )
    out.print(table("column", "encoding", rows=sorted(result.columns.items())))
    if result.skipped:
        out.print(f"{len(result.skipped):,} samples were left out:")
        rows = ((one.label, one.row, one.reason) for one in result.skipped[:_MOST_PROBLEMS])
        out.print(table("part", ">row", "why", rows=rows))
