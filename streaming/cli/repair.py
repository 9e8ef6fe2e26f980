"""`shardstream repair`: a copy made whole again from the data set that it is a copy of."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from streaming.cli.place import INDEX, Access, Place, open_place, read_index, root_of
from streaming.cli.shards import bring
from streaming.cli.transfer import ahead, default_workers, fetch
from streaming.cli.verify import Problem, Verified, check_place
from streaming.storage import NotFound, Store, is_local, local_path

__all__ = ["Repaired", "repair"]


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done to a copy."""

    url: str
    remote: str
    problems: list[Problem]
    """What was wrong before."""
    replaced: list[str] = field(default_factory=list)
    """The files that were fetched anew."""
    bytes: int = 0
    """Their bytes."""
    remaining: list[Problem] = field(default_factory=list)
    """What is wrong still."""

    @property
    def ok(self) -> bool:
        """Whether the copy is whole now."""
        return not self.remaining


def repair(
    url: str,
    remote: str,
    access: Access | None = None,
    remote_access: Access | None = None,
    *,
    share: float = 0.01,
    workers: int | None = None,
    present_only: bool = False,
    unsafe: bool = False,
) -> Repaired:
    """Fetch again what `verify` finds damaged or missing in a copy of a data set.

    The copy is measured by the remote's index. A file takes the damaged one's place only when it
    has been fetched and checked; the index comes last.

    Args:
        url: The copy: a folder, or a URL that can be written to.
        remote: The data set that it is a copy of.
        access: How the copy's store is reached.
        remote_access: How the remote's store is reached.
        share: The part of the samples that is decoded, from 0 to 1.
        workers: How many shards are handled at once.
        present_only: Whether shards may be missing, as in a cache; these are not fetched.
        unsafe: Whether samples are decoded whose encoding can run code.

    Returns:
        What was done.

    Raises:
        FileNotFoundError: If there is no data set at `remote`, or its own shard is missing.
        FormatError: If the remote itself is damaged.
        StoreError: If something can't be fetched, or put in place.
        ValueError: If both are one place.
    """
    url, access = root_of(url), access or Access()
    source = open_place(remote, remote_access or Access())
    _check_apart(url, source)
    store = access.store(url)
    # What the copy should be: the remote's index, over the copy's files.
    copy = replace(source, url=url, store=store, access=access)
    problems = _index_problems(url, copy, access)

    def check() -> Verified:
        return check_place(
            copy, share=share, workers=workers, present_only=present_only, unsafe=unsafe
        )

    found = check()
    broken = sorted({p.shard for p in found.problems if p.shard is not None})
    as_raw = _keeps_raw(copy)

    def mend(shard: int) -> list[tuple[str, int]]:
        mine = [p for p in found.problems if p.shard == shard]
        return _mend(source, copy, shard, {p.file for p in mine}, as_raw)

    told = partial(access.on_shard, "shards mended", len(broken))
    mended = ahead(mend, broken, workers or default_workers(), told)
    replaced = [one for done in mended for one in done]
    if problems:
        _put_index(store, access, source.data)
        replaced.append((INDEX, len(source.data)))
    return Repaired(
        url=url,
        remote=source.url,
        problems=[*problems, *found.problems],
        replaced=[name for name, _ in replaced],
        bytes=sum(size for _, size in replaced),
        remaining=check().problems if broken else [],
    )


def _check_apart(url: str, source: Place) -> None:
    same = url == source.url
    if is_local(url) and source.root is not None:
        same = os.path.realpath(local_path(url)) == os.path.realpath(source.root)
    if same:
        raise ValueError(f"{url} can't be repaired from itself: name the place it was copied from")


def _index_problems(url: str, source: Place, access: Access) -> list[Problem]:
    try:
        _, data = read_index(url, access)
    except (NotFound, FileNotFoundError):
        return [Problem("missing", INDEX, "there is no such file")]
    if data != source.data:
        return [Problem("index", INDEX, "it is not the remote's")]
    return []


def _keeps_raw(copy: Place) -> bool:
    """Whether a copy of compressed shards has any in raw form, as a cache does."""
    if copy.root is None:
        return False
    index = copy.index
    return any(
        zipped is not None and os.path.exists(os.path.join(copy.root, raw.basename))
        for shard in range(len(index))
        for raw, zipped in index.files(shard)
    )


def _mend(
    source: Place, copy: Place, shard: int, damaged: set[str], as_raw: bool
) -> list[tuple[str, int]]:
    """Replace a shard's damaged files; return their names and sizes."""
    done = []
    with tempfile.TemporaryDirectory(prefix="shardstream-", ignore_cleanup_errors=True) as folder:
        raws, zips = Path(folder, "raw"), Path(folder, "zip")
        for raw, zipped in source.index.files(shard):
            # A missing file is reported by its raw name, whichever form it had.
            lacks_raw = raw.basename in damaged
            if zipped is not None and (zipped.basename in damaged or (lacks_raw and not as_raw)):
                path = fetch(source.store, zipped, str(zips), source.access)
                done.append((zipped.basename, zipped.bytes))
                _put(copy, path, zipped.basename)
            if lacks_raw and (zipped is None or as_raw):
                if not raws.exists():
                    bring(source, shard, str(raws))
                done.append((raw.basename, raw.bytes))
                _put(copy, str(Path(raws, *raw.basename.split("/"))), raw.basename)
    return done


def _put(copy: Place, path: str, key: str) -> None:
    copy.access.retry.call(lambda: copy.store.put(path, key), f"writing {copy.store.url_of(key)}")


def _put_index(store: Store, access: Access, data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="shardstream-") as folder:
        path = Path(folder, INDEX)
        path.write_bytes(data)
        access.retry.call(lambda: store.put(path, INDEX), f"writing {store.url_of(INDEX)}")
