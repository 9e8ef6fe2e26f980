"""A report as a page that stands alone: no script, and nothing is fetched from elsewhere."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from streaming.simulate.figures import figures, svg
from streaming.simulate.show import facts, tables

if TYPE_CHECKING:
    from streaming.simulate.report import Report

__all__ = ["as_frame", "as_html"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #0f172a; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.25rem 1rem 0.25rem 0; border-bottom: 1px solid #e2e8f0;
  vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tiles { display: flex; flex-wrap: wrap; gap: 0.75rem; }
.tile { border: 1px solid #e2e8f0; border-radius: 0.5rem; padding: 0.5rem 0.9rem; }
.tile b { display: block; font-size: 1.05rem; } .tile span { color: #64748b; font-size: 0.8rem; }
.note { color: #64748b; font-size: 0.85rem; }
svg { max-width: 100%; height: auto; }
"""
_CAPTIONS = {"course": "How it goes on", "nodes": "What each node fetches"}


def as_html(report: Report) -> str:
    """The page."""
    setup = report.setup
    what = (
        f"{_counted(setup.nodes, 'node')} of {_counted(setup.ranks, 'rank')}, each with "
        f"{_counted(setup.workers, 'worker')} and batches of {setup.batch_size}, "
        f"{_counted(setup.epochs, 'epoch')}"
    )
    *shown, (_, note) = facts(report)
    tiles = "".join(
        f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b></div>'
        for name, value in shown
    )
    parts = [f"<h1>Plan of a run</h1><p>{escape(what)}</p>", f'<div class="tiles">{tiles}</div>']
    own = list(tables(report))
    parts += [_table(*table) for table in own if table[0] == "Suggestions"]
    for name, figure in figures(report).items():
        parts.append(f"<h2>{_CAPTIONS[name]}</h2>{svg(figure)}")
    parts += [_table(*table) for table in own if table[0] != "Suggestions"]
    parts.append(f'<p class="note">Simulated: {escape(note)}.</p>')
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Plan of a run</title><style>{_STYLE}</style></head>\n<body>{body}</body></html>\n"
    )


def as_frame(report: Report) -> str:
    """The page in a frame, for a notebook."""
    page = escape(as_html(report))
    return f'<iframe srcdoc="{page}" width="100%" height="900" style="border: 0"></iframe>'


def _counted(number: int, one: str) -> str:
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


def _table(title: str, headings: list[str], rows: list[list[str]]) -> str:
    kinds = [' class="number"' if heading.startswith(">") else "" for heading in headings]
    head = "".join(
        f"<th{kind}>{escape(heading.lstrip('>'))}</th>"
        for kind, heading in zip(kinds, headings, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<h2>{escape(title)}</h2><table><tr>{head}</tr>{body}</table>"
