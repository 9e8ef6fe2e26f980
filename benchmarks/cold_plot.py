"""Draw what ``make bench-cold`` has written as JSON.

python benchmarks/cold_plot.py RESULTS.json docs/images/cold.svg
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

READERS = ["shardstream", "mosaicml-streaming", "litdata"]
PANELS = [("mb_s", "MB/s of samples"), ("first_batch_s", "seconds to the first batch")]


def median(runs: list[Any], column: str) -> float:
    """The median of a column of runs; not a number where none succeeded."""
    values = [run[column] for run in runs if "error" not in run]
    return statistics.median(values) if values else float("nan")


def main() -> None:
    source, out = map(Path, sys.argv[1:])
    results = json.loads(source.read_text())
    networks = [n for n in ("limited", "unlimited") if any(c.startswith(f"{n},") for c in results)]
    # The same text, and the same names within the drawing, whenever it is drawn.
    mpl.rcParams.update({"svg.hashsalt": "cold", "font.size": 9})
    size = (10, 3.6 * len(networks))
    figure, axes = plt.subplots(len(networks), len(PANELS), figsize=size, squeeze=False)
    for row, network in zip(axes, networks, strict=True):
        cases = sorted(
            (case for case in results if case.startswith(f"{network},")),
            key=lambda case: (case.split(", ")[1], int(case.split(", ")[2].split()[0])),
        )
        labels = [case.split(", ", 1)[1].replace(", ", "\n") for case in cases]
        for axis, (column, title) in zip(row, PANELS, strict=True):
            for number, reader in enumerate(READERS):
                heights = [median(results[case].get(reader, []), column) for case in cases]
                places = [at + (number - 1) * 0.27 for at in range(len(cases))]
                bars = axis.bar(places, heights, 0.26, label=reader)
                axis.bar_label(bars, fmt="%.3g", fontsize=6)
            axis.set_yscale("log")
            axis.set_xticks(range(len(cases)), labels, fontsize=7)
            axis.set_title(f"{network}: {title}")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=len(READERS), frameon=False)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
