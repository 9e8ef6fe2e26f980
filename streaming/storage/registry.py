"""Which store serves which scheme."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from streaming.storage.base import Store
from streaming.storage.errors import UnknownScheme
from streaming.storage.urls import scheme_of

__all__ = ["ENTRY_POINT_GROUP", "StoreFactory", "register_store", "schemes", "store_for"]

ENTRY_POINT_GROUP = "streaming.stores"

StoreFactory = Callable[..., Store]
"""Called as factory(url, timeout_s=…, **storage_options)."""

# "module:name" of each scheme's factory: nothing is imported before its scheme is used.
_BUILT_IN: dict[str, str] = {
    "": "streaming.storage.local:LocalStore",
    "file": "streaming.storage.local:LocalStore",
    "s3": "streaming.storage.s3:S3Store",
    "http": "streaming.storage.web:HTTPStore",
    "https": "streaming.storage.web:HTTPStore",
    "gs": "streaming.storage.gcs:gcs_store",
    "oci": "streaming.storage.oci:OCIStore",
    "azure": "streaming.storage.azure:AzureStore",
    "azure-dl": "streaming.storage.azure:AzureDataLakeStore",
    "hf": "streaming.storage.hf:HFStore",
    "dbfs": "streaming.storage.databricks:databricks_store",
    "sftp": "streaming.storage.sftp:SFTPStore",
    "alipan": "streaming.storage.alipan:AlipanStore",
}
_registered: dict[str, StoreFactory | str] = {}
_resolvers: list[Callable[[str], StoreFactory | None]] = []


def register_store(scheme: str, factory: StoreFactory | str) -> None:
    """Serve a scheme by a store of your own; it takes the place of any other.

    A package can do the same without being imported, by an entry point of the group
    `streaming.stores` whose name is the scheme and whose object is the factory.

    Args:
        scheme: The scheme, without "://".
        factory: A `Store` subclass or a function that is called with the URL, `timeout_s` and the
            storage options; or where to find it, as "package.module:name".

    Raises:
        ValueError: If that is not a scheme (a single letter would be a drive).

    Example:
        >>> from streaming.storage.local import LocalStore
        >>> register_store("backup", lambda url, **options: LocalStore("/mnt/" + url[9:]))
        >>> store_for("backup://2024/images")
        LocalStore('/mnt/2024/images')
    """
    if not scheme or scheme_of(f"{scheme}://") != scheme:
        raise ValueError(f"{scheme!r} can't be a scheme: give two or more of a-z 0-9 + - .")
    _registered[scheme] = factory


def register_resolver(resolve: Callable[[str], StoreFactory | None]) -> None:
    """Let a function be asked for a URL's factory before the built-in ones are.

    For registries that live elsewhere (the custom downloaders of `streaming.base.storage`), which
    this room must not know.

    Args:
        resolve: Gives the factory for a URL, or None.
    """
    _resolvers.append(resolve)


def schemes() -> tuple[str, ...]:
    """The schemes that a store is known for, sorted."""
    plugged = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return tuple(sorted({*_BUILT_IN, *_registered, *plugged} - {""}))


def store_for(
    url: str | os.PathLike[str], *, timeout_s: float = 60.0, **storage_options: Any
) -> Store:
    """The store at a URL. Nothing is asked of it yet, and no client is imported or made.

    Args:
        url: Where its root is: a URL or a path.
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        storage_options: The store's own options; docs/storage.md lists them.

    Returns:
        The store.

    Raises:
        UnknownScheme: If no store is registered for the URL's scheme.
        ValueError: If the URL is malformed, or the store has no option of that name.

    Example:
        >>> store_for("s3://bucket/train", region="eu-west-1")
        S3Store('s3://bucket/train')
        >>> store_for("s3://bucket/train", regoin="eu-west-1")
        Traceback (most recent call last):
        ValueError: s3://bucket/train: there is no storage option 'regoin'; did you mean 'region'?
    """
    text = os.fspath(url)
    factory = factory_for(text)
    _check_options(factory, storage_options, text)
    return factory(text, timeout_s=timeout_s, **storage_options)


def factory_for(url: str, *, resolve: bool = True) -> StoreFactory:
    """What makes the store at a URL.

    Args:
        url: The URL.
        resolve: Whether the functions given to `register_resolver` are asked; they themselves,
            and what they made, must not ask each other for ever.

    Returns:
        The factory.

    Raises:
        UnknownScheme: If none is registered for the URL's scheme.
    """
    scheme = scheme_of(url)
    found = _registered.get(scheme)
    for ask in _resolvers if resolve else ():
        found = found or ask(url)
    found = found or _BUILT_IN.get(scheme)
    if found is None:
        for point in entry_points(group=ENTRY_POINT_GROUP, name=scheme):
            found = point.value
    if found is None:
        raise UnknownScheme(
            f"{url}: no store is known for {scheme}://; there are {', '.join(schemes())}. "
            "streaming.storage.register_store adds one",
            url=url,
        )
    return _load(found, scheme, url) if isinstance(found, str) else found


def _load(place: str, scheme: str, url: str) -> StoreFactory:
    module_name, _, name = place.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        if exc.name != module_name:
            raise
        raise UnknownScheme(
            f"{url}: this version has no store for {scheme}:// yet ({module_name} is missing)",
            url=url,
        ) from exc
    factory: StoreFactory = getattr(module, name)
    return factory


def _check_options(factory: StoreFactory, options: dict[str, Any], url: str) -> None:
    parameters = inspect.signature(factory).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    known = sorted(set(parameters) - {"url", "timeout_s"})
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            there = f"there are {', '.join(known)}" if known else "it takes none"
            hint = f"did you mean {near[0]!r}?" if near else there
            raise ValueError(f"{url}: there is no storage option {name!r}; {hint}")
