"""Fetches WebVid's videos whose captions have certain words, a data set for each word."""

from __future__ import annotations

import re
from collections.abc import Sequence

from streaming.convert.ready import join, listed, main, new_parser
from streaming.multimodal.convert.webvid.crawl_webvid import crawl
from streaming.multimodal.convert.webvid.videos import read_rows, videos

FILTERS = "plane,train,automobile,cat,dog"


def run(argv: Sequence[str] | None = None) -> None:
    """Crawl, as the command line says."""
    parser = new_parser(__doc__)
    parser.add_argument("--csv", required=True, help="the list of WebVid")
    parser.add_argument("--filters", default=FILTERS, help=f"words (default: {FILTERS})")
    parser.add_argument("--mds_root", required=True, help="a folder or URL for the data sets")
    parser.add_argument("--num_procs", type=int, default=64, help="videos at once (default: 64)")
    parser.add_argument("--limit", type=int, default=-1, help="only so many rows of the list")
    args = parser.parse_args(argv)
    rows = read_rows(args.csv, args.limit)
    for word in listed(args.filters):
        found = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
        chosen = [row for row in rows if found.search(row["name"])]
        source = videos(f"videos of {args.csv} with {word!r} in their captions", chosen)
        crawl(source, join(args.mds_root, word), args.num_procs)


if __name__ == "__main__":
    main(run)
