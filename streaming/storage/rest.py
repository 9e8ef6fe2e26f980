"""HTTP for the stores whose own clients would retry, buffer or hide what we have to see.

Those clients are used for what they know best, the credentials; the requests themselves are made
here: one attempt each, no redirect followed unasked, bodies as they come.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from streaming.storage.base import CHUNK_BYTES, Body
from streaming.storage.clients import shared_client
from streaming.storage.errors import StoreError, from_status

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

__all__ = ["Rest", "StatusError", "path_quote", "range_header"]

_SAID_BYTES = 2048


class StatusError(Exception):
    """A server answered with a status that was not hoped for.

    Args:
        status: The status code.
        headers: The answer's headers, in any case.
        text: The first two KiB of the answer's body.
    """

    def __init__(self, status: int, headers: Mapping[str, str], text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.headers = headers
        self.text = text

    @property
    def said(self) -> str:
        """What the server says happened: a JSON answer's message, or the text in one line."""
        with contextlib.suppress(ValueError, AttributeError):
            answer = json.loads(self.text)
            for name in ("message", "error", "error_code", "code"):
                if isinstance(answer.get(name), str) and answer[name]:
                    return str(answer[name])
        return " ".join(self.text.split())[:200]

    @property
    def code(self) -> str:
        """The provider's own code, where the answer is JSON and has one; else ""."""
        with contextlib.suppress(ValueError, AttributeError):
            answer = json.loads(self.text)
            return str(answer.get("error_code") or answer.get("code") or "")
        return ""

    def as_store_error(self, url: str, hint: str = "") -> StoreError:
        """The error that stands for the status; the hint is given where access was refused."""
        return from_status(
            self.status,
            url,
            detail=self.said,
            hint=hint if self.status in (401, 403) else "",
            retry_after=self.headers.get("retry-after"),
        )


@dataclass(frozen=True, slots=True)
class Rest:
    """Requests over the process's own pool of connections.

    Args:
        timeout_s: Longest wait for a connection and for the next bytes on one, in seconds.
        max_connections: Most connections kept open to one host.
        ca_bundle: File of certificates to trust. Unless given: `REQUESTS_CA_BUNDLE`,
            `SSL_CERT_FILE`, or the certificates that come with certifi.
    """

    timeout_s: float
    max_connections: int = 64
    ca_bundle: str | None = None

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        body: bytes | Iterable[bytes] | None = None,
        file: Path | None = None,
        size: int = 0,
        fine: tuple[int, ...] = (200, 201, 204, 206),
        redirects: int = 0,
    ) -> BaseHTTPResponse:
        """Make one request; the answer's body is still to be read.

        Args:
            method: GET, PUT, …
            url: Where to.
            headers: Header fields.
            body: What to send; in pieces only together with a Content-Length among the headers.
            file: Or a file to send, of
            size: that many bytes.
            fine: Statuses that are an answer.
            redirects: How many to follow; an Authorization header does not go to another host.

        Returns:
            urllib3's response. Read it to its end, or close it.

        Raises:
            StatusError: If the status is none of `fine`.
            urllib3.exceptions.HTTPError: If the connection fails.
        """
        pool = self._pool(urlsplit(url))
        sent: Mapping[str, str] = headers
        with contextlib.ExitStack() as stack:
            content: Any = body
            if file is not None:
                content = stack.enter_context(open(file, "rb"))
                sent = {**headers, "Content-Length": str(size)}
            answer: BaseHTTPResponse = pool.request(
                method,
                url,
                body=content,
                headers=sent,
                retries=_only_redirects(redirects) if redirects else False,
                redirect=bool(redirects),
                preload_content=False,
            )
        if answer.status not in fine:
            said = answer.read(_SAID_BYTES, decode_content=True).decode("utf-8", "replace")
            answer.drain_conn()
            raise StatusError(answer.status, answer.headers, said)
        return answer

    def json(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send JSON, and read the JSON answer ({} where the answer is empty)."""
        given = None if body is None else json.dumps(body).encode()
        sent = headers if body is None else {**headers, "Content-Type": "application/json"}
        answer = self.send(method, url, sent, body=given)
        text = answer.read()
        answer.release_conn()
        return json.loads(text) if text.strip() else {}

    def head(self, url: str, headers: Mapping[str, str], **options: Any) -> Mapping[str, str]:
        """The headers of the answer to a HEAD request."""
        answer = self.send("HEAD", url, headers, **options)
        answer.drain_conn()
        found: Mapping[str, str] = answer.headers
        return found

    def _pool(self, parts: Any) -> Any:
        proxy = _proxy_for(parts.scheme, parts.hostname or "")
        return shared_client(("rest", self, proxy), lambda: _make_pool(self, proxy))


def body_of(
    answer: BaseHTTPResponse, start: int, stop: int | None, *, etag: str | None, url: str
) -> Body:
    """An answer's bytes as a `Body`.

    Args:
        answer: What a GET was answered with.
        start: First byte that was asked for.
        stop: Byte to stop before; None for the object's end.
        etag: The version that the bytes are of.
        url: The object's URL, for the error.

    Returns:
        The body.

    Raises:
        StoreError: If a range was asked for and the whole object comes.
    """
    if (start or stop is not None) and answer.status != 206:
        answer.close()
        raise StoreError(f"{url}: a range was asked for, but all bytes came", url=url)
    length = answer.headers.get("content-length")
    return Body(
        answer.stream(CHUNK_BYTES, decode_content=False),
        length=None if length is None else int(length),
        etag=etag,
        close=answer.close,
        interrupt=lambda: answer.shutdown(),
        total=total_of(answer.headers.get("content-range")),
    )


def total_of(content_range: str | None) -> int | None:
    """The object's size that a Content-Range header gives; None if it gives none.

    Example:
        >>> total_of("bytes 5-9/1234"), total_of("bytes 5-9/*"), total_of(None)
        (1234, None, None)
    """
    total = (content_range or "").rpartition("/")[2]
    return int(total) if total.isdecimal() else None


def range_header(start: int, stop: int | None) -> dict[str, str]:
    """The header field that asks for the bytes [start, stop); none for the whole.

    Example:
        >>> range_header(5, 10), range_header(5, None), range_header(0, None)
        ({'Range': 'bytes=5-9'}, {'Range': 'bytes=5-'}, {})
    """
    if not start and stop is None:
        return {}
    return {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"}


def path_quote(path: str) -> str:
    """A path as part of a URL: all but letters, digits, '/' and '-._~' escaped.

    Example:
        >>> path_quote("a b/ü#1.mds")
        'a%20b/%C3%BC%231.mds'
    """
    return quote(path, safe="/")


def _proxy_for(scheme: str, host: str) -> str | None:
    """The proxy that the environment names (HTTPS_PROXY, NO_PROXY, …), if any."""
    from urllib.request import getproxies, proxy_bypass

    proxy = getproxies().get(scheme)
    return None if proxy is None or proxy_bypass(host) else proxy


def _only_redirects(count: int) -> Any:
    """What tells urllib3 to repeat nothing but requests that are sent elsewhere."""
    import urllib3

    return urllib3.Retry(
        total=None,
        connect=0,
        read=0,
        status=0,
        other=0,
        redirect=count,
        respect_retry_after_header=False,
    )


def _make_pool(options: Rest, proxy: str | None) -> Any:
    import certifi
    import urllib3

    trusted = (
        options.ca_bundle
        or os.environ.get("REQUESTS_CA_BUNDLE")
        or os.environ.get("SSL_CERT_FILE")
        or certifi.where()
    )
    settings: dict[str, Any] = {
        "maxsize": options.max_connections,
        "retries": False,
        "timeout": urllib3.Timeout(connect=options.timeout_s, read=options.timeout_s),
        "ca_certs": trusted,
    }
    return (
        urllib3.PoolManager(**settings)
        if proxy is None
        else urllib3.ProxyManager(proxy, **settings)
    )
