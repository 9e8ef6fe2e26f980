"""`shardstream merge`: one index over several data sets."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from streaming.cli.cp import cp
from streaming.cli.place import Access, open_place, root_of
from streaming.format.merge import merge_index
from streaming.storage import is_local, local_path

__all__ = ["Merged", "merge"]


@dataclass(frozen=True, slots=True)
class Merged:
    """A data set that was merged of others."""

    out: str
    parts: list[str]
    """The parts that were named; empty if all below `out` were taken."""
    copied: list[str]
    """Those that were copied to `out` first."""
    shards: int
    samples: int


def merge(
    out: str,
    parts: Sequence[str] = (),
    access: Access | None = None,
    *,
    copy: bool = False,
    workers: int | None = None,
) -> Merged:
    """Write an index over data sets that are below a folder, so that they are read as one.

    Args:
        out: The folder; its index is written.
        parts: The data sets, in the order that their samples shall have; all below `out` if none
            is named, by their names.
        access: How stores are reached.
        copy: Whether parts that are elsewhere are copied below `out`, under their own names.
        workers: How many files are copied at once.

    Returns:
        The merged data set.

    Raises:
        FileNotFoundError: If a part is not there, or there is none.
        FormatError: If a part is damaged, or two are in each other's way.
        StoreError: If something can't be read or written.
        ValueError: If a part is not below `out`, and not to be copied.

    Example:
        >>> import tempfile
        >>> from streaming import MDSWriter
        >>> folder = tempfile.mkdtemp()
        >>> for part in ("a", "b"):
        ...     with MDSWriter(out=f"{folder}/{part}", columns={"x": "int"}) as writer:
        ...         writer.write({"x": 1})
        >>> merge(folder).samples
        2
    """
    out, access = root_of(out), access or Access()
    roots, copied = [], []
    for part in map(root_of, parts):
        root = part
        if not _is_below(part, out):
            if not copy:
                raise ValueError(
                    f"{part} is not below {out}, where a merged index finds its shards; --copy "
                    "brings it there"
                )
            name = posixpath.basename(_absolute(part))
            root = f"{out}/{name}"
            cp(part, root, access, access, workers=workers)
            copied.append(part)
        roots.append(root)
    options = {} if is_local(out) else dict(access.options)
    more = {"download_timeout": access.timeout_s, "storage_options": options}
    if parts:
        merge_index(roots, out, **more)
    else:
        merge_index(out, **more)
    index = open_place(out, access).index
    return Merged(out, list(parts), copied, len(index), index.num_samples)


def _absolute(url: str) -> str:
    return os.path.realpath(local_path(url)).replace(os.sep, "/") if is_local(url) else url


def _is_below(part: str, out: str) -> bool:
    return _absolute(part).startswith(_absolute(out).rstrip("/") + "/")
