"""`shardstream ls`: what is in a store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from streaming.cli.place import INDEX, Access, open_place
from streaming.cli.transfer import ahead, default_workers
from streaming.storage import Store

__all__ = ["Entry", "Listing", "ls"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder."""

    name: str
    kind: str
    """file, folder, or dataset: a folder with an index."""
    bytes: int | None = None
    """Its size, if it was asked for; of a folder, that of all its files."""
    files: int = 1
    """How many files it is."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is at a URL."""

    url: str
    entries: list[Entry] = field(default_factory=list)
    is_dataset: bool = False
    """Whether there is an index here."""


@dataclass(slots=True)
class _Group:
    kind: str
    files: int = 0
    bytes: int = 0


def ls(
    url: str,
    access: Access | None = None,
    *,
    recursive: bool = False,
    sizes: bool = False,
    workers: int | None = None,
) -> Listing:
    """List what is at a URL.

    Args:
        url: A folder of any store. One that can't be listed, a web server say, is known by the
            index of the data set in it.
        access: How the store is reached.
        recursive: Whether files are listed at every depth, instead of folders.
        sizes: Whether sizes are asked for, one request a file.
        workers: How many requests are made at once.

    Returns:
        What is there, by name.

    Raises:
        FileNotFoundError: If there is nothing.
        StoreError: If that can't be found out.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> (folder / "train").mkdir()
        >>> _ = (folder / "train" / "index.json").write_text("{}")
        >>> ls(str(folder)).entries
        [Entry(name='train/', kind='dataset', bytes=None, files=1)]
    """
    access = access or Access()
    store = access.store(url)
    keys = _keys(store, url, access)

    def entry(key: str) -> Entry:
        return Entry(key, "file", _size(store, key, access) if sizes else None)

    files = ahead(entry, keys, workers or default_workers()) if sizes else map(entry, keys)
    entries: list[Entry] = []
    groups: dict[str, _Group] = {}
    found = here = False
    for one in files:
        found, here = True, here or one.name == INDEX
        folder, slash, rest = one.name.partition("/")
        if recursive or not slash:
            entries.append(one)
            continue
        group = groups.setdefault(folder + slash, _Group("folder"))
        group.files += 1
        group.bytes += one.bytes or 0
        if rest == INDEX:
            group.kind = "dataset"
    if not found:
        store.check()
        if store.can_list:
            raise FileNotFoundError(f"there is nothing at {url}")
    entries += [
        Entry(name, group.kind, group.bytes if sizes else None, group.files)
        for name, group in groups.items()
    ]
    return Listing(url, sorted(entries, key=lambda one: one.name), here)


def _size(store: Store, key: str, access: Access) -> int:
    return access.retry.call(lambda: store.size(key), f"looking at {store.url_of(key)}")


def _keys(store: Store, url: str, access: Access) -> Iterator[str]:
    if store.can_list:
        yield from store.list()
        return
    index = open_place(url, access).index
    yield INDEX
    for shard in range(len(index)):
        for raw, zipped in index.files(shard):
            yield (zipped or raw).basename
