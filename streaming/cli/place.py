"""Data sets at URLs, and how the stores that hold them are reached."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming.format.index import Index, get_index_basename
from streaming.storage import NotFound, RetryPolicy, Store, is_local, local_path, store_for

__all__ = ["INDEX", "Access", "Place", "open_place", "parse_options", "read_index", "root_of"]

INDEX = get_index_basename()


@dataclass(frozen=True, slots=True)
class Access:
    """How stores are reached."""

    timeout_s: float = 60.0
    """Longest wait for the next bytes, in seconds."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The store's own options; they are not for local folders."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    on_shard: Callable[[str, int], None] = lambda what, total: None
    """Told what was done to one more shard (or file), of how many: for those who watch."""

    def store(self, url: str) -> Store:
        """The store at a URL."""
        options = {} if is_local(url) else self.options
        return store_for(url, timeout_s=self.timeout_s, **options)


def parse_options(pairs: Iterable[str]) -> dict[str, Any]:
    """Read a store's options as they are written on a command line.

    Args:
        pairs: Each `name=value`. A value that is JSON is what it says; any other is text.

    Raises:
        ValueError: If one has no name or no value.

    Example:
        >>> parse_options(["region=eu-west-1", "anonymous=true", "connections=8"])
        {'region': 'eu-west-1', 'anonymous': True, 'connections': 8}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise ValueError(f"{pair!r} is not an option of a store: write name=value")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def root_of(url: str | os.PathLike[str]) -> str:
    """The folder of a data set that is named by it, or by its index.

    Example:
        >>> root_of("s3://bucket/train/"), root_of("data/index.json"), root_of("index.json")
        ('s3://bucket/train', 'data', '.')
    """
    text = os.fspath(url)
    if text == INDEX:
        return "."
    for separator in {"/", os.sep}:
        if text.endswith(separator + INDEX):
            text = text[: -len(INDEX)]
    stripped = text.rstrip("/")
    return text if not stripped or stripped.endswith(":") else stripped


@dataclass(frozen=True, slots=True)
class Place:
    """A data set, its index read."""

    url: str
    store: Store
    access: Access
    data: bytes
    """Its index file."""
    index: Index

    @property
    def root(self) -> str | None:
        """The data set's folder, if it is one of this machine."""
        return local_path(self.url) if is_local(self.url) else None


def read_index(url: str, access: Access) -> tuple[Store, bytes]:
    """Read a data set's index file, as it is.

    Args:
        url: The data set.
        access: How its store is reached.

    Returns:
        The store and the index file's content.

    Raises:
        FileNotFoundError: If there is none.
        StoreError: If it can't be read.
    """
    store = access.store(url)

    def fetch() -> bytes:
        file = io.BytesIO()
        store.get(INDEX, file)
        return file.getvalue()

    try:
        return store, access.retry.call(fetch, f"fetching {store.url_of(INDEX)}")
    except NotFound as exc:
        raise FileNotFoundError(
            f"there is no data set at {url}: it has no {INDEX} (shardstream ls {url} shows what "
            "is there)"
        ) from exc


def open_place(url: str, access: Access | None = None) -> Place:
    """Read the index of a data set.

    Args:
        url: The data set's folder or URL, or its index's.
        access: How its store is reached.

    Returns:
        The data set.

    Raises:
        FileNotFoundError: If there is none.
        FormatError: If its index is damaged.
        StoreError: If its index can't be read.

    Example:
        >>> import tempfile
        >>> from streaming import MDSWriter
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "int"}) as writer:
        ...     writer.write({"x": 1})
        >>> open_place(folder).index.num_samples
        1
    """
    url, access = root_of(url), access or Access()
    store, data = read_index(url, access)
    return Place(url, store, access, data, Index.parse(data, store.url_of(INDEX)))
