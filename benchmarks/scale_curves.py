"""Curves of what `scale.py` measured, for docs/performance-scale.md.

    python benchmarks/scale_curves.py FOLDER FILE [FILE ...]

Seconds of opening are the CPU's, summed over threads; those of planning are the ones that passed,
since what the first sample waits for is not all that is drawn.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

Row = dict[str, Any]
Line = tuple[str, Callable[[Row], bool], str]
"""What a line is of, which rows are its points, and the number that it shows."""


def _opened(which: str) -> Callable[[Row], bool]:
    return lambda row: row["which"] == which


OPENING = [
    [
        ("the first time on a node", _opened("first"), number),
        ("another process", _opened("again"), number),
        ("mosaicml-streaming", _opened("mosaicml-streaming"), number),
    ]
    for number in ("open_cpu_s", "peak_mb")
]


def _planned(algo: str, nodes: int, which: str) -> Callable[[Row], bool]:
    return lambda row: (row["algo"], row.get("nodes", 1), row["which"]) == (algo, nodes, which)


PLANNING = [
    [
        ("py1e, first process", _planned("py1e", 1, "first"), number),
        ("py1e, first process of the last of 64 nodes", _planned("py1e", 64, "first"), number),
        ("py1e, another process, or run", _planned("py1e", 1, "again"), number),
        ("blockwise", _planned("blockwise", 1, "first"), number),
        ("py1e, mosaicml-streaming", _planned("py1e", 1, "mosaicml-streaming"), number),
    ]
    for number in ("first_s", "peak_mb")
]


AXES = {
    "open_cpu_s": "seconds of the CPU",
    "first_s": "seconds",
    "peak_mb": "peak above the imports, MB",
}


def draw(rows: list[Row], lines: list[list[Line]], by: str, title: str) -> Any:
    """Two pictures side by side: seconds, and memory, both by a number of things."""
    figure, pictures = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for picture, kind in zip(pictures, lines, strict=True):
        for name, belongs, number in kind:
            points = sorted(
                (row[by], row[number]) for row in rows if belongs(row) and number in row
            )
            if points:
                marker = "x" if "mosaicml" in name else "o"
                style = "--" if "mosaicml" in name else "-"
                picture.plot(*zip(*points, strict=True), style, marker=marker, label=name)
        picture.set(xscale="log", yscale="log", xlabel=by, ylabel=AXES[kind[0][2]])
        picture.grid(alpha=0.3)
    pictures[0].legend(fontsize="small")
    figure.suptitle(title)
    return figure


def main() -> None:
    """Draw two files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()
    plt.rcParams.update({"svg.hashsalt": "scale", "svg.fonttype": "none"})
    rows = [row for file in arguments.files for row in json.loads(file.read_text())]
    for name, kind, lines, by, title in (
        ("scale-opening.svg", "open", OPENING, "shards", "Opening a data set"),
        ("scale-planning.svg", "plan", PLANNING, "samples", "Up to the first sample's number"),
    ):
        figure = draw([row for row in rows if row["kind"] == kind], lines, by, title)
        figure.savefig(arguments.folder / name, metadata={"Date": None})


if __name__ == "__main__":
    main()
