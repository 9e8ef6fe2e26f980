"""Random images in the shape of CIFAR-10, for measuring: columns `i`, `x` and `y`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from streaming.convert.items import Items
from streaming.convert.ready import add_writing, convert_splits, main, new_parser
from streaming.convert.source import Sample, Unreadable
from streaming.vision.convert.cifar10 import COLUMNS, PIXELS

CLASSES = 10


def load(number: int, seed: int) -> Iterator[Sample | Unreadable]:
    """A sample of random pixels and a random class.

    Args:
        number: Its number.
        seed: Another one gives other pixels.
    """
    from PIL import Image

    random = np.random.default_rng((seed, number))
    pixels = random.integers(0, 256, (32, 32, 3), np.uint8)
    yield {"i": number, "x": Image.fromarray(pixels), "y": int(random.integers(CLASSES))}


def source(count: int, seed: int) -> Items:
    """So many images."""
    return Items(
        f"random images, seed {seed}",
        COLUMNS,
        range(count),
        partial(load, seed=seed),
        sizes=[PIXELS] * count,
        part_bytes=1 << 23,
    )


def run(argv: Sequence[str] | None = None) -> None:
    """Make them, as the command line says."""
    parser = new_parser(__doc__)
    parser.add_argument("--out", default="/tmp/fake_cifar10/", help="a folder or a URL")
    parser.add_argument("--num_train", type=int, default=1 << 20, help="images of train")
    parser.add_argument("--num_val", type=int, default=1 << 17, help="images of val")
    add_writing(parser, size_limit=1 << 24)
    args = parser.parse_args(argv)
    counts = {"train": args.num_train, "val": args.num_val}
    sources = {
        split: partial(source, count, seed) for seed, (split, count) in enumerate(counts.items())
    }
    convert_splits(args, sources, args.out)


if __name__ == "__main__":
    main(run)
