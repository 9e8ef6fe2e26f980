"""An HTTP proxy before a real server, which counts requests and spoils some of them on purpose.

Importable without pytest:

    with FaultProxy(upstream_url) as proxy:
        proxy.add(Fault(status=503, retry_after="0", share=0.05))
        ...                                  # talk to proxy.url
        print(proxy.count(), proxy.spoiled)
"""

from __future__ import annotations

import contextlib
import http.client
import random
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import wait
from urllib.parse import unquote, urlsplit

PIECE = 1 << 16


@dataclass
class Fault:
    """What to do to which requests. The first fault of a proxy that applies is the one."""

    status: int | None = None
    """Answer with this status instead of asking the server."""
    retry_after: str | None = None
    """Retry-After header of that answer."""
    text: str = ""
    """Body of that answer."""
    cut_after: int | None = None
    """Reset the connection after so many bytes of the body."""
    short_by: int | None = None
    """Leave out the body's last bytes, and close the connection in good order."""
    stall_after: int | None = None
    """Send nothing more after so many bytes of the body, until the client goes away."""
    delay_s: float = 0.0
    """Wait before answering."""
    bandwidth: float | None = None
    """Bytes a second that the body is sent with, on each connection."""
    drop_headers: tuple[str, ...] = ()
    """Headers of the client's request that the server does not get to see."""

    method: str = ""
    """Only requests by this method."""
    key: str = ""
    """Only requests whose path matches this regular expression somewhere."""
    share: float = 1.0
    """Of those, this share, drawn by the proxy's generator."""
    skip: int = 0
    """Let so many pass first."""
    times: int | None = None
    """Apply to so many, then no more."""
    applied: int = field(default=0, init=False)
    """To how many it has been applied."""


@dataclass(eq=False)
class Seen:
    """A request, listed from its arrival on; its figures grow while it is answered."""

    method: str
    path: str
    """Decoded, without the query."""
    query: str
    headers: dict[str, str]
    """Names in lower case."""
    fault: Fault | None
    status: int = 0
    """The answer's; 0 until there is one."""
    sent: int = 0
    """Bytes of the body for the client."""
    received: int = 0
    """Bytes of the body from the client."""


class FaultProxy:
    """Stands before `upstream`; a context manager.

    Args:
        upstream: The real server, "http://127.0.0.1:1234".
        tls: Server-side context, to be spoken to by https.
        seed: Seeds the draws of faults with a share below 1.
    """

    def __init__(self, upstream: str, *, tls: ssl.SSLContext | None = None, seed: int = 0) -> None:
        parts = urlsplit(upstream)
        self.upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.seen: list[Seen] = []
        self.connections = 0
        self._tls = tls
        self._faults: list[Fault] = []
        self._rng = random.Random(seed)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        with self._changed:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def add(self, fault: Fault) -> Fault:
        """Spoil requests from now on."""
        with self._changed:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Forget all faults and all that was seen."""
        with self._changed:
            self._faults.clear()
            self.seen.clear()

    def matching(self, key: str = "", method: str = "") -> list[Seen]:
        """The requests whose path matches a regular expression, by a method."""
        with self._changed:
            return [
                s
                for s in self.seen
                if re.search(key, s.path) and (not method or s.method == method)
            ]

    def count(self, key: str = "", method: str = "") -> int:
        """How many requests there were."""
        return len(self.matching(key, method))

    def bytes(self, key: str = "", method: str = "GET") -> int:
        """How many bytes of bodies were sent to clients."""
        return sum(s.sent for s in self.matching(key, method))

    @property
    def spoiled(self) -> int:
        """How many requests a fault was applied to."""
        with self._changed:
            return sum(s.fault is not None for s in self.seen)

    def wait_for(self, enough: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Wait until something is so; looked at whenever a request has been answered."""
        with self._changed:
            if not self._changed.wait_for(enough, timeout_s):
                raise TimeoutError("the proxy did not see what was waited for")

    def pause(self, seconds: float) -> None:
        """Let time pass, but not beyond the proxy's end."""
        self._stopping.wait(seconds)

    def choose(self, method: str, path: str) -> Fault | None:
        with self._changed:
            for fault in self._faults:
                if fault.method not in ("", method) or not re.search(fault.key, path):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                if fault.times is not None and fault.applied >= fault.times:
                    continue
                if fault.share < 1.0 and self._rng.random() >= fault.share:
                    continue
                fault.applied += 1
                return fault
        return None

    def record(self, seen: Seen) -> None:
        with self._changed:
            self.seen.append(seen)

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # Connections that break are this server's business.


class _Spoiled(Exception):
    """The connection is to be ended here."""


def _handler_of(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 1 << 16

        def setup(self) -> None:
            if proxy._tls is not None:
                self.request = proxy._tls.wrap_socket(self.request, server_side=True)
            with proxy._changed:
                proxy._open.add(self.request)
                proxy.connections += 1
            super().setup()

        def finish(self) -> None:
            with proxy._changed:
                proxy._open.discard(self.request)
            super().finish()
            if proxy._tls is not None:
                self.request.close()  # The server only knows the socket beneath.

        def handle_expect_100(self) -> bool:
            going_on = super().handle_expect_100()
            self.wfile.flush()  # The client waits for it before it sends the body.
            return going_on

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _any(self) -> None:
            parts = urlsplit(self.path)
            path = unquote(parts.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            fault = proxy.choose(self.command, path)
            self.seen = Seen(self.command, path, parts.query, headers, fault)
            proxy.record(self.seen)
            try:
                if fault is not None:
                    proxy.pause(fault.delay_s)
                if fault is not None and fault.status is not None:
                    self._refuse(fault)
                else:
                    self._forward(fault)
                self.wfile.flush()
            except (_Spoiled, OSError, http.client.HTTPException):
                self.close_connection = True
            finally:
                proxy.notify()

        do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _any

        def _refuse(self, fault: Fault) -> None:
            # The request's body is read all the same: else its rest would be the next request.
            for _ in self._request_body():
                pass
            assert fault.status is not None
            self.seen.status = fault.status
            data = b"" if self.command == "HEAD" else fault.text.encode()
            self.send_response(fault.status)
            if fault.retry_after is not None:
                self.send_header("Retry-After", fault.retry_after)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.seen.sent = len(data)
            self.wfile.write(data)

        def _request_body(self) -> Iterator[bytes]:
            left = int(self.headers.get("Content-Length", 0))
            while left:
                piece = self.rfile.read(min(left, PIECE))
                if not piece:
                    raise _Spoiled
                left -= len(piece)
                self.seen.received += len(piece)
                yield piece

        def _forward(self, fault: Fault | None) -> None:
            upstream = http.client.HTTPConnection(*proxy.upstream, timeout=60)
            try:
                upstream.putrequest(self.command, self.path, True, True)
                dropped = {"connection", "expect", *(fault.drop_headers if fault else ())}
                for name, value in self.headers.items():
                    if name.lower() not in dropped:
                        upstream.putheader(name, value)
                upstream.putheader("Connection", "close")
                upstream.endheaders()
                for piece in self._request_body():
                    upstream.send(piece)
                answer = upstream.getresponse()
                self._answer(answer, fault)
            finally:
                upstream.close()

        def _answer(self, answer: http.client.HTTPResponse, fault: Fault | None) -> None:
            self.seen.status = answer.status
            self.send_response_only(answer.status)
            length = answer.getheader("Content-Length")
            body = self.command != "HEAD" and answer.status not in (204, 304)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "keep-alive"):
                    self.send_header(name, value)
            if length is None and body:
                data = answer.read()
                pieces = iter([data])
                length = str(len(data))
                self.send_header("Content-Length", length)
            else:
                pieces = iter(lambda: answer.read(PIECE), b"")
            self.end_headers()
            if body:
                self._body(pieces, int(length or 0), fault)

        def _body(self, pieces: Iterator[bytes], length: int, fault: Fault | None) -> None:
            limit = length
            if fault is not None:
                if fault.short_by is not None:
                    limit = max(0, length - fault.short_by)
                for at in (fault.cut_after, fault.stall_after):
                    limit = limit if at is None else min(limit, at)
            for whole in pieces:
                piece = whole[: limit - self.seen.sent]
                self.seen.sent += len(piece)
                self._send(piece, fault)
                if self.seen.sent >= limit and fault is not None:
                    self._end(fault)

        def _send(self, piece: bytes, fault: Fault | None) -> None:
            if fault is None or fault.bandwidth is None:
                self.wfile.write(piece)
                return
            step = max(1, int(fault.bandwidth / 50))
            for start in range(0, len(piece), step):
                part = piece[start : start + step]
                self.wfile.write(part)
                self.wfile.flush()
                proxy.pause(len(part) / fault.bandwidth)

        def _end(self, fault: Fault) -> None:
            """What happens once all that is to be sent has been."""
            if fault.cut_after is None and fault.short_by is None and fault.stall_after is None:
                return
            self.wfile.flush()
            if fault.cut_after is not None:
                # To close with a lingering time of zero is to send a reset.
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
            elif fault.stall_after is not None:
                while not proxy._stopping.is_set():
                    # Not select.select, which takes no descriptors above 1023.
                    if wait([self.connection], 0.05):
                        break  # The client sends nothing now, so this is its going away.
            raise _Spoiled

    return Handler
