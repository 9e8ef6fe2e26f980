"""A small Hugging Face Hub: data sets with revisions, large files elsewhere, commits, tokens.

What it does was compared with the official client, which the tests let talk to it, too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any
from urllib.parse import unquote

from tests.servers.rest import Answer, Request, SmallServer, bytes_answer, json_answer

TOKEN = "hf_tests"
READER = "hf_reader"
"""A token that may read and not write."""


class Elsewhere(SmallServer):
    """Where large files are: like a bucket with signed URLs, it wants no token."""

    def __init__(self) -> None:
        super().__init__()
        self.blobs: dict[str, bytes] = {}

    def answer(self, request: Request) -> Answer:
        if "authorization" in request.headers:
            return Answer(400, b"only one way to authenticate is allowed")
        oid = request.path.strip("/")
        if request.method == "PUT":
            if hashlib.sha256(request.body).hexdigest() != oid:
                return Answer(400, b"other bytes than announced")
            self.blobs[oid] = request.body
            return Answer(200)
        return bytes_answer(request, self.blobs[oid], {"ETag": '"of the bucket"'})


class Hub(SmallServer):
    """Data sets by name; each has revisions, each of them files by path."""

    page = 2

    def __init__(self, elsewhere: Elsewhere) -> None:
        super().__init__()
        self.elsewhere = elsewhere
        self.outside = elsewhere.url
        """Where clients are sent for large files."""
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {
            "org/name": {"main": {}, "v1.0": {}, "refs/pr/1": {}, "a/b": {}}
        }
        self.private: set[str] = set()
        self.gated: set[str] = set()
        self.renamed: dict[str, str] = {}
        self.commits: list[list[dict[str, Any]]] = []

    def answer(self, request: Request) -> Answer:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in ("", TOKEN, READER):
            return _error(401, "", "Invalid credentials in Authorization header")
        match = re.fullmatch(
            r"(?:/api)?/datasets/([^/]+/[^/]+?)(?:\.git)?/(resolve|tree|preupload|commit|revision|info)"
            r"/([^/]+)(?:/(.*))?",
            request.quoted,
        )
        if match is None:
            return _error(404, "", f"no such page: {request.target}")
        name, what, revision, path = match[1], match[2], unquote(match[3]), unquote(match[4] or "")
        if name in self.renamed:
            target = request.target.replace(name, self.renamed[name], 1)
            return Answer(307, b"", {"Location": target})
        if name not in self.repositories or (name in self.private and not token):
            return _error(404 if token else 401, "RepoNotFound", "Repository not found")
        if name in self.gated and what == "resolve":
            return _error(403, "GatedRepo", f"Access to {name} is restricted")
        if what == "info":
            return self._large(request)
        if revision not in self.repositories[name]:
            return _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if what in ("preupload", "commit") and token != TOKEN:
            return _error(403, "", "Your token may not write here")
        with self.lock:
            return self._answer(request, what, self.repositories[name][revision], path)

    def _answer(self, request: Request, what: str, files: dict[str, bytes], path: str) -> Answer:
        if what == "resolve":
            return self._resolve(request, files, path)
        if what == "tree":
            return self._tree(request, files, path)
        if what == "preupload":
            return json_answer({"files": [_mode(file) for file in request.json()["files"]]})
        if what == "commit":
            return self._commit(request, files)
        return json_answer({"id": "org/name", "sha": "0" * 40})

    def _resolve(self, request: Request, files: dict[str, bytes], path: str) -> Answer:
        if path not in files:
            return _error(404, "EntryNotFound", "Entry not found")
        data = files[path]
        oid = hashlib.sha256(data).hexdigest()
        commit = {"X-Repo-Commit": "0" * 40}
        if oid in self.elsewhere.blobs:
            linked = {"X-Linked-Etag": f'"{oid}"', "X-Linked-Size": str(len(data))}
            return Answer(302, b"Found", {**commit, **linked, "Location": f"{self.outside}/{oid}"})
        return bytes_answer(request, data, {**commit, "ETag": f'W/"{_blob(data)}"'})

    def _tree(self, request: Request, files: dict[str, bytes], folder: str) -> Answer:
        below = sorted(name for name in files if not folder or name.startswith(f"{folder}/"))
        if folder and not below:
            return _error(404, "EntryNotFound", f"{folder} does not exist on main")
        entries: list[dict[str, Any]] = []
        for name in below:
            parent = name.rpartition("/")[0]
            if parent and not any(entry["path"] == parent for entry in entries):
                entries.append({"type": "directory", "path": parent, "oid": "0" * 40, "size": 0})
            size = len(files[name])
            entries.append({"type": "file", "path": name, "oid": _blob(files[name]), "size": size})
        start = int(request.query.get("cursor", 0))
        headers = {}
        if entries[start + self.page :]:
            url = f"{self.url}{request.quoted}?recursive=true&cursor={start + self.page}"
            headers["Link"] = f'<{url}>; rel="next"'
        return json_answer(entries[start : start + self.page], 200, **headers)

    def _large(self, request: Request) -> Answer:
        objects = []
        for wanted in request.json()["objects"]:
            found = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.elsewhere.blobs:
                found["actions"] = {"upload": {"href": f"{self.outside}/{wanted['oid']}"}}
            objects.append(found)
        return json_answer({"transfer": "basic", "objects": objects})

    def _commit(self, request: Request, files: dict[str, bytes]) -> Answer:
        lines = [json.loads(line) for line in request.body.splitlines()]
        if lines[0]["key"] != "header" or not lines[0]["value"]["summary"]:
            return _error(400, "", "a commit begins with its header")
        changed = dict(files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                changed[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.elsewhere.blobs:
                    return _error(400, "", "the large file has not been uploaded")
                changed[value["path"]] = self.elsewhere.blobs[value["oid"]]
            elif changed.pop(value["path"], None) is None:
                return _error(404, "EntryNotFound", "A file with this name doesn't exist")
        files.clear()
        files.update(changed)
        self.commits.append(lines)
        url = f"{self.url}/datasets/org/name/commit/{'0' * 40}"
        return json_answer({"success": True, "commitOid": "0" * 40, "commitUrl": url})


def _mode(file: dict[str, Any]) -> dict[str, Any]:
    assert len(base64.b64decode(file["sample"])) == min(file["size"], 512)
    large = file["size"] > 1000 or file["path"].endswith(".mds")
    return {
        "path": file["path"],
        "uploadMode": "lfs" if large else "regular",
        "shouldIgnore": file["path"].endswith(".ignored"),
    }


def _blob(data: bytes) -> str:
    """A file's name in git."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _error(status: int, code: str, message: str) -> Answer:
    headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
    return json_answer({"error": message}, status, **headers)
