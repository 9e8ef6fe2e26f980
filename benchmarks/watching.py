"""What it costs to see where the time goes: ``make bench-watching``.

Reads a data set on disk again and again, one epoch with the clocks and counters of ``stats()`` and
one without, in turn, in one process; the ratio of what the CPU took is the cost.

    python benchmarks/watching.py [--rounds 15] [--json FILE]
"""

import argparse
import json
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
from streaming.stopwatch import Demand, Stopwatch

SAMPLES = {"tokens": 20_000, "small": 200_000}
LOADERS: dict[str, Callable[..., Iterable[Any]]] = {
    "StreamingDataLoader": StreamingDataLoader,
    "DataLoader": DataLoader,
}


class Untimed(Stopwatch):
    """Counts samples, and times nothing."""

    def planned(self, blocks: Iterator[Any]) -> Iterator[Any]:
        return blocks

    def made(self, source: Any, ids: Any) -> Iterator[Any]:
        if hasattr(source, "batches"):
            return source.batches(ids)  # type: ignore[no-any-return]
        return source.read_each(ids)  # type: ignore[no-any-return]

    def done(self, samples: int) -> None:
        pass

    def count(self, samples: int) -> None:
        self._counters.add(samples=samples)

    def hand_over(self) -> None:
        pass


def nothing(self: Any, begun: int, ended: int) -> None:
    pass


@contextmanager
def unwatched() -> Iterator[None]:
    with (
        mock.patch("streaming.dataset.SampleTimes", Untimed),
        mock.patch("streaming.dataset.BatchTimes", Untimed),
        mock.patch.object(Demand, "waited", nothing),
    ):
        yield


@contextmanager
def watched() -> Iterator[None]:
    yield


WAYS = {"watched": watched, "unwatched": unwatched}


def epoch(loader: Iterable[Any], count: int) -> float:
    """Microseconds of the CPU for each sample of an epoch."""
    started = time.process_time()
    for _ in loader:
        pass
    return (time.process_time() - started) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
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
        print(
            f"{name}: {medians['watched']:.2f} µs a sample, {medians['unwatched']:.2f} unwatched: "
            f"{statistics.median(ratios) - 1:+.1%}"
        )
    if args.json:
        args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
