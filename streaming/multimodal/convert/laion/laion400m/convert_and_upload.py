"""Converts LAION-400M while img2dataset downloads it, file after file, and uploads the shards.

A file `00000.parquet` of `--local` is complete when `00000_stats.json` is there. Each becomes a
data set `00000.mds` in `--remote`. When there is a file named `done` in `--local` and nothing is
left to do, one index makes a data set of them all, and the script ends. Columns are the file's own,
their names in lower case; rows whose image was not downloaded are left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming.convert.ledger import INDEX, Ledger
from streaming.convert.open import open_source
from streaming.convert.ready import join, listed, main, new_parser
from streaming.convert.run import convert
from streaming.format.merge import merge_index

COLUMNS = {
    **dict.fromkeys(("caption", "error_message", "exif", "key", "license", "nsfw"), "str"),
    **dict.fromkeys(("status", "url"), "str"),
    **dict.fromkeys(("height", "width", "original_height", "original_width"), "int32"),
    "similarity": "float64",
    "jpg": "bytes",
}
_EMPTY: dict[str, Any] = {"str": "", "int32": 0, "float64": float("nan")}


def sample(row: dict[str, Any]) -> dict[str, Any] | None:
    """A row as a sample; None if its image was not downloaded.

    Args:
        row: One of img2dataset's.
    """
    lower = {name.lower(): value for name, value in row.items()}
    if not lower.get("jpg"):
        return None
    made = {}
    for name, encoding in COLUMNS.items():
        value = lower.get(name)
        made[name] = _EMPTY[encoding] if value is None else value
    return made


def finished(local: str) -> list[str]:
    """The names of files that are complete, without their endings."""
    stats = Path(local).glob("*_stats.json")
    names = sorted(path.name.removesuffix("_stats.json") for path in stats)
    return [name for name in names if Path(local, f"{name}.parquet").exists()]


def convert_file(args: argparse.Namespace, name: str) -> None:
    """Convert and upload a file, unless that is done.

    Args:
        args: The command line's.
        name: The file's, without its ending.
    """
    path = Path(args.local, f"{name}.parquet")
    out = join(args.remote, f"{name}.mds")
    ledger = Ledger(out)
    if ledger.read(INDEX) is None or ledger.job() is not None:
        # As bytes also where some images are missing, which `sample` leaves out.
        source = open_source(str(path)).with_columns({"jpg": "bytes"})
        convert(
            source,
            out,
            transform=sample,
            columns=COLUMNS,
            hashes=listed(args.hashes),
            size_limit=None,
            workers=args.workers,
            progress=False,
        )
        print(f"{path} is in {out}", file=sys.stderr)
    if not args.keep_parquet:
        path.unlink()


def run(argv: Sequence[str] | None = None) -> None:
    """Convert and upload, as the command line says."""
    parser = new_parser(__doc__)
    parser.add_argument("--local", required=True, help="the folder that img2dataset writes to")
    parser.add_argument("--remote", required=True, help="a URL or folder for the data set")
    parser.add_argument("--keep_parquet", type=int, default=1, help="0 removes what is converted")
    parser.add_argument("--keep_mds", type=int, default=1, help="no effect: no copy is made")
    parser.add_argument("--hashes", default="sha1,xxh64", help="to keep of the shards' files")
    parser.add_argument("--poll_interval", type=float, default=30, help="seconds between looks")
    parser.add_argument("--workers", type=int, help="processes (default: one a core)")
    args = parser.parse_args(argv)
    done: list[str] = []
    while True:
        last = os.path.exists(os.path.join(args.local, "done"))
        new = [name for name in finished(args.local) if name not in done]
        for name in new:
            convert_file(args, name)
            done.append(name)
        if last:
            break
        if not new:
            time.sleep(args.poll_interval)
    _merge(args.remote)


def _merge(remote: str) -> None:
    """One index over all files' data sets, those of earlier runs as well."""
    keys = Ledger(remote).keys()
    parts = sorted({key.partition("/")[0] for key in keys if ".mds/" in key})
    if not parts:
        raise ValueError(f"there is nothing to merge in {remote}: no file was converted")
    merge_index([join(remote, part) for part in parts], remote)


if __name__ == "__main__":
    main(run)
