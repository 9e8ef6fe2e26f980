"""Databricks: the volumes of Unity Catalog, and the older DBFS.

`databricks-sdk` finds the workspace and says who we are; the requests are our own, because the
SDK's retry for minutes by themselves, and read a DBFS file through one connection and no ranges.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode

from streaming.storage.base import Body, ObjectInfo, Store
from streaming.storage.clients import environment_token, require, shared_client
from streaming.storage.errors import (
    AccessDenied,
    NotFound,
    StoreError,
    Throttled,
    retry_after_seconds,
)
from streaming.storage.parts import verify_size
from streaming.storage.rest import Rest, StatusError, body_of, path_quote, range_header

__all__ = ["VolumesStore", "WorkspaceStore", "databricks_store"]


@dataclass(frozen=True)
class _Options:
    """All that the credentials depend on."""

    host: str | None
    token: str | None = field(repr=False)
    profile: str | None
    config_file: str | None
    timeout_s: float
    environment: str = field(repr=False)


def databricks_store(
    url: str,
    *,
    timeout_s: float = 60.0,
    host: str | None = None,
    token: str | None = None,
    profile: str | None = None,
    config_file: str | os.PathLike[str] | None = None,
    max_connections: int = 64,
    ca_bundle: str | os.PathLike[str] | None = None,
) -> WorkspaceStore:
    """The store for a `dbfs:/` URL: a volume's below `/Volumes`, DBFS's elsewhere.

    What is not given is looked for where Databricks' tools look: `DATABRICKS_*` variables
    (`DATABRICKS_HOST` and `DATABRICKS_TOKEN` among them), then `~/.databrickscfg`, then the cloud's
    own ways to log in.

    Args:
        url: `dbfs:/Volumes/catalog/schema/volume/path`, or `dbfs:/path`.
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        host: The workspace's URL.
        token: A personal access token.
        profile: A section of the configuration file.
        config_file: That file.
        max_connections: Most connections that a process keeps open.
        ca_bundle: File of certificates to trust.

    Returns:
        The store.

    Raises:
        ValueError: If the URL is no such place.

    Example:
        >>> databricks_store("dbfs:/Volumes/main/default/data/train")
        VolumesStore('dbfs:/Volumes/main/default/data/train')
        >>> databricks_store("dbfs:/mnt/train")
        DBFSStore('dbfs:/mnt/train')
    """
    from streaming.storage.dbfs import DBFSStore

    options = _Options(
        host=host,
        token=token,
        profile=profile,
        config_file=None if config_file is None else os.fspath(config_file),
        timeout_s=timeout_s,
        environment=environment_token("DATABRICKS_", "ARM_", "HOME"),
    )
    rest = Rest(timeout_s, max_connections, None if ca_bundle is None else os.fspath(ca_bundle))
    volume = url.startswith("dbfs:/Volumes/") or url == "dbfs:/Volumes"
    return (VolumesStore if volume else DBFSStore)(url, options, rest)


class WorkspaceStore(Store):
    """What the stores of a workspace share: who we are, and what its errors mean.

    Args:
        url: The root.
        options: All that the credentials depend on.
        rest: Makes the requests.
    """

    def __init__(self, url: str, options: _Options, rest: Rest) -> None:
        super().__init__(url, timeout_s=options.timeout_s)
        self.root = "/" + self.url.partition(":")[2].strip("/")
        self._options = options
        self._rest = rest

    def path(self, key: str) -> str:
        """An object's path in the workspace; the root's for an empty key."""
        return f"{self.root.rstrip('/')}/{key}" if key else self.root

    def _config(self) -> Any:
        """The SDK's configuration: the workspace's host, and headers that say who we are."""
        sdk = require("databricks.sdk.config", package="shardstream[databricks]", url=self.url)
        options = self._options

        def make() -> Any:
            given = {
                "host": options.host,
                "token": options.token,
                "profile": options.profile,
                "config_file": options.config_file,
            }
            try:
                return sdk.Config(
                    **{name: value for name, value in given.items() if value is not None},
                    http_timeout_seconds=options.timeout_s,
                    retry_timeout_seconds=1,  # 0 would stand for its default, five minutes.
                    product="shardstream",
                    product_version="0",
                )
            except ValueError as exc:
                raise AccessDenied(
                    f"{self.url}: no credentials for Databricks were found ({exc}). Set "
                    "DATABRICKS_HOST and DATABRICKS_TOKEN, or give host and token"
                ) from exc

        return shared_client(options, make)

    def _api(self, path: str, /, **query: Any) -> tuple[str, dict[str, str]]:
        """The URL and the headers of a request to the workspace."""
        config = self._config()
        headers = {"User-Agent": "shardstream", **config.authenticate()}
        workspace = getattr(config, "workspace_id", None)
        if workspace:
            headers["X-Databricks-Workspace-Id"] = str(workspace)
        asked = {name: value for name, value in query.items() if value is not None}
        return f"{config.host}{path}{'?' + urlencode(asked) if asked else ''}", headers

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        if not isinstance(exc, StatusError):
            return None
        config = self._config()
        how = f"Requests go to {config.host}, authenticated by {config.auth_type!r}"
        if exc.code not in CODES:
            return exc.as_store_error(url, how)
        kind, what, retryable = CODES[exc.code]
        hint = f". {how}" if kind is AccessDenied else ""
        return kind(
            f"{url}: {what} ({exc.code}: {exc.said}){hint}",
            url=url,
            retryable=retryable,
            retry_after_s=retry_after_seconds(exc.headers.get("retry-after")),
        )


# The workspace's error codes: kind, what it means, whether to try again. Codes that are not here
# are judged by their HTTP status.
CODES: Mapping[str, tuple[type[StoreError], str, bool]] = {
    "NOT_FOUND": (NotFound, "there is no such file", False),
    "RESOURCE_DOES_NOT_EXIST": (NotFound, "there is no such file", False),
    "CATALOG_DOES_NOT_EXIST": (NotFound, "there is no such catalog", False),
    "SCHEMA_DOES_NOT_EXIST": (NotFound, "there is no such schema", False),
    "VOLUME_DOES_NOT_EXIST": (NotFound, "there is no such volume", False),
    "PERMISSION_DENIED": (AccessDenied, "access was denied", False),
    "UNAUTHENTICATED": (AccessDenied, "the token was not accepted", False),
    "REQUEST_LIMIT_EXCEEDED": (Throttled, "the workspace asks for fewer requests", True),
    "TEMPORARILY_UNAVAILABLE": (Throttled, "the workspace is overloaded", True),
    "INTERNAL_ERROR": (StoreError, "the workspace failed", True),
}


class VolumesStore(WorkspaceStore):
    """Files of a Unity Catalog volume: `dbfs:/Volumes/catalog/schema/volume/path`."""

    can_write: ClassVar[bool] = True

    def __init__(self, url: str, options: _Options, rest: Rest) -> None:
        super().__init__(url, options, rest)
        if len(self.root.split("/")) < 5:
            raise ValueError(f"{url}: write dbfs:/Volumes/catalog/schema/volume/path")

    def _file(self, key: str, **query: Any) -> tuple[str, dict[str, str]]:
        return self._api(f"/api/2.0/fs/files{path_quote(self.path(key))}", **query)

    def _folder(self, key: str, **query: Any) -> tuple[str, dict[str, str]]:
        return self._api(f"/api/2.0/fs/directories{path_quote(self.path(key))}", **query)

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        url, headers = self._file(key)
        headers |= range_header(start, stop)
        modified = (etag or "").partition("/")[0]
        if modified:
            headers["If-Unmodified-Since"] = modified
        answer = self._rest.send("GET", url, headers)
        version = _version(answer.headers)
        return body_of(answer, start, stop, etag=version, url=self.url_of(key))

    def _stat(self, key: str) -> ObjectInfo:
        headers = self._rest.head(*self._file(key))
        return ObjectInfo(key, int(headers["content-length"]), _version(headers))

    def _put(self, path: Path, size: int, key: str) -> None:
        url, headers = self._file(key, overwrite="true")
        headers["Content-Type"] = "application/octet-stream"
        try:
            self._rest.send("PUT", url, headers, file=path, size=size).drain_conn()
        except StatusError as exc:
            if exc.status != 404:
                raise
            parent = key.rpartition("/")[0]
            self._rest.send("PUT", *self._folder(parent)).drain_conn()
            self._rest.send("PUT", url, headers, file=path, size=size).drain_conn()
        verify_size(self, key, size)

    def _list(self, prefix: str) -> Iterator[str]:
        yield from self._walk(prefix.rpartition("/")[0], prefix)

    def _walk(self, folder: str, prefix: str) -> Iterator[str]:
        page: str | None = None
        while True:
            try:
                found = self._rest.json("GET", *self._folder(folder, page_token=page))
            except StatusError as exc:
                if exc.status == 404:
                    return
                raise
            for entry in found.get("contents", ()):
                key = f"{folder}/{entry['name']}" if folder else entry["name"]
                if not entry.get("is_directory"):
                    if key.startswith(prefix):
                        yield key
                elif (key + "/").startswith(prefix) or prefix.startswith(key + "/"):
                    yield from self._walk(key, prefix)
            page = found.get("next_page_token")
            if not page:
                return

    def _delete(self, key: str) -> None:
        url, headers = self._file(key)
        self._rest.send("DELETE", url, headers, fine=(200, 204, 404)).drain_conn()

    def _check(self) -> None:
        volume = "/".join(self.root.split("/")[:5])
        url, headers = self._api(f"/api/2.0/fs/directories{path_quote(volume)}")
        self._rest.head(url, headers)


def _version(headers: Mapping[str, str]) -> str | None:
    """What tells a file's versions apart: its time, which has whole seconds only, and its size.

    Example:
        >>> _version({"last-modified": "Thu, 01 Jan 1970 00:00:00 GMT", "content-length": "5"})
        'Thu, 01 Jan 1970 00:00:00 GMT/5'
    """
    modified = headers.get("last-modified")
    if modified is None:
        return None
    size = headers.get("content-range", "").rpartition("/")[2] or headers["content-length"]
    return f"{modified}/{size}"
