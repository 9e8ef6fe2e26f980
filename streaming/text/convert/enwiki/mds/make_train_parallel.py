"""Masked samples out of Wikipedia's files, `in_root/part-00000-of-00500` and so on.

Each file is a part, converted on its own, and all of them are one data set in `out_root`. The
columns are `streaming.text.convert.enwiki.mds.create_pretraining_data.COLUMNS`; read them by
`streaming.text.StreamingEnWiki`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from functools import partial

from streaming.convert.items import Items
from streaming.convert.ready import add_writing, listed, main, new_parser
from streaming.convert.run import convert
from streaming.convert.source import Sample, Unreadable
from streaming.text.convert.enwiki.mds.create_pretraining_data import (
    COLUMNS,
    Masking,
    pretraining_samples,
    read_documents,
)
from streaming.text.convert.enwiki.mds.tokenization import Vocabulary


def load(
    path: str, vocabulary: Vocabulary, masking: Masking, seed: int
) -> Iterator[Sample | Unreadable]:
    """The samples of a file.

    Args:
        path: The file.
        vocabulary: What tokenizes it.
        masking: How samples are made.
        seed: Together with the file's name, it determines them.
    """
    with open(path, encoding="utf-8") as file:
        documents = read_documents(file, vocabulary)
    name = f"{seed} {os.path.basename(path)}"
    yield from pretraining_samples(documents, vocabulary, masking, name)


def source(args: argparse.Namespace) -> Items:
    """The files, each a part."""
    names = [args.in_pattern % number for number in range(args.in_num_shards)]
    files = [os.path.join(args.in_root, name) for name in names]
    missing = [name for name, path in zip(names, files, strict=True) if not os.path.exists(path)]
    if missing:
        raise FileNotFoundError(f"{args.in_root} has no {missing[0]}; {len(missing)} are missing")
    masking = Masking(
        max_seq_length=args.max_seq_length,
        max_predictions_per_seq=args.max_predictions_per_seq,
        dupe_factor=args.dupe_factor,
        masked_lm_prob=args.masked_lm_prob,
        short_seq_prob=args.short_seq_prob,
    )
    vocabulary = Vocabulary(args.vocab_file, bool(args.do_lower_case))
    work = partial(load, vocabulary=vocabulary, masking=masking, seed=args.random_seed)
    # The settings are in the name so that a run with others does not go on with this one's parts.
    name = f"Wikipedia in {args.in_root}, {masking}, seed {args.random_seed}, {args.vocab_file}"
    return Items(name, COLUMNS, files, work, part_bytes=1)


def run(argv: Sequence[str] | None = None) -> None:
    """Convert, as the command line says."""
    parser = new_parser(__doc__, "in_root", "out_root")
    add = parser.add_argument
    add("--in_pattern", default="part-%05d-of-00500", help="the files' names")
    add("--in_num_shards", type=int, default=500, help="how many files there are")
    add("--out_pattern", default="group-%03d", help="no effect: folders are numbered")
    add_writing(parser, size_limit=1 << 27, compression="zstd:16", hashes="sha1,xxh3_64")
    add("--vocab_file", default="vocab.txt", help="the vocabulary of BERT")
    add("--do_lower_case", type=int, default=1, help="1 for an uncased vocabulary")
    add("--max_seq_length", type=int, default=512, help="tokens in a sample")
    add("--max_predictions_per_seq", type=int, default=20, help="most masked tokens in a sample")
    add("--random_seed", type=int, default=12345, help="another one makes other samples")
    add("--dupe_factor", type=int, default=10, help="how often a document is gone through")
    add("--masked_lm_prob", type=float, default=0.15, help="share of tokens that are masked")
    add("--short_seq_prob", type=float, default=0.1, help="share of samples that are shorter")
    args = parser.parse_args(argv)
    convert(
        source(args),
        args.out_root,
        compression=args.compression or None,
        hashes=listed(args.hashes),
        size_limit=args.size_limit,
        workers=args.workers,
        resume=bool(args.resume),
        progress=bool(args.progress_bar),
    )


if __name__ == "__main__":
    main(run)
