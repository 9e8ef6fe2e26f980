"""Fetches WebVid's videos and writes them into shards.

The list is a CSV file with the columns videoid, contentUrl, duration, page_dir, name and, perhaps,
page_idx. Samples have the same ones, `duration` in seconds, and the video itself as `content`.
Videos that can't be fetched are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from streaming.convert.items import Items
from streaming.convert.ready import main, new_parser
from streaming.convert.run import convert
from streaming.multimodal.convert.webvid.videos import read_rows, videos


def crawl(source: Items, out: str, num_procs: int) -> None:
    """Fetch and write videos.

    Args:
        source: The videos.
        out: A folder or a URL.
        num_procs: How many are fetched at once, at most.
    """
    # A process waits for a server most of the time, so there are more of them than cores.
    source.part_bytes = min(source.part_bytes, max(1, len(source.items) // num_procs))
    report = convert(source, out, workers=num_procs, on_error="skip", max_errors=None)
    for skipped in report.skipped:
        print(f"left out: {skipped.reason}", file=sys.stderr)


def run(argv: Sequence[str] | None = None) -> None:
    """Crawl, as the command line says."""
    parser = new_parser(__doc__)
    parser.add_argument("--in", required=True, help="the CSV file")
    parser.add_argument("--out_root", required=True, help="a folder or a URL")
    parser.add_argument("--num_procs", type=int, default=64, help="videos at once (default: 64)")
    parser.add_argument("--limit", type=int, default=-1, help="only so many rows of the list")
    args = parser.parse_args(argv)
    path = getattr(args, "in")
    crawl(videos(f"videos of {path}", read_rows(path, args.limit)), args.out_root, args.num_procs)


if __name__ == "__main__":
    main(run)
