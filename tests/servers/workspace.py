"""A small Databricks workspace: the Files API over volumes, and the DBFS API."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from tests.servers.rest import Answer, Request, SmallServer, bytes_answer, json_answer

TOKEN = "dapi-tests"
READER = "dapi-reader"
"""A token that may read and not write."""
BLOCK = 1 << 20


@dataclass
class File:
    data: bytes
    time_s: float


class Workspace(SmallServer):
    """Files by absolute path; folders are kept, and have to be made in volumes."""

    page = 2

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, File] = {}
        self.folders = {"/", "/Volumes", "/Volumes/main/default/data"}
        self.now_s = 1_700_000_000.0
        """The workspace's clock; tests move it."""
        self._open: dict[int, str] = {}
        self._handles = itertools.count(1)

    def answer(self, request: Request) -> Answer:
        if request.path == "/.well-known/databricks-config":
            return json_answer({"workspace_id": "12345"})
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in (TOKEN, READER):
            return _error(
                401, "UNAUTHENTICATED", "Credential was not sent or was of an unsupported type"
            )
        # The client does without, if it could not ask which one it is.
        if request.headers.get("x-databricks-workspace-id", "12345") != "12345":
            return _error(400, "INVALID_PARAMETER_VALUE", "which workspace?")
        with self.lock:
            writes = request.method in ("PUT", "POST", "DELETE")
            if writes and token == READER:
                return _error(403, "PERMISSION_DENIED", "User does not have WRITE VOLUME", request)
            for start, handle in (
                ("/api/2.0/fs/files", self._file),
                ("/api/2.0/fs/directories", self._folder),
                ("/api/2.0/dbfs/", self._dbfs),
            ):
                if request.path.startswith(start):
                    return handle(request, request.path.removeprefix(start))
        return _error(404, "ENDPOINT_NOT_FOUND", f"no API at {request.path}")

    def _file(self, request: Request, path: str) -> Answer:
        if request.method == "PUT":
            if path.rpartition("/")[0] not in self.folders:
                return _error(404, "NOT_FOUND", "The directory being accessed is not found")
            if request.query.get("overwrite") != "true" and path in self.files:
                return _error(409, "ALREADY_EXISTS", "The file being created already exists")
            self.files[path] = File(request.body, self.now_s)
            return Answer(204)
        file = self.files.get(path)
        if file is None:
            return _error(404, "NOT_FOUND", "The file being accessed is not found", request)
        if request.method == "DELETE":
            del self.files[path]
            return Answer(204)
        since = request.headers.get("if-unmodified-since")
        if since is not None and file.time_s > parsedate_to_datetime(since).timestamp():
            return _error(412, "PRECONDITION_FAILED", "modified since", request)
        modified = {"Last-Modified": formatdate(file.time_s, usegmt=True)}
        return bytes_answer(request, file.data, modified)

    def _folder(self, request: Request, path: str) -> Answer:
        path = path.rstrip("/")
        if request.method == "PUT":
            parts = path.split("/")
            self.folders |= {"/".join(parts[:i]) for i in range(5, len(parts) + 1)}
            return Answer(204)
        if path not in self.folders:
            return _error(404, "NOT_FOUND", "The directory being accessed is not found", request)
        if request.method == "HEAD":
            return Answer(200)
        entries = [
            {"path": name, "name": name.rpartition("/")[2], "is_directory": name in self.folders}
            for name in self._children(path)
        ]
        start = int(request.query.get("page_token", 0))
        found: dict[str, Any] = {"contents": entries[start : start + self.page]}
        if entries[start + self.page :]:
            found["next_page_token"] = str(start + self.page)
        return json_answer(found)

    def _children(self, folder: str) -> Iterator[str]:
        for name in sorted({*self.files, *self.folders}):
            if name != folder and name.rpartition("/")[0] == folder.rstrip("/"):
                yield name

    def _dbfs(self, request: Request, what: str) -> Answer:
        if request.method == "POST":
            return self._dbfs_write(what, request.json())
        path = request.query["path"]
        file = self.files.get(path)
        if what == "list" and path in self.folders:
            return json_answer({"files": [self._entry(name) for name in self._children(path)]})
        if file is None and path not in self.folders:
            return _error(
                404, "RESOURCE_DOES_NOT_EXIST", f"No file or directory exists on path {path}."
            )
        if what == "get-status":
            return json_answer(self._entry(path))
        if file is None:
            return _error(400, "INVALID_PARAMETER_VALUE", f"{path} is a directory")
        if what == "list":
            return json_answer({"files": [self._entry(path)]})
        offset, length = int(request.query["offset"]), int(request.query["length"])
        if length > BLOCK:
            return _error(400, "MAX_READ_SIZE_EXCEEDED", "at most 1 MB")
        data = file.data[offset : offset + length]
        return json_answer({"bytes_read": len(data), "data": base64.b64encode(data).decode()})

    def _entry(self, path: str) -> dict[str, Any]:
        file = self.files.get(path)
        size = 0 if file is None else len(file.data)
        time_ms = 0 if file is None else int(file.time_s * 1000)
        return {
            "path": path,
            "is_dir": file is None,
            "file_size": size,
            "modification_time": time_ms,
        }

    def _dbfs_write(self, what: str, given: dict[str, Any]) -> Answer:
        if what == "create":
            parts = given["path"].split("/")
            self.folders |= {"/".join(parts[:i]) or "/" for i in range(1, len(parts))}
            self.files[given["path"]] = File(b"", self.now_s)
            handle = next(self._handles)
            self._open[handle] = given["path"]
            return json_answer({"handle": handle})
        if what in ("add-block", "close"):
            path = self._open.get(given["handle"])
            if path is None:
                return _error(404, "RESOURCE_DOES_NOT_EXIST", "no such handle")
            if what == "close":
                del self._open[given["handle"]]
                return json_answer({})
            block = base64.b64decode(given["data"])
            if len(block) > BLOCK:
                return _error(400, "MAX_BLOCK_SIZE_EXCEEDED", "at most 1 MB")
            self.files[path].data += block
            return json_answer({})
        if what == "delete":
            if self.files.pop(given["path"], None) is None:
                return _error(404, "RESOURCE_DOES_NOT_EXIST", f"No file exists on {given['path']}.")
            return json_answer({})
        if what == "move":
            if given["destination_path"] in self.files:
                return _error(400, "RESOURCE_ALREADY_EXISTS", "A file exists there already")
            self.files[given["destination_path"]] = self.files.pop(given["source_path"])
            return json_answer({})
        return _error(404, "ENDPOINT_NOT_FOUND", quote(what))


def _error(status: int, code: str, message: str, request: Request | None = None) -> Answer:
    if request is not None and request.method == "HEAD":
        return Answer(status)
    return json_answer({"error_code": code, "message": message}, status)
