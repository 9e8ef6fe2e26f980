"""Data sets on the Hugging Face Hub.

`huggingface_hub` says who we are (`HF_TOKEN`, `hf auth login`); the requests are our own, because
that library retries by itself, waits without limit, and downloads whole files into its own cache.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from streaming.storage.base import CHUNK_BYTES, Body, ObjectInfo, Store
from streaming.storage.clients import require, shared_client
from streaming.storage.errors import AccessDenied, NotFound, ObjectChanged, StoreError
from streaming.storage.parts import verify_size
from streaming.storage.rest import Rest, StatusError, body_of, path_quote, range_header

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

__all__ = ["HFStore"]

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_SAMPLE_BYTES = 512
_LFS = "application/vnd.git-lfs+json"
# A branch's name may have slashes, which a URL can't tell from folders, except for the Hub's own.
_REPOSITORY = re.compile(
    r"datasets/(?P<org>[^/@]+)/(?P<name>[^/@]+)(?:@(?P<revision>refs/(?:pr|convert)/[^/]+|[^/]+))?"
    r"(?:/(?P<path>.*))?"
)


@dataclass(frozen=True, slots=True)
class _Upload:
    """A file on its way into a commit."""

    path: Path
    size: int
    name: str
    sha256: str


class HFStore(Store):
    """Files of a data set: `hf://datasets/org/name/path`, or `hf://datasets/org/name@revision/path`.

    Every upload is a commit of its own. Those of one process are made one after another; the bytes
    go up side by side.

    Args:
        url: Data set, revision and folder. A revision with slashes is written with `%2F`, or given
            as the option.
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        revision: Branch, tag or commit; the URL's, then "main" unless given.
        token: Access token; `HF_TOKEN`, then what `hf auth login` has saved unless given. False
            sends none.
        endpoint: The Hub; `HF_ENDPOINT`, then https://huggingface.co unless given.
        max_connections: Most connections to one host that a process keeps open.
        ca_bundle: File of certificates to trust.

    Raises:
        ValueError: If the URL does not name a data set.

    Example:
        >>> store = HFStore("hf://datasets/org/name@v1.0/train")
        >>> store.repository, store.revision, store.prefix
        ('org/name', 'v1.0', 'train/')
        >>> HFStore("hf://datasets/org/name@refs/pr/3").revision
        'refs/pr/3'
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        revision: str | None = None,
        token: str | bool | None = None,
        endpoint: str | None = None,
        max_connections: int = 64,
        ca_bundle: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(url, timeout_s=timeout_s)
        match = _REPOSITORY.fullmatch(self.url.partition("://")[2])
        if match is None:
            raise ValueError(f"{url}: write hf://datasets/org/name/path, or …/name@revision/path")
        named = unquote(match["revision"] or "")
        if revision is not None and named and revision != named:
            raise ValueError(f"{url} names a revision, but the option is {revision!r}")
        self.repository = f"{match['org']}/{match['name']}"
        self.revision = revision or named or "main"
        self.prefix = f"{match['path']}/" if match["path"] else ""
        hub = endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        self._endpoint = hub.rstrip("/")
        self._token = token
        self._rest = Rest(
            timeout_s, max_connections, None if ca_bundle is None else os.fspath(ca_bundle)
        )

    def _headers(self) -> dict[str, str]:
        hub = require("huggingface_hub", package="shardstream[hf]", url=self.url)
        token = hub.get_token() if self._token is None or self._token is True else self._token
        return {"User-Agent": "shardstream"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )

    def _resolve_url(self, key: str) -> str:
        revision, path = quote(self.revision, safe=""), path_quote(self.prefix + key)
        return f"{self._endpoint}/datasets/{self.repository}/resolve/{revision}/{path}"

    def _api_url(self, what: str, rest: str = "") -> str:
        revision = quote(self.revision, safe="")
        return f"{self._endpoint}/api/datasets/{self.repository}/{what}/{revision}{rest}"

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        wanted = range_header(start, stop)
        answer, version = self._follow("GET", key, wanted, etag)
        return body_of(answer, start, stop, etag=version, url=self.url_of(key))

    def _stat(self, key: str) -> ObjectInfo:
        answer, version = self._follow("HEAD", key, {}, None)
        answer.drain_conn()
        size = answer.headers.get("x-linked-size") or answer.headers["content-length"]
        return ObjectInfo(key, int(size), version)

    def _follow(
        self, method: str, key: str, wanted: Mapping[str, str], etag: str | None
    ) -> tuple[BaseHTTPResponse, str | None]:
        """Ask the Hub for a file, and whom it sends us to for the bytes.

        What the Hub itself answers has the file's version and size, also where it redirects; who is
        elsewhere is told nothing of the token.
        """
        url, headers = self._resolve_url(key), {**self._headers(), **wanted}
        version: str | None = None
        for _ in range(_MOST_REDIRECTS):
            answer = self._rest.send(method, url, headers, fine=(200, 206, *_REDIRECTS))
            linked = answer.headers.get("x-linked-etag")
            if version is None:
                # A renamed data set's first answer says nothing of the file.
                found = linked or ("" if _redirects(answer) else answer.headers.get("etag"))
                version = _plain(found) or None
            if etag is not None and version not in (None, etag):
                answer.close()
                where = self.url_of(key)
                raise ObjectChanged(
                    f"{where}: the file has changed since it was first read", url=where
                )
            if not _redirects(answer) or (method == "HEAD" and linked):
                return answer, version
            answer.drain_conn()
            target = urljoin(url, answer.headers["location"])
            if _origin(target) != _origin(self._endpoint):
                headers = {"User-Agent": headers["User-Agent"], **wanted}
            url = target
        where = self.url_of(key)
        raise StoreError(f"{where}: the Hub redirects in a circle", url=where)

    def _list(self, prefix: str) -> Iterator[str]:
        folder, _, _ = (self.prefix + prefix).rpartition("/")
        below = f"/{path_quote(folder)}" if folder else ""
        url: str | None = self._api_url("tree", f"{below}?recursive=true&expand=false")
        while url is not None:
            try:
                answer = self._rest.send("GET", url, self._headers())
            except StatusError as exc:
                if exc.headers.get("x-error-code") == "EntryNotFound":
                    return  # There are no empty folders on the Hub, so that this is one.
                raise
            entries = json.loads(answer.read())
            for entry in entries:
                if entry["type"] == "file" and entry["path"].startswith(self.prefix + prefix):
                    yield entry["path"][len(self.prefix) :]
            following = re.search(r'<([^>]+)>;\s*rel="next"', answer.headers.get("link", ""))
            url = following and urljoin(url, following[1])

    def _put(self, path: Path, size: int, key: str) -> None:
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            sample = file.read(_SAMPLE_BYTES)
            digest.update(sample)
            while piece := file.read(CHUNK_BYTES):
                digest.update(piece)
        upload = _Upload(path, size, self.prefix + key, digest.hexdigest())
        if self._goes_into_git(upload, sample):
            content = base64.b64encode(path.read_bytes()).decode()
            value: dict[str, Any] = {"path": upload.name, "encoding": "base64", "content": content}
            self._commit(f"Upload {upload.name}", "file", value)
        else:
            self._put_large(upload)
            value = {"path": upload.name, "algo": "sha256", "oid": upload.sha256, "size": size}
            self._commit(f"Upload {upload.name}", "lfsFile", value)
        verify_size(self, key, size)

    def _goes_into_git(self, upload: _Upload, sample: bytes) -> bool:
        """Ask whether the Hub wants a file within the commit, or as a large one beside it."""
        file: dict[str, Any] = {
            "path": upload.name,
            "sample": base64.b64encode(sample).decode(),
            "size": upload.size,
        }
        answer = self._rest.json(
            "POST", self._api_url("preupload"), self._headers(), {"files": [file]}
        )
        (found,) = answer["files"]
        if found.get("shouldIgnore"):
            url = f"{self.url}/{upload.name}"
            raise StoreError(f"{url}: the data set's .gitignore leaves that name out", url=url)
        return upload.size == 0 or found["uploadMode"] == "regular"

    def _put_large(self, upload: _Upload) -> None:
        """Upload by Git LFS's batch API, in one piece: the Hub takes up to 5 GB so."""
        url = f"{self._endpoint}/datasets/{self.repository}.git/info/lfs/objects/batch"
        named: dict[str, Any] = {"oid": upload.sha256, "size": upload.size}
        headers = {**self._headers(), "Accept": _LFS, "Content-Type": _LFS}
        asked: dict[str, Any] = {
            "operation": "upload",
            "transfers": ["basic"],
            "hash_algo": "sha256",
            "ref": {"name": self.revision},
            "objects": [named],
        }
        answer = self._rest.send("POST", url, headers, body=json.dumps(asked).encode())
        (found,) = json.loads(answer.read())["objects"]
        if "error" in found:
            raise StatusError(int(found["error"]["code"]), {}, json.dumps(found["error"]))
        actions = found.get("actions")
        if not actions:
            return  # Those bytes are there already.
        target = actions["upload"]
        sent = {str(name): str(value) for name, value in (target.get("header") or {}).items()}
        self._rest.send(
            "PUT", target["href"], sent, file=upload.path, size=upload.size
        ).drain_conn()
        if "verify" in actions:
            given = json.dumps(named).encode()
            self._rest.send("POST", actions["verify"]["href"], headers, body=given).drain_conn()

    def _delete(self, key: str) -> None:
        try:
            self._commit(f"Delete {self.prefix + key}", "deletedFile", {"path": self.prefix + key})
        except StatusError as exc:
            if exc.headers.get("x-error-code") != "EntryNotFound":
                raise

    def _commit(self, summary: str, kind: str, value: Mapping[str, Any]) -> None:
        lines = [
            {"key": "header", "value": {"summary": summary, "description": ""}},
            {"key": kind, "value": value},
        ]
        body = "".join(json.dumps(line) + "\n" for line in lines).encode()
        headers = {**self._headers(), "Content-Type": "application/x-ndjson"}
        # Two commits at once would be in each other's way.
        with shared_client(("hf commits", self._endpoint, self.repository), threading.Lock):
            try:
                url = self._api_url("commit")
                self._rest.send("POST", url, headers, body=body).drain_conn()
            except StatusError as exc:
                if exc.status in (409, 412):
                    raise StoreError(
                        f"{self.url}: another commit was in the way ({exc.said})",
                        url=self.url,
                        retryable=True,
                    ) from exc
                raise

    def _check(self) -> None:
        self._rest.send("GET", self._api_url("revision"), self._headers()).drain_conn()

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        if not isinstance(exc, StatusError):
            return None
        said = exc.headers.get("x-error-message") or exc.said
        known = CODES.get(exc.headers.get("x-error-code", ""))
        if known is not None:
            kind, what = known
            if exc.status == 401:
                kind = AccessDenied
            return kind(f"{url}: {what} ({exc.status}: {said}). {self._how()}", url=url)
        error = exc.as_store_error(url, self._how() if exc.status in (401, 403) else "")
        reset = re.search(r"\br=0\b.*\bt=(\d+)", exc.headers.get("ratelimit", ""))
        if exc.status == 429 and reset and error.retry_after_s is None:
            error.retry_after_s = float(reset[1])
        return error

    def _how(self) -> str:
        if "Authorization" in self._headers():
            who = (
                "the token that was given" if self._token else "the token of HF_TOKEN or the login"
            )
        else:
            who = "no token; give the option token, set HF_TOKEN, or run 'hf auth login'"
        return (
            f"Requests for {self.repository} at {self.revision!r} go to {self._endpoint} with {who}"
        )


# The Hub's own codes, in the header X-Error-Code: kind, what it means. Without one the status
# decides.
CODES: Mapping[str, tuple[type[StoreError], str]] = {
    "EntryNotFound": (NotFound, "there is no such file"),
    "RevisionNotFound": (NotFound, "there is no such revision"),
    "RepoNotFound": (NotFound, "there is no such data set, or we may not know of it"),
    "GatedRepo": (AccessDenied, "the data set's terms have to be accepted on its page first"),
}


def _redirects(answer: BaseHTTPResponse) -> bool:
    return answer.status in _REDIRECTS


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _plain(etag: str | None) -> str:
    """An ETag without quotes and without the mark of a weak one.

    Example:
        >>> _plain('W/"abc"'), _plain(None)
        ('abc', '')
    """
    return (etag or "").removeprefix("W/").strip('"')
