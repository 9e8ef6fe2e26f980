"""Files of any web server, read-only, through urllib3 (which boto3 and google-auth bring)."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from streaming.storage.base import CHUNK_BYTES, Body, ObjectInfo, Store
from streaming.storage.errors import StoreError
from streaming.storage.rest import Rest, StatusError, range_header, total_of

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

__all__ = ["HTTPStore"]

# What RFC 3986 lets stand in a path as it is.
_PLAIN = "/!$&'()*+,;=:@~"
_REDIRECTS = 5


class HTTPStore(Store):
    """What lies below `https://host/path` or `http://host/path`.

    A user and password in the URL become an Authorization header; a query (a presigned URL's, say)
    is sent with each request. Neither appears in errors. Redirects are followed. Where a server
    does not know ranges, the bytes before the range are read and thrown away.

    Args:
        url: The root.
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        headers: Headers to send with each request ({"Authorization": "Bearer …"}).
        ca_bundle: File of certificates to trust; `REQUESTS_CA_BUNDLE`, `SSL_CERT_FILE` or
            certifi's unless given.
        max_connections: Most connections that a process keeps open to the host.

    Raises:
        ValueError: If the URL names no host.

    Example:
        >>> HTTPStore("https://me:secret@example.org/data").url_of("train/index.json")
        'https://example.org/data/train/index.json'
    """

    can_write: ClassVar[bool] = False
    can_list: ClassVar[bool] = False

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        headers: Mapping[str, str] | None = None,
        ca_bundle: str | os.PathLike[str] | None = None,
        max_connections: int = 64,
    ) -> None:
        parts = urlsplit(url)
        if not parts.hostname:
            raise ValueError(f"{url} names no host: write https://host/path")
        host = parts.netloc.rpartition("@")[2]
        super().__init__(urlunsplit((parts.scheme, host, parts.path, "", "")), timeout_s=timeout_s)
        self._query = parts.query
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "shardstream"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            token = base64.b64encode(pair.encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._headers.update(headers or {})
        self._rest = Rest(timeout_s, max_connections, None if ca_bundle is None else str(ca_bundle))

    def _request(self, method: str, key: str, **headers: str) -> BaseHTTPResponse:
        """Send a request; the answer's body is still to be read."""
        address = f"{self.url}/{quote(key, safe=_PLAIN)}"
        if self._query:
            address += f"?{self._query}"
        return self._rest.send(method, address, {**self._headers, **headers}, redirects=_REDIRECTS)

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        headers = range_header(start, stop)
        if etag is not None and not etag.startswith("W/"):  # Weak ones never match (RFC 9110).
            headers["If-Match"] = etag
        answer = self._request("GET", key, **headers)
        length = answer.headers.get("Content-Length")
        size = None if length is None else int(length)
        chunks: Iterator[bytes | memoryview] = answer.stream(CHUNK_BYTES, decode_content=False)
        from_whole = "Range" in headers and answer.status != 206
        if from_whole:
            chunks = _cut(chunks, start, stop)
            size = None  # Whether the object has them all is seen when they have come.
        return Body(
            chunks,
            length=size,
            etag=answer.headers.get("ETag"),
            close=answer.close,
            interrupt=lambda: answer.shutdown(),
            from_whole=from_whole,
            total=total_of(answer.headers.get("Content-Range")),
        )

    def _stat(self, key: str) -> ObjectInfo:
        answer = self._request("HEAD", key)
        answer.drain_conn()
        length = answer.headers.get("Content-Length")
        if length is None:
            url = self.url_of(key)
            raise StoreError(f"{url}: the server does not say the file's size", url=url)
        return ObjectInfo(key, int(length), answer.headers.get("ETag"))

    def _error(self, exc: BaseException, url: str) -> StoreError | None:
        if isinstance(exc, StatusError):
            sent = "was" if "Authorization" in self._headers else "was not"
            hint = f"An Authorization header {sent} sent; the storage option headers gives one"
            return exc.as_store_error(url, hint)
        return None

    def _check(self) -> None:
        """Nothing can be asked of a folder on the web."""


def _cut(
    chunks: Iterator[bytes | memoryview], start: int, stop: int | None
) -> Iterator[memoryview]:
    """The bytes [start, stop) of a stream."""
    at = 0
    for chunk in chunks:
        view = memoryview(chunk)
        piece = view[max(0, start - at) : None if stop is None else max(0, stop - at)]
        at += len(view)
        if piece:
            yield piece
        if stop is not None and at >= stop:
            return
