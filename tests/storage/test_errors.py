"""One family of errors, which survives pickling and being rebuilt from its message."""

import http.client
import pickle
import socket
import ssl

import pytest

from streaming.storage import (
    AccessDenied,
    MissingPackage,
    NotFound,
    ObjectChanged,
    StoreError,
    Throttled,
    UnknownScheme,
)
from streaming.storage.clients import require
from streaming.storage.errors import from_connection, from_status, retry_after_seconds

KINDS = [
    StoreError,
    NotFound,
    AccessDenied,
    Throttled,
    ObjectChanged,
    UnknownScheme,
    MissingPackage,
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_survives(kind):
    error = kind("s3://b/k: gone", url="s3://b/k", retryable=True, retry_after_s=3.0)
    for copy in (pickle.loads(pickle.dumps(error)), error.retold(str(error))):
        assert type(copy) is kind
        assert str(copy) == "s3://b/k: gone"
        assert (copy.url, copy.retryable, copy.retry_after_s) == ("s3://b/k", True, 3.0)
    assert str(type(error)("only a message")) == "only a message"


def test_kinds_are_what_callers_already_catch():
    assert isinstance(NotFound("x"), FileNotFoundError)
    assert isinstance(AccessDenied("x"), PermissionError)
    assert isinstance(UnknownScheme("x"), ValueError)
    assert isinstance(MissingPackage("x"), ImportError)
    assert Throttled("x").retryable
    assert not StoreError("x").retryable


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, StoreError, False),
        (401, AccessDenied, False),
        (403, AccessDenied, False),
        (404, NotFound, False),
        (412, ObjectChanged, False),
        (416, StoreError, False),
        (429, Throttled, True),
        (500, StoreError, True),
        (502, StoreError, True),
        (503, Throttled, True),
        (504, StoreError, True),
    ],
)
def test_status(status, kind, retryable):
    error = from_status(status, "s3://b/k", detail="said so", hint="Do this")
    assert type(error) is kind
    assert error.retryable is retryable
    assert error.url == "s3://b/k"
    for part in ("s3://b/k", str(status), "said so", "Do this"):
        assert part in str(error)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        ("12", 12.0),
        ("-3", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 10.0),
        ("Thu, 01 Jan 1970 00:00:40 GMT", 0.0),
        ("nonsense", None),
    ],
)
def test_retry_after(value, seconds):
    assert retry_after_seconds(value, now=90.0) == seconds


def urllib3_errors():
    import urllib3.exceptions as u

    pool = None
    inner = u.ReadTimeoutError(pool, "/", "late")
    return [
        inner,
        u.MaxRetryError(pool, "/", inner),
        u.ProtocolError("cut", ConnectionResetError()),
    ]


@pytest.mark.parametrize(
    "exc",
    [
        TimeoutError("late"),
        ConnectionResetError("reset"),
        BrokenPipeError("broken"),
        socket.gaierror("no such host"),
        http.client.IncompleteRead(b"abc", 10),
        http.client.RemoteDisconnected("gone"),
        ssl.SSLError("garbled"),
        EOFError("cut"),
        *urllib3_errors(),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_failed_connections_are_worth_a_retry(exc):
    error = from_connection(exc, "s3://b/k")
    assert error is not None
    assert error.retryable
    assert "s3://b/k" in str(error)


def test_an_untrusted_certificate_is_not():
    inner = ssl.SSLCertVerificationError("self-signed")
    import urllib3.exceptions as u

    for exc in (inner, u.MaxRetryError(None, "/", u.SSLError(inner))):
        error = from_connection(exc, "https://h")
        assert error is not None
        assert not error.retryable
        assert "ca_bundle" in str(error)


def test_a_bug_is_not_taken_for_a_failed_connection():
    bug = KeyError("missing")
    bug.__context__ = ConnectionResetError("reset")
    assert from_connection(bug, "s3://b/k") is None
    assert from_connection(FileNotFoundError("local"), "s3://b/k") is None


def test_a_missing_package_says_what_to_install():
    with pytest.raises(MissingPackage, match=r"pip install 'shardstream\[sftp\]'"):
        require("no_such_package.client", package="shardstream[sftp]", url="sftp://h/x")
    assert require("json.decoder", package="json", url="").__name__ == "json.decoder"
