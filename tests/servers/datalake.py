"""The used part of Azure's Data Lake interface, with requests' signatures verified.

Azurite has no such interface. What this server does was compared with the official client, which
the tests let talk to it, too; it reads through what that client takes to be the blob interface.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.servers.rest import Answer, Request, SmallServer, bytes_answer, json_answer

ACCOUNT = "tester"
KEY = "c2VjcmV0IG9mIHRoZSB0ZXN0cw=="


@dataclass
class File:
    data: bytes = b""
    etag: str = ""
    pending: dict[int, bytes] = field(default_factory=dict)
    """Appended and not yet flushed, by position."""


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(code)
        self.answer = json_answer({"error": {"code": code, "message": message or code}}, status)
        self.answer.headers["x-ms-error-code"] = code


class DataLake(SmallServer):
    """File systems of one account, by name; each has files by path."""

    page = 3

    def __init__(self) -> None:
        super().__init__()
        self.systems: dict[str, dict[str, File]] = {}
        self.tokens: set[str] = set()
        """Access tokens, and signatures of shared access signatures, that are accepted."""
        self.public: set[str] = set()
        """File systems that anybody may read."""
        self._versions = itertools.count(1)

    @property
    def account_url(self) -> str:
        return f"{self.url}/{ACCOUNT}"

    def answer(self, request: Request) -> Answer:
        try:
            if "x-ms-version" not in request.headers:
                raise Refused(400, "MissingRequiredHeader", "x-ms-version")
            _, account, system, *rest = request.quoted.split("/", 3)
            assert account == ACCOUNT
            if not (system in self.public and request.method in ("GET", "HEAD")):
                self._verify(request)
            with self.lock:
                if request.query.get("resource") == "filesystem" or "restype" in request.query:
                    return self._system(request, unquote(system))
                if unquote(system) not in self.systems:
                    raise Refused(404, "FilesystemNotFound")
                return self._path(request, self.systems[unquote(system)], unquote(rest[0]))
        except Refused as refused:
            answer = refused.answer
            return (
                Answer(answer.status, b"", answer.headers) if request.method == "HEAD" else answer
            )

    def _verify(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if "sig" in request.query:
            if request.query["sig"] not in self.tokens:
                raise Refused(403, "AuthenticationFailed", "Signature did not match.")
        elif given.startswith("Bearer "):
            if given.removeprefix("Bearer ") not in self.tokens:
                raise Refused(401, "InvalidAuthenticationInfo", "Invalid token.")
        elif not given:
            raise Refused(401, "NoAuthenticationInformation", "Server failed to authenticate.")
        elif given != f"SharedKey {ACCOUNT}:{signature(request)}":
            raise Refused(403, "AuthenticationFailed", f"It should sign {to_sign(request)!r}.")

    def _system(self, request: Request, name: str) -> Answer:
        if request.method == "PUT":
            self.systems[name] = {}
            return Answer(201)
        if name not in self.systems:
            raise Refused(404, "FilesystemNotFound")
        files, folder = self.systems[name], request.query.get("directory", "")
        assert request.method == "GET"
        assert request.query["recursive"] == "true"
        below = f"{folder}/" if folder else ""
        found = sorted(path for path in files if path.startswith(below))
        if folder and not found:
            raise Refused(404, "PathNotFound")
        listed: list[dict[str, str]] = []
        folders: set[str] = set()
        for path in found:
            for parent in _parents(path):
                if parent.startswith(below) and parent not in folders:
                    folders.add(parent)
                    listed.append({"name": parent, "isDirectory": "true", "contentLength": "0"})
            listed.append({"name": path, "contentLength": str(len(files[path].data))})
        start = int(request.query.get("continuation", "0"))
        stop = start + min(self.page, int(request.query.get("maxResults", "5000")))
        more = {"x-ms-continuation": str(stop)} if listed[stop:] else {}
        return json_answer({"paths": listed[start:stop]}, 200, **more)

    def _path(self, request: Request, files: dict[str, File], path: str) -> Answer:
        if request.method == "PUT" and "x-ms-rename-source" in request.headers:
            return self._rename(request, files, path)
        if request.method == "PUT":
            assert request.query["resource"] == "file"
            files[path] = File(etag=self._etag())
            return self._done(201, files[path])
        if path not in files:
            if request.method == "HEAD" and any(path in _parents(other) for other in files):
                return Answer(200, b"", {"x-ms-resource-type": "directory"}, length=0)
            raise Refused(404, "PathNotFound")
        file = files[path]
        if request.method == "PATCH":
            return self._patch(request, file)
        if request.method == "DELETE":
            del files[path]
            return Answer(200)
        if request.headers.get("if-match", file.etag) != file.etag:
            raise Refused(412, "ConditionNotMet")
        if "x-ms-range" in request.headers:
            request.headers["range"] = request.headers["x-ms-range"]
        about = {"ETag": file.etag, "x-ms-resource-type": "file", "Last-Modified": _THEN}
        answer = bytes_answer(request, file.data, about)
        if answer.status == 416:
            raise Refused(416, "InvalidRange")
        return answer

    def _patch(self, request: Request, file: File) -> Answer:
        position = int(request.query["position"])
        if request.query["action"] == "append":
            digest = base64.b64encode(hashlib.md5(request.body).digest()).decode()
            if request.headers.get("content-md5", digest) != digest:
                raise Refused(400, "Md5Mismatch")
            if not request.body:
                raise Refused(400, "InvalidHeaderValue", "Content-Length")
            file.pending[position] = request.body
            return Answer(202)
        data = file.data
        for start in sorted(file.pending):
            if start != len(data):
                raise Refused(400, "InvalidFlushPosition")
            data += file.pending[start]
        if position != len(data):
            raise Refused(400, "InvalidFlushPosition")
        file.data, file.etag, file.pending = data, self._etag(), {}
        return self._done(200, file)

    def _rename(self, request: Request, files: dict[str, File], path: str) -> Answer:
        source = unquote(urlsplit(request.headers["x-ms-rename-source"]).path)
        _, system, old = source.split("/", 2)
        if system not in self.systems or old not in self.systems[system]:
            raise Refused(404, "SourcePathNotFound")
        files[path] = self.systems[system].pop(old)
        files[path].etag = self._etag()
        return self._done(201, files[path])

    def _etag(self) -> str:
        return f'"0x{next(self._versions):015X}"'

    def _done(self, status: int, file: File) -> Answer:
        return Answer(status, b"", {"ETag": file.etag, "Last-Modified": _THEN})


_THEN = "Thu, 01 Jan 2026 00:00:00 GMT"


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def to_sign(request: Request) -> str:
    """What Shared Key authorization signs, as its documentation lays it out."""
    headers = dict(request.headers)
    if headers.get("content-length") == "0":
        del headers["content-length"]
    standard = (
        "Content-Encoding Content-Language Content-Length Content-MD5 Content-Type Date "
        "If-Modified-Since If-Match If-None-Match If-Unmodified-Since Range"
    )
    first = "".join(headers.get(name.lower(), "") + "\n" for name in standard.split())
    own = "".join(f"{n}:{headers[n].strip()}\n" for n in sorted(headers) if re.match("x-ms-", n))
    parts = urlsplit(request.target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    asked = "".join(f"\n{name.lower()}:{query[name]}" for name in sorted(query))
    return f"{request.method}\n{first}{own}/{ACCOUNT}{parts.path}{asked}"


def signature(request: Request) -> str:
    key = base64.b64decode(KEY)
    return base64.b64encode(hmac.digest(key, to_sign(request).encode(), "sha256")).decode()
