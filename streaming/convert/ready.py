"""What the ready data sets' converters share: their arguments, and how they run.

Each is a script, `python -m streaming.vision.convert.imagenet --in_root … --out_root …`, that makes
a data set of each split. Stopped at any moment and started again, it goes on where it was.
"""

from __future__ import annotations

import argparse
import posixpath
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streaming.convert.commit import Report
from streaming.convert.ledger import INDEX, Ledger
from streaming.convert.run import convert

__all__ = ["add_writing", "convert_splits", "join", "listed", "main", "new_parser"]


def new_parser(description: str | None, *roots: str) -> argparse.ArgumentParser:
    """A parser of a converter's arguments.

    Args:
        description: What it converts; the module's docstring.
        roots: Names of required arguments that are folders: `in_root`, `out_root`.
    """
    parser = argparse.ArgumentParser(description=description)
    meaning = {
        "in_root": "the original data set's folder",
        "out_root": "a folder or a URL for ours",
    }
    for root in roots:
        parser.add_argument(f"--{root}", required=True, help=meaning.get(root))
    return parser


def add_writing(
    parser: argparse.ArgumentParser,
    *,
    size_limit: int,
    compression: str | None = None,
    hashes: str = "sha1,xxh64",
    splits: str | None = None,
    progress: bool = True,
) -> None:
    """Add the arguments that all converters have.

    Args:
        parser: The converter's.
        size_limit: The default for the most bytes of a shard.
        compression: The default compression.
        hashes: The default hashes.
        splits: The default splits, separated by commas; None if it has no such argument.
        progress: Whether it has arguments for a progress bar.
    """
    add = parser.add_argument
    if splits is not None:
        add("--splits", default=splits, help=f"splits to convert (default: {splits})")
    add("--compression", default=compression, help=f"of the shards (default: {compression})")
    add("--hashes", default=hashes, help=f"to keep of the shards' files (default: {hashes})")
    add(
        "--size_limit",
        type=int,
        default=size_limit,
        help=f"most bytes of a shard before compression (default: {size_limit})",
    )
    if progress:
        add("--progress_bar", type=int, default=1, help="1 shows a progress bar (default), 0 none")
        add("--leave", type=int, default=0, help="no effect: the bar stays")
    add("--workers", type=int, help="processes (default: one a core)")
    add("--resume", type=int, default=1, help="0 begins anew, not where a stopped run was")


def listed(text: str | None) -> list[str]:
    """The names in a list that is separated by commas.

    Example:
        >>> listed("sha1, xxh64"), listed("")
        (['sha1', 'xxh64'], [])
    """
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def join(root: str, *names: str) -> str:
    """A path or URL below another one."""
    return posixpath.join(root, *names)


def convert_splits(
    args: argparse.Namespace,
    sources: Mapping[str, Callable[[], Any]],
    out_root: str,
    **how: Any,
) -> dict[str, Report]:
    """Convert each split into a folder of its name.

    Args:
        args: What the parser of `add_writing` gave.
        sources: Makes the source of each split.
        out_root: A folder or a URL.
        **how: More arguments of `convert`.

    Returns:
        What was done, by split. Those that an earlier run has finished are left as they are.

    Raises:
        FileExistsError: If all splits are there already.
        Exception: Whatever `convert` raises.
    """
    done = [name for name in sources if _finished(join(out_root, name))]
    if done and len(done) == len(sources):
        raise FileExistsError(
            f"{out_root} has {', '.join(done)} already; name another place, or remove them"
        )
    reports = {}
    for name, source in sources.items():
        if name in done:
            print(f"{join(out_root, name)} is finished already", file=sys.stderr)
            continue
        reports[name] = convert(
            source(),
            join(out_root, name),
            compression=args.compression or None,
            hashes=listed(args.hashes),
            size_limit=args.size_limit or None,
            progress=bool(getattr(args, "progress_bar", 1)),
            workers=args.workers,
            resume=bool(args.resume),
            **how,
        )
    return reports


def _finished(out: str) -> bool:
    ledger = Ledger(out)
    return ledger.read(INDEX) is not None and ledger.job() is None


def main(run: Callable[[Sequence[str] | None], Any]) -> None:
    """Run a converter as a command: an error is one line.

    Args:
        run: The converter; None stands for the command line's arguments.
    """
    try:
        run(None)
    except (OSError, RuntimeError, ValueError, ImportError) as exc:
        sys.exit(f"{type(exc).__name__}: {exc}")
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command goes on where it was")
