"""English Wikipedia as MLPerf prepares it: `in_root/part-00000-of-00500` and so on, `eval.txt`.

Each line that is not blank is a sample; its column is `text`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from streaming.convert.items import Items
from streaming.convert.ready import add_writing, convert_splits, main, new_parser
from streaming.convert.source import Sample, Unreadable

COLUMNS = {"text": "str"}
FILES = {"train": "part-*-of-*", "val": "eval.txt"}


def load(path: str) -> Iterator[Sample | Unreadable]:
    """The lines of a file."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            text = line.strip()
            if text:
                yield {"text": text}


def source(root: str, split: str) -> Items:
    """The lines of a split, file by file.

    Args:
        root: The folder of the files.
        split: "train" or "val".

    Raises:
        ValueError: If files are missing.
    """
    files = sorted(map(str, Path(root).glob(FILES[split])))
    if files and split == "train":
        wanted = int(files[0].rpartition("-of-")[2])
        if len(files) != wanted:
            raise ValueError(f"{root} has {len(files)} files {FILES[split]}, not {wanted}")
    sizes = [os.path.getsize(path) for path in files]
    return Items(f"lines of {FILES[split]} in {root}", COLUMNS, files, load, sizes=sizes)


def run(argv: Sequence[str] | None = None) -> None:
    """Convert, as the command line says."""
    parser = new_parser(__doc__, "in_root", "out_root")
    add_writing(parser, size_limit=1 << 25, compression="zstd:7")
    args = parser.parse_args(argv)
    sources = {split: partial(source, args.in_root, split) for split in FILES}
    convert_splits(args, sources, args.out_root)


if __name__ == "__main__":
    main(run)
