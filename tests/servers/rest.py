"""What the small servers of single providers have in common: HTTP on loopback, one method each."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Request:
    """A request, its body included."""

    method: str
    target: str
    """As it came: the path, still quoted, and the query."""
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def quoted(self) -> str:
        return urlsplit(self.target).path

    @property
    def path(self) -> str:
        return unquote(self.quoted)

    @property
    def query(self) -> dict[str, str]:
        found = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        return {name: values[-1] for name, values in found.items()}

    def json(self) -> Any:
        return json.loads(self.body or b"{}")


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    """What to say of the body's length where there is no body (HEAD)."""


def json_answer(value: object, status: int = 200, **headers: str) -> Answer:
    return Answer(
        status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers}
    )


def bytes_answer(request: Request, data: bytes, headers: Mapping[str, str]) -> Answer:
    """Answer with an object's bytes, or those of the range that was asked for."""
    if request.method == "HEAD":
        return Answer(200, b"", dict(headers), length=len(data))
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
    if match is None:
        return Answer(200, data, dict(headers))
    start, last = int(match[1]), int(match[2] or len(data) - 1)
    if start >= len(data):
        return Answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
    part = data[start : last + 1]
    span = f"bytes {start}-{start + len(part) - 1}/{len(data)}"
    return Answer(206, part, {**headers, "Content-Range": span})


def etag_of(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


class SmallServer:
    """Answers requests by `answer`, in a thread for each connection; a context manager.

    What has been asked is kept in `seen`. State may be changed under `lock`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.seen: list[Request] = []
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, request: Request) -> Answer:
        raise NotImplementedError

    def count(self, method: str = "", path: str = "") -> int:
        with self.lock:
            return sum(
                method in ("", one.method) and re.search(path, one.path) is not None
                for one in self.seen
            )

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # Clients that go away are the tests' business.


def _handler_of(server: SmallServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _any(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            request = Request(self.command, self.path, headers, body)
            with server.lock:
                server.seen.append(request)
            try:
                answer = server.answer(request)
            except Exception as exc:
                answer = Answer(500, f"the test's server failed: {exc!r}".encode())
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status != 204:
                length = len(answer.body) if answer.length is None else answer.length
                self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _any

    return Handler
