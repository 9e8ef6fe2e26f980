"""How well each shuffle mixes, and what that costs: the numbers of docs/ordering.md.

For each algorithm, over some epochs of equal shards on one canonical node:

* need: shards at hand at a time (used before, and to be used again), the most and the mean;
* spread: how far a shard's samples lie apart, as the standard deviation of their places;
* diversity: distinct shards in a window of consecutive samples;
* neighbours: how often two samples in a row are of one shard, relative to a shuffle of everything;
* downloads: the most shards that come in a short time, relative to the mean: of one canonical node,
  and of several that advance together. The time is an eighth of a block.
"""

import argparse
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.order import get_shuffle
from streaming.simulate.quality import diversity

Ints = NDArray[np.int64]


def measure(algo: str, shards: int, size: int, block: int, epochs: int, nodes: int) -> Any:
    """The metrics of an algorithm, averaged over epochs."""
    found = []
    for epoch in range(epochs):
        order = get_shuffle(algo, np.full(shards, size), 1, 9176, epoch, block) // size
        several = get_shuffle(algo, np.full(shards * nodes, size), nodes, 9176, epoch, block)
        inner = slice(block, len(order) - block)  # every algorithm is another one at the ends
        first, last, spread = places(order, shards, inner)
        at_hand = np.cumsum(
            np.bincount(first, minlength=len(order) + 1)
            - np.bincount(last + 1, minlength=len(order) + 1)
        )[:-1]
        of_one = coming(order, block // 8)
        of_all = sum(coming(each, block // 8) for each in (several // size).reshape(nodes, -1))
        found.append(
            {
                "need, most": at_hand.max(),
                "need, mean": at_hand[inner].mean(),
                "spread": spread,
                "diversity": diversity(order[inner], 512),
                "neighbours": (np.diff(order[inner]) == 0).mean() * (len(order) - 1) / (size - 1),
                "downloads": of_one.max() / max(of_one.mean(), 1e-9),
                f"downloads of {nodes}": of_all.max() / max(of_all.mean(), 1e-9),
            }
        )
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}


def places(order: Ints, shards: int, inner: slice) -> tuple[Ints, Ints, float]:
    """Each shard's first and last place, and the standard deviation of a shard's places."""
    by_shard = np.argsort(order, kind="stable").reshape(shards, -1)
    middle = by_shard.mean(axis=1)
    counted = by_shard[(middle >= inner.start) & (middle < inner.stop)]
    return by_shard[:, 0], by_shard[:, -1], float(np.sqrt(counted.var(axis=1).mean()))


def coming(order: Ints, step: int) -> Any:
    """How many shards come in each step of an order, its first and last ones left out."""
    _, first = np.unique(order, return_index=True)
    return np.bincount(first // step, minlength=len(order) // step)[8:-8]


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--size", type=int, default=500, help="samples of a shard")
    parser.add_argument("--block", type=int, default=50_000, help="samples of a shuffle block")
    parser.add_argument("--nodes", type=int, default=8, help="canonical nodes for the last column")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    def row(algo: str, block: int = arguments.block) -> dict[str, float]:
        shape = arguments.shards, arguments.size, block, arguments.epochs, arguments.nodes
        return measure(algo, *shape)

    rows = {algo: row(algo) for algo in ("py1e", "py1br", "blockwise", "py1s", "naive")}
    for which in "mean", "most":
        ratio = rows["py1br"][f"need, {which}"] / rows["blockwise"][f"need, {which}"]
        block = round(arguments.block * ratio)
        rows[f"blockwise, block {block:,}"] = row("blockwise", block)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    names = list(rows["py1e"])
    print("| | " + " | ".join(names) + " |")
    print("|---|" + "--:|" * len(names))
    for algo, row in rows.items():
        print(f"| `{algo}` | " + " | ".join(f"{row[name]:,.2f}" for name in names) + " |")


if __name__ == "__main__":
    main()
