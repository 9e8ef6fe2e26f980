"""Picks samples of a data set, evenly spaced, for evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

from streaming.convert.items import Items
from streaming.convert.ready import add_writing, listed, main, new_parser
from streaming.convert.run import convert
from streaming.convert.source import Sample, Unreadable
from streaming.local import LocalDataset


@lru_cache(maxsize=1)
def _dataset(root: str) -> LocalDataset:
    return LocalDataset(root)


def load(at: int, root: str) -> Iterator[Sample | Unreadable]:
    """The sample of a number."""
    yield _dataset(root)[at]


def source(root: str, count: int) -> Items:
    """So many samples, the same distance apart.

    Args:
        root: The data set's folder.
        count: How many.

    Raises:
        ValueError: If there are not so many.
    """
    dataset = LocalDataset(root)
    if not 0 < count <= len(dataset):
        raise ValueError(f"{count} samples can't be picked: {root} has {len(dataset)}")
    reader: Any = dataset.shards[0]
    columns = dict(zip(reader.column_names, reader.column_encodings, strict=True))
    picked = [at * len(dataset) // count for at in range(count)]
    return Items(f"samples of {root}", columns, picked, partial(load, root=root), part_bytes=4096)


def run(argv: Sequence[str] | None = None) -> None:
    """Pick, as the command line says."""
    parser = new_parser(__doc__, "in_root", "out_root")
    add_writing(
        parser, size_limit=1 << 26, compression="zstd:16", hashes="sha1,xxh3_64", progress=False
    )
    parser.add_argument("--num_examples_to_pick", type=int, default=10_000, help="how many")
    args = parser.parse_args(argv)
    convert(
        source(args.in_root, args.num_examples_to_pick),
        args.out_root,
        compression=args.compression or None,
        hashes=listed(args.hashes),
        size_limit=args.size_limit,
        workers=args.workers,
        resume=bool(args.resume),
    )


if __name__ == "__main__":
    main(run)
