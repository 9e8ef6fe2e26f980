"""What it costs to see where the time goes: ``make bench-watching``.

Reads a data set on disk again and again, one epoch with the clocks and counters of ``stats()`` and
one without, in turn, in one process. The cost is the median of the ratios of what the CPU took in
each pair; as single ratios differ by far more than the cost, many pairs are needed, and the median
is told with the range that holds it 95 times in 100.

    python benchmarks/watching.py [--rounds 400] [--json FILE]
"""

import argparse
import gc
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from hot_data import samples
from hot_reader import BATCH_SIZE, mds_dataset, mds_write
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader
from streaming.batches import BatchMaker
from streaming.stats import Counters
from streaming.stopwatch import Demand, Stopwatch

SAMPLES = {"tokens": 10_000, "small": 50_000}
LOADERS: dict[str, Callable[..., Iterable[Any]]] = {
    "StreamingDataLoader": StreamingDataLoader,
    "DataLoader": DataLoader,
}


class Untimed(Stopwatch):
    """Counts samples, and times nothing."""

    def planned(self, blocks: Iterator[Any]) -> Iterator[Any]:
        return blocks

    def hand_over(self) -> None:
        pass


class UntimedSamples(Untimed):
    def made(self, dataset: Any, ids: Any) -> Iterator[Any]:
        return dataset.read_each(ids)  # type: ignore[no-any-return]


class UntimedBatches(Untimed):
    def __init__(self, counters: Counters, maker: BatchMaker) -> None:
        super().__init__(counters)
        self._maker = maker

    def made(self, batches: Any) -> Iterator[Any]:
        return self._maker.batches(batches)


def nothing(self: Any, begun: int, ended: int) -> None:
    pass


@contextmanager
def unwatched() -> Iterator[None]:
    with (
        mock.patch("streaming.dataset.SampleTimes", UntimedSamples),
        mock.patch("streaming.dataset.BatchTimes", UntimedBatches),
        mock.patch.object(Demand, "waited", nothing),
    ):
        yield


@contextmanager
def watched() -> Iterator[None]:
    yield


WAYS = {"watched": watched, "unwatched": unwatched}


def epoch(loader: Iterable[Any], count: int) -> float:
    """Microseconds of the CPU for each sample of an epoch."""
    gc.collect()  # what the epoch before left is not this one's cost
    started = time.process_time()
    for _ in loader:
        pass
    return (time.process_time() - started) / count * 1e6


def median_within(values: list[float]) -> tuple[float, float, float]:
    """The median, and the ends of its 95 % confidence interval by order statistics."""
    ranked = sorted(values)
    middle, reach = len(ranked) / 2, 0.98 * math.sqrt(len(ranked))
    low, high = max(0, math.floor(middle - reach)), min(len(ranked) - 1, math.ceil(middle + reach))
    return statistics.median(ranked), ranked[low], ranked[high]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for workload, count in SAMPLES.items():
            out = Path(folder) / workload
            mds_write(workload, out, list(samples(workload, count, out)))
            for name, kind in LOADERS.items():
                loader = kind(mds_dataset(workload, out), batch_size=BATCH_SIZE)
                epoch(loader, count)
                case = found.setdefault(f"{workload}, {name}", {way: [] for way in WAYS})
                for number in range(args.rounds):
                    for way in sorted(WAYS, reverse=bool(number % 2)):
                        with WAYS[way]():
                            case[way].append(epoch(loader, count))
    for name, case in found.items():
        medians = {way: statistics.median(each) for way, each in case.items()}
        ratios = [a / b for a, b in zip(case["watched"], case["unwatched"], strict=True)]
        cost, low, high = (each - 1 for each in median_within(ratios))
        print(
            f"{name}: {medians['watched']:.2f} µs a sample, {medians['unwatched']:.2f} unwatched: "
            f"{cost:+.1%} ({low:+.1%} to {high:+.1%})"
        )
    if args.json:
        args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
