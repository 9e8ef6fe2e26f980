"""A report's plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.simulate.show import needs

if TYPE_CHECKING:
    from streaming.simulate.report import Report

__all__ = ["figures", "svg"]

BLUE, ORANGE, GREY = "#2563eb", "#ea580c", "#94a3b8"
MOST_BARS = 64


def figures(report: Report) -> dict[str, Any]:
    """The plots by their names: ``course`` (over time) and ``nodes`` (bytes by node and epoch)."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise needs("matplotlib") from error
    return {
        "course": _course(Figure(figsize=(9, 5.4)), report),
        "nodes": _nodes(Figure(figsize=(9, 2.8)), report),
    }


def _course(figure: Any, report: Report) -> Any:
    line, setup = report.timeline, report.setup
    end = line.seconds[-1] if line.seconds else 0.0
    unit, divisor = ("s", 1.0) if end < 300 else ("min", 60.0) if end < 18_000 else ("h", 3600.0)
    at = [each / divisor for each in line.seconds]
    axes = figure.subplots(3, 1, sharex=True)
    panels = [
        (line.samples_per_s, "samples/s", BLUE),
        ([each / 1e6 for each in line.bytes_per_s], "MB/s a node\nreceives", BLUE),
        ([100 * each for each in line.waited], "% of the time\nwaited for data", ORANGE),
    ]
    for axis, (values, label, color) in zip(axes, panels, strict=True):
        axis.fill_between(at, values, step="pre", color=color, alpha=0.25, linewidth=0)
        axis.step(at, values, where="pre", color=color, linewidth=1.2)
        axis.set_ylabel(label, fontsize=8)
        axis.set_ylim(bottom=0)
        _plain(axis)
    if setup.step_s:
        most = setup.global_batch / setup.step_s
        axes[0].set_ylim(0, 1.08 * max(most, *line.samples_per_s))
        axes[0].axhline(most, color=GREY, linestyle="--", linewidth=1)
        axes[0].set_title("dashed: what training could take", loc="right", fontsize=7, color=GREY)
    axes[2].set_ylim(0, 100)
    axes[2].set_xlabel(unit if line.is_whole else f"{unit} (the simulated parts)", fontsize=8)
    for number, start in enumerate(line.starts):
        for axis in axes if number else ():
            axis.axvline(start / divisor, color=GREY, linewidth=0.8, linestyle=":")
        axes[1].annotate(
            f"epoch {number}",
            (start / divisor, 1.0),
            xycoords=("data", "axes fraction"),
            fontsize=7,
            color=GREY,
            xytext=(3, 2),
            textcoords="offset points",
        )
    figure.tight_layout()
    return figure


def _nodes(figure: Any, report: Report) -> Any:
    axis = figure.subplots()
    nodes = range(min(report.setup.nodes, MOST_BARS))
    below = [0.0] * len(nodes)
    shades = [BLUE, "#60a5fa", "#93c5fd", "#bfdbfe", "#dbeafe"]
    for number, epoch in enumerate(report.epochs):
        heights = [epoch.nodes[node].bytes / 1e9 for node in nodes]
        if not any(heights):
            continue
        color = shades[min(number, len(shades) - 1)]
        axis.bar(list(nodes), heights, 0.8, bottom=below, color=color, label=f"epoch {number}")
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axis.set_xlabel("node", fontsize=8)
    axis.set_ylabel("GB fetched", fontsize=8)
    axis.set_xticks(list(nodes)[:: max(1, len(nodes) // 16)])
    axis.set_xlim(-0.8, max(len(nodes), 4) - 0.2)
    _plain(axis)
    if any(below):
        axis.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    figure.tight_layout()
    return figure


def _plain(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
    axis.margins(x=0)


def svg(figure: Any) -> str:
    """A figure as SVG that can stand in a page."""
    import io

    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "plan", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]
