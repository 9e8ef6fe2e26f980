"""Files of any web server, read-only, through urllib3 (which boto3 and google-auth bring)."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from streaming.storage.base import CHUNK_BYTES, Body, ObjectInfo, Store
from streaming.storage.clients import environment_token, shared_client
from streaming.storage.errors import StoreError, from_status

__all__ = ["HTTPStore"]

_PROXIES = ("http_", "https_", "no_", "all_", "HTTP_", "HTTPS_", "NO_", "ALL_")
# What RFC 3986 lets stand in a path as it is.
_PLAIN = "/!$&'()*+,;=:@~"


class HTTPStore(Store):
    """What lies below `https://host/path` or `http://host/path`.

    A user and password in the URL become an Authorization header; a query (a presigned URL's, say)
    is sent with each request. Neither appears in errors. Redirects are followed. Where a server
    does not know ranges, the bytes before the range are read and thrown away.

    Args:
        url: The root.
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        headers: Headers to send with each request ({"Authorization": "Bearer …"}).
        ca_bundle: File of certificates to trust; `SSL_CERT_FILE` or the system's unless given.
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
        self._options = (
            "http",
            None if ca_bundle is None else os.fspath(ca_bundle),
            max_connections,
            timeout_s,
            environment_token("SSL_CERT_", *_PROXIES),
            parts.scheme,
            host,
        )

    def _request(self, method: str, key: str, **headers: str) -> Any:
        """Send a request; the answer's body is still to be read, unless it is an error."""
        pool = shared_client(self._options, lambda: _make_pool(*self._options))
        address = f"{self.url}/{quote(key, safe=_PLAIN)}"
        if self._query:
            address += f"?{self._query}"
        answer = pool.request(
            method, address, headers={**self._headers, **headers}, preload_content=False
        )
        if answer.status >= 400:
            answer.drain_conn()
            hint = ""
            if answer.status in (401, 403):
                given = "was" if "Authorization" in self._headers else "was not"
                hint = f"An Authorization header {given} sent: storage option headers"
            raise from_status(
                answer.status,
                self.url_of(key),
                detail=answer.reason or "",
                hint=hint,
                retry_after=answer.headers.get("Retry-After"),
            )
        return answer

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Body:
        headers = {}
        partial = bool(start) or stop is not None
        if partial:
            headers["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        if etag is not None and not etag.startswith("W/"):  # Weak ones never match (RFC 9110).
            headers["If-Match"] = etag
        answer = self._request("GET", key, **headers)
        length = answer.headers.get("Content-Length")
        chunks = answer.stream(CHUNK_BYTES, decode_content=False)
        size = None if length is None else int(length)
        if partial and answer.status == 200:
            chunks = _cut(chunks, start, stop)
            size = None  # Whether the object has them all is seen when they have come.
        return Body(
            chunks, length=size, etag=answer.headers.get("ETag"), close=lambda: _give_up(answer)
        )

    def _stat(self, key: str) -> ObjectInfo:
        answer = self._request("HEAD", key)
        answer.drain_conn()
        length = answer.headers.get("Content-Length")
        if length is None:
            url = self.url_of(key)
            raise StoreError(f"{url}: the server does not say the file's size", url=url)
        return ObjectInfo(key, int(length), answer.headers.get("ETag"))

    def _check(self) -> None:
        """Nothing can be asked of a folder on the web."""


def _cut(chunks: Iterator[bytes], start: int, stop: int | None) -> Iterator[memoryview]:
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


def _give_up(answer: Any) -> None:
    """Return a connection that has been read to its end; close one that has not."""
    answer.release_conn() if answer.closed else answer.close()


def _make_pool(
    kind: str,
    ca_bundle: str | None,
    max_connections: int,
    timeout_s: float,
    environment: str,
    scheme: str,
    host: str,
) -> Any:
    from urllib.request import getproxies, proxy_bypass

    import urllib3

    settings: dict[str, Any] = {
        "maxsize": max_connections,
        "timeout": urllib3.Timeout(connect=timeout_s, read=timeout_s),
        # Redirects, and nothing else, are repeated here.
        "retries": urllib3.Retry(
            total=None,
            connect=0,
            read=0,
            status=0,
            other=0,
            redirect=5,
            respect_retry_after_header=False,
        ),
        "ca_certs": ca_bundle,
    }
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if proxy and not proxy_bypass(host):
        return urllib3.ProxyManager(proxy, **settings)
    return urllib3.PoolManager(**settings)
