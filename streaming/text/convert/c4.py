"""C4: files of JSON lines, `c4-train.00000-of-01024.json.gz`, `c4-validation.….json.gz`.

They are read from the folder `--in_root`, or from the data set's place at Hugging Face. Columns:
`text`, `timestamp`, `url`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from streaming.convert.open import open_source
from streaming.convert.ready import add_writing, convert_splits, join, listed, main, new_parser
from streaming.convert.source import Source

COLUMNS = {"text": "str", "timestamp": "str", "url": "str"}
IN_ROOT = "hf://datasets/allenai/c4/en"
FILES = {"train": "c4-train.*.json.gz", "val": "c4-validation.*.json.gz"}


def source(root: str, split: str) -> Source:
    """The documents of a split.

    Args:
        root: A folder or a URL.
        split: "train" or "val".

    Raises:
        ValueError: If there is no such split.
    """
    if split not in FILES:
        raise ValueError(f"split is {split!r}; it must be one of {', '.join(FILES)}")
    return open_source(join(root, FILES[split]), format="jsonl")


def run(argv: Sequence[str] | None = None) -> None:
    """Convert, as the command line says."""
    parser = new_parser(__doc__, "out_root")
    parser.add_argument("--in_root", default=IN_ROOT, help=f"default: {IN_ROOT}")
    parser.add_argument("--batch_size", type=int, default=512, help="no effect")
    add_writing(parser, size_limit=1 << 27, compression="zstd:7", splits="train,val")
    args = parser.parse_args(argv)
    sources = {split: partial(source, args.in_root, split) for split in listed(args.splits)}
    convert_splits(args, sources, args.out_root, columns=COLUMNS)


if __name__ == "__main__":
    main(run)
