"""Databricks' own file system of before Unity Catalog, by its API.

Files are read and written in blocks of at most 1 MiB, each a request of its own.
"""

from __future__ import annotations

import base64
import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streaming.storage.base import Body, ObjectInfo
from streaming.storage.databricks import WorkspaceStore
from streaming.storage.errors import NotFound, ObjectChanged, StoreError
from streaming.storage.rest import StatusError

__all__ = ["DBFSStore"]

BLOCK_BYTES = 1 << 20
_ASIDE = ".uploading"
_MISSING = ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND")


class DBFSStore(WorkspaceStore):
    """Files below `dbfs:/path`."""

    def _ask(self, what: str, /, **query: Any) -> Any:
        return self._rest.json("GET", *self._api(f"/api/2.0/dbfs/{what}", **query))

    def _do(self, what: str, /, **body: Any) -> Any:
        return self._rest.json("POST", *self._api(f"/api/2.0/dbfs/{what}"), body)

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        info = self._stat(key)
        if etag is not None and etag != info.etag:
            raise self._changed(key)
        stop = info.size if stop is None else min(stop, info.size)
        chunks = self._blocks(info, start, stop)
        return Body(chunks, length=max(0, stop - start), etag=info.etag)

    def _blocks(self, info: ObjectInfo, start: int, stop: int) -> Iterator[bytes]:
        for offset in range(start, stop, BLOCK_BYTES):
            length = min(BLOCK_BYTES, stop - offset)
            found = self._ask("read", path=self.path(info.key), offset=offset, length=length)
            data = base64.b64decode(found["data"])
            if len(data) < length and self._stat(info.key) != info:
                raise self._changed(info.key)
            yield data
        # Requests know nothing of one another: blocks may be of two versions.
        if stop - start > BLOCK_BYTES and self._stat(info.key) != info:
            raise self._changed(info.key)

    def _changed(self, key: str) -> ObjectChanged:
        url = self.url_of(key)
        return ObjectChanged(f"{url}: the file has changed since it was first read", url=url)

    def _stat(self, key: str) -> ObjectInfo:
        found = self._ask("get-status", path=self.path(key))
        if found.get("is_dir"):
            url = self.url_of(key)
            raise NotFound(f"{url}: that is a folder, not a file", url=url)
        size, time_ms = found["file_size"], found["modification_time"]
        return ObjectInfo(key, size, f"{time_ms}-{size}")

    def _put(self, path: Path, size: int, key: str) -> None:
        target = self.path(key)
        aside = f"{target}.{uuid.uuid4().hex}{_ASIDE}"
        try:
            self._write(path, size, aside)
            # Nothing is ever moved upon another file; for this moment there is none.
            self._delete(key)
            self._do("move", source_path=aside, destination_path=target)
        except BaseException:
            with contextlib.suppress(Exception):
                self._do("delete", path=aside, recursive=False)
            raise

    def _write(self, path: Path, size: int, target: str) -> None:
        handle = self._do("create", path=target, overwrite=True)["handle"]
        with open(path, "rb") as file:
            while block := file.read(BLOCK_BYTES):
                self._do("add-block", handle=handle, data=base64.b64encode(block).decode())
        self._do("close", handle=handle)
        stored = self._ask("get-status", path=target)["file_size"]
        if stored != size:
            raise StoreError(
                f"dbfs:{target}: {size} bytes were uploaded, but {stored} are there",
                url=f"dbfs:{target}",
                retryable=True,
            )

    def _list(self, prefix: str) -> Iterator[str]:
        yield from self._walk(prefix.rpartition("/")[0], prefix)

    def _walk(self, folder: str, prefix: str) -> Iterator[str]:
        try:
            found = self._ask("list", path=self.path(folder))
        except StatusError as exc:
            if exc.code in _MISSING:
                return
            raise
        for entry in found.get("files", ()):
            key = entry["path"][len(self.root.rstrip("/")) + 1 :]
            if not entry.get("is_dir"):
                if key.startswith(prefix) and not key.endswith(_ASIDE):
                    yield key
            elif (key + "/").startswith(prefix) or prefix.startswith(key + "/"):
                yield from self._walk(key, prefix)

    def _delete(self, key: str) -> None:
        try:
            self._do("delete", path=self.path(key), recursive=False)
        except StatusError as exc:
            if exc.code not in _MISSING:
                raise

    def _check(self) -> None:
        self._ask("list", path="/")
