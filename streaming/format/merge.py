"""Making one data set of several, by one index over all their shards."""

from __future__ import annotations

import inspect
import json
import logging
import os
import posixpath
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from streaming.format.destination import Out, split_out
from streaming.format.errors import FormatError
from streaming.format.replace import FILE_KEYS, INDEX, is_staging_name, write_atomically
from streaming.storage import NotFound, RetryPolicy, Store, store_for

__all__ = ["merge_index", "moved_shard"]

logger = logging.getLogger(__name__)

_MAX_DOWNLOADS = 16


def merge_index(*args: Any, **kwargs: Any) -> None:
    """Make one index of the indexes of several data sets, so that they are read as one.

    No shard is moved: the new index names each by its way from `out`. There are two forms::

        merge_index(index_file_urls, out, keep_local=True, download_timeout=60)
        merge_index(out, keep_local=True, download_timeout=60)

    The first one takes the parts in the order given; the second looks for them below `out`, and
    takes them in the order of their paths. A part that is an index over others, which are merged
    too, adds nothing. An index that `out` has from an earlier merge is replaced.

    Args:
        *args: The arguments below, in this order.
        **kwargs: The arguments below, by name.
        index_file_urls: A list of parts: folders, or their index files; each a path, a URL, or a
            pair of both, (local, remote), where the local one is used if it is there.
        out: Where the index goes: a folder, a URL, or a pair of both. Of a pair, parts are looked
            for in the remote place, and read from the local one if they are there.
        keep_local: Whether, of a pair, the local folder gets the index as well. If not, one that it
            had is removed, and nothing else.
        download_timeout: Seconds to wait for a store's next bytes.
        storage_options: Options of the store, by name.

    Raises:
        FileNotFoundError: If there is nothing to merge below `out`, or a part is not there.
        FormatError: If a part's index is damaged; if two shards would have the same name; or if
            `out` has a data set of its own beside the parts, which would be lost.
        StoreError: If a part can't be read, or the index can't be uploaded.
        TypeError, ValueError: If arguments make no sense, or the list is empty.

    Example:
        >>> import json, pathlib, tempfile
        >>> from streaming.format.writer_mds import MDSWriter
        >>> with tempfile.TemporaryDirectory() as root:
        ...     for part in ("0", "1"):
        ...         with MDSWriter(columns={"id": "int"}, out=f"{root}/{part}") as writer:
        ...             writer.write({"id": 7})
        ...     merge_index(root)
        ...     index = json.loads(pathlib.Path(root, "index.json").read_text())
        ...     [shard["raw_data"]["basename"] for shard in index["shards"]]
        ['0/shard.00000.mds', '1/shard.00000.mds']
    """
    first = args[0] if args else None
    listed = "index_file_urls" in kwargs or (
        isinstance(first, Iterable) and not isinstance(first, (str, bytes, tuple, os.PathLike))
    )
    form = _merge_list if listed else _merge_root
    try:
        inspect.signature(form).bind(*args, **kwargs)
    except TypeError as exc:
        raise TypeError(f"merge_index: {exc}") from None
    form(*args, **kwargs)


def _merge_list(
    index_file_urls: Iterable[Out],
    out: Out,
    keep_local: bool = True,
    download_timeout: float = 60,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    place = _Place.of(out, download_timeout, storage_options)
    parts = [place.part(url) for url in index_file_urls]
    if not parts:
        raise ValueError("there is nothing to merge: the list of index files is empty")
    _merge(parts, place, keep_local)


def _merge_root(
    out: Out,
    keep_local: bool = True,
    download_timeout: float = 60,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    place = _Place.of(out, download_timeout, storage_options)
    # As paths of the index files: "a-b/index.json" comes before "a/index.json".
    paths = sorted(path for path in place.indexes() if path != INDEX)
    if not paths:
        raise FileNotFoundError(f"there is nothing to merge: no folder below {place} has an index")
    _merge([place.part_below(posixpath.dirname(path)) for path in paths], place, keep_local)


@dataclass(frozen=True, slots=True)
class _Part:
    """A data set to be merged."""

    prefix: str
    """Its folder as seen from the merged data set's."""
    local: str | None
    """Its local folder."""
    remote: str | None
    """Its URL."""

    @property
    def where(self) -> str:
        """What tells it from all others."""
        return self.remote or os.path.realpath(self.local or "")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the merged index goes, and how stores are reached."""

    local: str | None
    remote: str | None
    timeout_s: float
    options: Mapping[str, Any]
    retry: RetryPolicy

    @classmethod
    def of(cls, out: Out, timeout_s: float, options: Mapping[str, Any] | None) -> _Place:
        local, remote = split_out(out)
        if timeout_s <= 0:
            raise ValueError(f"download_timeout is {timeout_s}; it must be above 0 seconds")
        remote = remote.rstrip("/") if remote is not None else None
        return cls(local, remote, timeout_s, options or {}, RetryPolicy())

    def __str__(self) -> str:
        return str(self.remote or self.local)

    def store(self, url: str) -> Store:
        return store_for(url, timeout_s=self.timeout_s, **self.options)

    def indexes(self) -> Iterator[str]:
        """The paths of all indexes here, but those of unfinished data sets."""
        root = self.remote if self.remote is not None else self.local
        assert root is not None
        for key in self.store(root).list():
            folders, _, name = key.rpartition("/")
            if name == INDEX and not any(map(is_staging_name, folders.split("/"))):
                yield key

    def part_below(self, prefix: str) -> _Part:
        local = os.path.join(self.local, prefix) if self.local is not None else None
        remote = f"{self.remote}/{prefix}" if self.remote is not None else None
        return _Part(prefix, local, remote)

    def part(self, url: Out) -> _Part:
        """The part that a user means."""
        local, remote = (self._folder(part) for part in split_out(url))
        prefix = None
        if local is not None and self.local is not None:
            prefix = _below(os.path.realpath(local), os.path.realpath(self.local), os.sep)
        if prefix is None and remote is not None and self.remote is not None:
            prefix = _below(remote, self.remote, "/")
        if prefix is None:  # elsewhere: to be moved here, under its folder's name
            prefix = posixpath.basename((remote or os.path.abspath(local or "")).rstrip("/\\"))
        if not prefix:
            raise FormatError(
                f"{url} is the index of {self} itself; only parts below can be merged"
            )
        return _Part(prefix, local, remote)

    @staticmethod
    def _folder(url: str | None) -> str | None:
        if url is None or url == INDEX:
            return None if url is None else "."
        for separator in {"/", os.sep}:
            if url.endswith(separator + INDEX):
                url = url[: -len(INDEX)]
        return url.rstrip("/") or "/"

    def read(self, part: _Part) -> bytes:
        """The content of a part's index."""
        if part.local is not None:
            path = Path(part.local, INDEX)
            if path.exists() or part.remote is None:
                return path.read_bytes()
        assert part.remote is not None
        store = self.store(part.remote)

        def fetch() -> bytes:
            file = BytesIO()
            store.get(INDEX, file)
            return file.getvalue()

        return self.retry.call(fetch, f"fetching {store.url_of(INDEX)}")

    def present(self) -> bytes | None:
        """The index that is here already."""
        try:
            return self.read(_Part("", None if self.remote else self.local, self.remote))
        except (NotFound, FileNotFoundError):
            return None

    def write(self, index: bytes, keep_local: bool) -> None:
        """Put the merged index in place; a remote one first."""
        if self.remote is not None:
            store = self.store(self.remote)
            with tempfile.TemporaryDirectory(prefix="shardstream-") as folder:
                path = Path(folder, INDEX)
                path.write_bytes(index)
                self.retry.call(lambda: store.put(path, INDEX), f"uploading {store.url_of(INDEX)}")
        if self.local is None:
            return
        path = Path(self.local, INDEX)
        if keep_local or self.remote is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, index)
        else:
            path.unlink(missing_ok=True)


def _below(path: str, root: str, separator: str) -> str | None:
    """The way from one folder down to another; None if it doesn't lead down."""
    if path == root:
        return ""
    head = root.rstrip(separator) + separator
    return path[len(head) :].replace(separator, "/") if path.startswith(head) else None


def _merge(parts: list[_Part], place: _Place, keep_local: bool) -> None:
    with ThreadPoolExecutor(min(_MAX_DOWNLOADS, len(parts))) as pool:
        indexes = list(pool.map(place.read, parts))
    merged: list[dict[str, Any]] = []
    where: dict[str, str] = {}
    for part, index in zip(parts, indexes, strict=True):
        shards = _shards(index, f"{part.where}/{INDEX}")
        # A shard that an index over this part has brought is there already.
        merged.extend(moved_shard(s, part.prefix) for s in shards if _note_names(s, part, where))
    _check_own(place, where)
    place.write(json.dumps({"version": 2, "shards": merged}).encode(), keep_local)


def _note_names(shard: dict[str, Any], part: _Part, where: dict[str, str]) -> bool:
    """Note where a shard's files are, by their new names; say whether they were not known yet."""
    before = len(where)
    for name in _names(shard):
        merged, real = f"{part.prefix}/{name}", f"{part.where}/{name}"
        known = where.setdefault(merged, real)
        if known != real:
            raise FormatError(
                f"{known} and {real} would both be {merged} in the merged data set; name parts so "
                "that they differ below the folder of the merged index"
            )
    return len(where) > before


def _check_own(place: _Place, where: Mapping[str, str]) -> None:
    """Refuse to replace an index of shards that lie beside the parts: they would be lost."""
    index = place.present()
    if index is None:
        return
    try:
        own = [name for shard in _shards(index, "") for name in _names(shard) if "/" not in name]
    except FormatError:
        return
    if own:
        raise FormatError(
            f"{place}/{INDEX} is the index of a data set of its own ({own[0]} …), which is none of "
            "the parts; merging would lose it: move it to a folder beside the parts"
        )


def moved_shard(shard: dict[str, Any], prefix: str) -> dict[str, Any]:
    """What an index says of a shard, seen from further up."""
    moved = dict(shard)
    for key in FILE_KEYS:
        if moved.get(key) is not None:
            moved[key] = {**moved[key], "basename": f"{prefix}/{moved[key]['basename']}"}
    return moved


def _names(shard: Mapping[str, Any]) -> list[str]:
    return [shard[key]["basename"] for key in FILE_KEYS if shard.get(key) is not None]


def _shards(index: bytes, source: str) -> list[dict[str, Any]]:
    """What an index says of its shards.

    Raises:
        FormatError: If it is no index.
    """
    try:
        whole = json.loads(index)
        version, shards = whole["version"], whole["shards"]
        names = [name for shard in shards for name in _names(shard)]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise FormatError(f"{source} is not an index: {type(exc).__name__}: {exc}") from None
    if version != 2:
        raise FormatError(f"{source}: its version is {version!r}; only 2 is known")
    if not all(isinstance(name, str) and name for name in names):
        raise FormatError(f"{source}: a file of a shard has no name")
    return list(shards)
