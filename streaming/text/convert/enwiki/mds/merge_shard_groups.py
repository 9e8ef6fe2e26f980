"""Copies the shards of data sets in folders below `in_root` into one folder, under one index.

What `make_train_parallel` writes is one data set already. This is for groups that were made by
mosaicml-streaming, and for whoever wants all files in one folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming.convert.ready import main, new_parser
from streaming.format.replace import FILE_KEYS, write_atomically


def merge(in_root: str, out_root: str) -> int:
    """Copy the shards.

    Args:
        in_root: Has a data set in each of its folders; they are taken in the order of their names.
        out_root: An empty or new folder.

    Returns:
        How many shards there are.

    Raises:
        FileExistsError: If `out_root` is not empty.
        FileNotFoundError: If `in_root` has no data sets.
    """
    indexes = sorted(Path(in_root).glob("*/index.json"))
    if not indexes:
        raise FileNotFoundError(f"{in_root} has no folders with data sets")
    out = Path(out_root)
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise FileExistsError(f"{out_root} is not empty; name another folder")
    shards: list[dict[str, Any]] = []
    for index in indexes:
        for shard in json.loads(index.read_bytes())["shards"]:
            shards.append(_renamed(shard, len(shards), index.parent, out))
    data = json.dumps({"version": 2, "shards": shards}, sort_keys=True).encode()
    write_atomically(out / "index.json", data)
    return len(shards)


def _renamed(shard: dict[str, Any], number: int, folder: Path, out: Path) -> dict[str, Any]:
    """Copy the files of a shard that are there; return its entry under its new number."""
    for key in FILE_KEYS:
        info = shard.get(key)
        if info:
            old = os.path.basename(info["basename"])
            new = f"shard.{number:05}.{old.split('.', 2)[2]}"
            if (folder / info["basename"]).exists():
                shutil.copyfile(folder / info["basename"], out / new)
            info["basename"] = new
    return shard


def run(argv: Sequence[str] | None = None) -> None:
    """Merge, as the command line says."""
    args = new_parser(__doc__, "in_root", "out_root").parse_args(argv)
    print(f"{merge(args.in_root, args.out_root)} shards in {args.out_root}")


if __name__ == "__main__":
    main(run)
