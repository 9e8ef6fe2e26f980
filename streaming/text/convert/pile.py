"""The Pile: `in_root/train/00.jsonl.zst` to `29`, and `val.jsonl.zst` and `test.jsonl.zst`.

They may be decompressed as well. Columns: `text`, and `pile_set_name`, which of its sources the
text is from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from streaming.convert.open import open_source
from streaming.convert.ready import add_writing, convert_splits, main, new_parser
from streaming.convert.source import Source

COLUMNS = {"text": "str", "pile_set_name": "str"}
ENDINGS = (".jsonl", ".jsonl.zst", ".jsonl.gz")


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """A document as a sample.

    Args:
        row: Its `text`, and `meta` with `pile_set_name`.
    """
    return {"text": row["text"], "pile_set_name": row["meta"]["pile_set_name"]}


def source(root: str, split: str) -> Source:
    """The documents of a split.

    Args:
        root: The data set's folder.
        split: "train", "val" or "test".

    Raises:
        FileNotFoundError: If there are no such files.
    """
    folder, stem = (Path(root, "train"), "*") if split == "train" else (Path(root), split)
    for ending in ENDINGS:  # not both a file and what it was decompressed to
        files = sorted(map(str, folder.glob(f"{stem}{ending}")))
        if files:
            return open_source(files, format="jsonl")
    raise FileNotFoundError(f"there is no {stem}.jsonl.zst in {folder}")


def run(argv: Sequence[str] | None = None) -> None:
    """Convert, as the command line says."""
    parser = new_parser(__doc__, "in_root", "out_root")
    add_writing(parser, size_limit=1 << 27, compression="zstd:16", progress=False)
    args = parser.parse_args(argv)
    sources = {split: partial(source, args.in_root, split) for split in ("train", "val", "test")}
    convert_splits(args, sources, args.out_root, columns=COLUMNS, transform=flat)


if __name__ == "__main__":
    main(run)
