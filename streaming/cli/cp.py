"""`shardstream cp`: a data set from one store to another, verified, its index last."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from streaming.cli.place import INDEX, Access, Place, open_place, read_index, root_of
from streaming.cli.transfer import ahead, default_workers, faults, fetch, receive
from streaming.format.errors import FormatError
from streaming.format.info import FileInfo
from streaming.format.replace import dataset_files
from streaming.storage import NotFound, Store, StoreError, is_local, local_path

__all__ = ["Copied", "cp", "refuse_same"]


@dataclass(frozen=True, slots=True)
class Copied:
    """A data set that was copied."""

    url: str
    out: str
    files: int
    """Files that were copied, the index among them."""
    bytes: int
    kept: int
    """Files that were there already, as they should be."""
    seconds: float


def cp(
    url: str,
    out: str,
    access: Access | None = None,
    out_access: Access | None = None,
    *,
    force: bool = False,
    resume: bool = False,
    workers: int | None = None,
) -> Copied:
    """Copy a data set. Every file is checked by size and hashes while it is read.

    What has arrived is asked for its size. The index is written last, so that nothing can be read
    as a data set before it is whole.

    Args:
        url: The data set.
        out: Where to: any place that can be written to.
        access: How the data set's store is reached.
        out_access: How the other one is reached.
        force: Whether a data set that is at `out` may be replaced; its index goes first.
        resume: Whether files that are at `out` are kept, if size and hash are right.
        workers: How many files are copied at once.

    Returns:
        What was copied.

    Raises:
        FileExistsError: If there is a data set at `out`.
        FileNotFoundError: If there is no data set, or a file of it is missing.
        FormatError: If a file is damaged; then no index is written.
        StoreError: If a file can't be read or written.
        ValueError: If both are one place.
    """
    start = time.perf_counter()
    source = open_place(url, access)
    out, out_access = root_of(out), out_access or Access()
    refuse_same(source.url, out)
    target = out_access.store(out)
    _make_way(target, out, source, force, out_access)

    def copy(info: FileInfo) -> int:
        if resume and _is_there(target, info, out_access):
            return 0
        _copy(source, target, info, out_access)
        return info.bytes + 1  # An empty file counts as well.

    files = list(_files(source))
    told = partial(source.access.on_shard, "files copied", len(files))
    sizes = list(ahead(copy, files, workers or default_workers(), told))
    with tempfile.TemporaryDirectory(prefix="shardstream-") as folder:
        path = Path(folder, INDEX)
        path.write_bytes(source.data)
        _put(target, str(path), INDEX, out_access)
    copied = [size - 1 for size in sizes if size]
    return Copied(
        url=source.url,
        out=out,
        files=len(copied) + 1,
        bytes=sum(copied) + len(source.data),
        kept=len(sizes) - len(copied),
        seconds=time.perf_counter() - start,
    )


def refuse_same(url: str, out: str) -> None:
    """Make sure that two places are not one.

    Raises:
        ValueError: If they are.
    """
    same = url == out
    if is_local(url) and is_local(out):
        same = os.path.realpath(local_path(url)) == os.path.realpath(local_path(out))
    if same:
        raise ValueError(f"{url} is both where the data set is and where it should go")


def _make_way(target: Store, out: str, source: Place, force: bool, access: Access) -> None:
    if not target.can_write:
        raise ValueError(f"{out} can only be read")
    if not access.retry.call(lambda: target.exists(INDEX), f"looking at {out}"):
        return
    if not force:
        raise FileExistsError(f"there is a data set at {out}; --force replaces it")
    _, old = read_index(out, access)
    access.retry.call(lambda: target.delete(INDEX), f"deleting {target.url_of(INDEX)}")
    # An old raw shard beside a new compressed one of its name would be read in its place.
    for key in sorted(dataset_files(old) - {INDEX, *(info.basename for info in _files(source))}):
        access.retry.call(partial(target.delete, key), f"deleting {target.url_of(key)}")


def _files(source: Place) -> Iterator[FileInfo]:
    """The files that a data set consists of where it is streamed from."""
    for shard in range(len(source.index)):
        for raw, zipped in source.index.files(shard):
            yield zipped or raw


def _is_there(target: Store, info: FileInfo, access: Access) -> bool:
    try:
        if not info.hashes or target.size(info.basename) != info.bytes:
            return False
        return not faults(info, receive(target, info.basename, info.hashes, access))
    except NotFound:
        return False


def _copy(source: Place, target: Store, info: FileInfo, access: Access) -> None:
    try:
        with tempfile.TemporaryDirectory(prefix="shardstream-") as folder:
            path = fetch(source.store, info, folder, source.access)
            _put(target, path, info.basename, access)
    except NotFound as exc:
        raise NotFound(
            f"{source.store.url_of(info.basename)} is missing, so that nothing can be read from "
            "the copy. If this is a cache of a compressed data set, copy what it is a cache of, or "
            "use shardstream reshard"
        ) from exc
    except FormatError as exc:
        raise type(exc)(f"{exc}; the copy has no index (shardstream repair may help)") from exc


def _put(target: Store, path: str, key: str, access: Access) -> None:
    access.retry.call(lambda: target.put(path, key), f"writing {target.url_of(key)}")
    sent, arrived = os.path.getsize(path), target.size(key)
    if sent != arrived:
        raise StoreError(f"{target.url_of(key)} has {arrived} bytes, but {sent} were sent")
