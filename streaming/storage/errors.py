"""The one family of errors that every store speaks, and the tables that lead into it.

A caller never sees botocore's, urllib3's or any other client's exceptions: `StoreError` and its
kinds name the URL, say whether trying again can help, and survive pickling and being rebuilt from
their message alone (as PyTorch does with a worker's exceptions).
"""

# ruff: noqa: N818  (the kinds are named for what happened, as in the architecture's contract)

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any


class StoreError(Exception):
    """Something went wrong between us and an object store.

    Args:
        message: What happened, where, and what to do; it names the URL.
        url: The object or root concerned; "" if unknown.
        retryable: Whether the same request may well succeed when made again.
        retry_after_s: Seconds that the store asked us to wait, or None.

    Example:
        >>> error = StoreError("s3://b/k: cut off", url="s3://b/k", retryable=True)
        >>> error.retryable, str(error)
        (True, 's3://b/k: cut off')
        >>> StoreError("only a message").retryable
        False
    """

    retryable_by_default = False

    def __init__(
        self,
        message: str = "",
        *,
        url: str = "",
        retryable: bool | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.url = url
        self.retryable = self.retryable_by_default if retryable is None else retryable
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self),), dict(self.__dict__)

    def retold(self, message: str) -> StoreError:
        """The same kind of error about the same URL, with another message.

        Args:
            message: The new message.

        Returns:
            An error of this one's class, with its other attributes.
        """
        error = type(self)(message)
        error.__dict__.update(self.__dict__)
        return error


class NotFound(StoreError, FileNotFoundError):
    """There is no such object, or no such bucket (the message says which where the store does)."""


class AccessDenied(StoreError, PermissionError):
    """The store knows us and refuses, or does not know us: the message says how we asked."""


class Throttled(StoreError):
    """The store asks for less: 429, 503 or a provider's own name for it. Always worth a retry."""

    retryable_by_default = True


class ObjectChanged(StoreError):
    """The object is no longer the version that was asked for (its ETag differs)."""


class UnknownScheme(StoreError, ValueError):
    """No store is registered for the URL's scheme."""


class MissingPackage(StoreError, ModuleNotFoundError):
    """The package that a scheme's client needs is not installed; the message says what to run."""


def retry_after_seconds(value: str | None, now: float | None = None) -> float | None:
    """Read a `Retry-After` header: seconds, or an HTTP date (RFC 9110, section 10.2.3).

    Args:
        value: The header's value, or None.
        now: The present as a Unix time in seconds; the clock's unless given.

    Returns:
        Seconds to wait, at least 0; None if there is no header or it makes no sense.

    Example:
        >>> retry_after_seconds("7")
        7.0
        >>> retry_after_seconds("Thu, 01 Jan 1970 00:01:40 GMT", now=90.0)
        10.0
        >>> retry_after_seconds("soon") is None
        True
    """
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError):
        return None
    return max(0.0, when - (time.time() if now is None else now))


# What an HTTP status means, for every store that speaks HTTP. What is not listed is a plain
# StoreError; RETRYABLE_STATUS says which of those are worth another try.
STATUS: Mapping[int, tuple[type[StoreError], str]] = {
    401: (AccessDenied, "access was denied (401: not authenticated)"),
    403: (AccessDenied, "access was denied (403)"),
    404: (NotFound, "there is no such object (404)"),
    410: (NotFound, "the object is gone (410)"),
    412: (ObjectChanged, "the object has changed since it was first read (412)"),
    416: (StoreError, "the object does not have the bytes that were asked for (416)"),
    429: (Throttled, "the store asks for fewer requests (429)"),
    503: (Throttled, "the store is overloaded or asks for fewer requests (503)"),
}
RETRYABLE_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504, 509})


def from_status(
    status: int, url: str, *, detail: str = "", hint: str = "", retry_after: str | None = None
) -> StoreError:
    """Turn an HTTP status into the error that stands for it.

    Args:
        status: The response's status code.
        url: The object's URL.
        detail: What the store itself said, put in parentheses.
        hint: What to do about it, appended as a sentence.
        retry_after: The `Retry-After` header's value.

    Returns:
        The error, to be raised by the caller.

    Example:
        >>> error = from_status(503, "s3://b/k", retry_after="2")
        >>> type(error).__name__, error.retryable, error.retry_after_s
        ('Throttled', True, 2.0)
    """
    kind, what = STATUS.get(status, (StoreError, f"the store answered with status {status}"))
    said = f" ({detail})" if detail else ""
    more = f". {hint}" if hint else ""
    return kind(
        f"{url}: {what}{said}{more}",
        url=url,
        retryable=status in RETRYABLE_STATUS,
        retry_after_s=retry_after_seconds(retry_after),
    )


# What the standard library and the HTTP clients raise when a connection fails, by class name along
# an exception's ancestry, so that no client has to be imported to be recognised: what happened, and
# whether trying again can help. A certificate that can't be verified won't be by asking once more.
_CONNECTION: Mapping[str, tuple[str, bool]] = {
    "SSLCertVerificationError": ("the server's certificate could not be verified", False),
    "ReadTimeoutError": ("no data came in time", True),
    "ReadTimeout": ("no data came in time", True),
    "ConnectTimeoutError": ("no connection could be made in time", True),
    "ConnectTimeout": ("no connection could be made in time", True),
    "IncompleteRead": ("the connection was cut before the whole body had come", True),
    "IncompleteReadError": ("the connection was cut before the whole body had come", True),
    "ResponseStreamingError": ("the connection was cut before the whole body had come", True),
    "ChunkedEncodingError": ("the connection was cut before the whole body had come", True),
    "ProtocolError": ("the connection was cut", True),
    "ConnectionClosedError": ("the connection was closed before an answer came", True),
    "NewConnectionError": ("no connection could be made", True),
    "EndpointConnectionError": ("no connection could be made", True),
    "ResponseError": ("the request was redirected again and again", False),
    "ProxyError": ("the proxy could not be used", True),
    "ProxyConnectionError": ("the proxy could not be used", True),
    "SSLError": ("the encrypted connection failed", True),
    "HTTPClientError": ("the connection failed", True),
    "RequestException": ("the connection failed", True),
    "TimeoutError": ("no answer came in time", True),
    "gaierror": ("the host's name could not be resolved", True),
    "HTTPException": ("the connection was cut", True),
    "ConnectionError": ("the connection failed", True),
    "EOFError": ("the connection was cut", True),
}
_TRANSPORT = (OSError, EOFError, http.client.HTTPException, ssl.SSLError, socket.gaierror)
_CLIENT_PACKAGES = ("urllib3", "requests", "botocore", "httpx", "httpcore", "google", "oci")


def _chain(exc: BaseException) -> list[BaseException]:
    """An exception and what it wraps, innermost last."""
    seen: list[BaseException] = []
    todo: list[BaseException] = [exc]
    while todo:
        one = todo.pop(0)
        if one in seen:
            continue
        seen.append(one)
        inner = [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
        todo += [i for i in inner if isinstance(i, BaseException)]
    return seen


def _is_transport(exc: BaseException) -> bool:
    package = type(exc).__module__.partition(".")[0]
    return isinstance(exc, _TRANSPORT) or package in _CLIENT_PACKAGES


def from_connection(exc: BaseException, url: str) -> StoreError | None:
    """Turn a failed connection, whichever client reports it, into the error that stands for it.

    Args:
        exc: What was raised by the standard library, urllib3, requests, botocore, httpx …
        url: The object's URL.

    Returns:
        The error, or None if the exception is not about a connection (a bug, say).

    Example:
        >>> from_connection(ConnectionResetError("reset"), "s3://b/k").retryable
        True
        >>> from_connection(KeyError("x"), "s3://b/k") is None
        True
    """
    # A bug that happens while a failed connection is being handled is still a bug.
    if not _is_transport(exc):
        return None
    chain = [one for one in _chain(exc) if _is_transport(one)]
    if any(isinstance(one, ssl.SSLCertVerificationError) for one in chain):
        what, retryable = _CONNECTION["SSLCertVerificationError"]
        hint = ". Name the authority's certificates: the option ca_bundle, or SSL_CERT_FILE"
        return StoreError(f"{url}: {what} ({exc}){hint}", url=url, retryable=retryable)
    for one in chain:
        for ancestor in type(one).__mro__:
            if ancestor.__name__ in _CONNECTION:
                what, retryable = _CONNECTION[ancestor.__name__]
                said = f"{type(exc).__name__}: {exc}"
                return StoreError(f"{url}: {what} ({said})", url=url, retryable=retryable)
    return None
