"""Plain HTTP: public objects of moto's server, and a simple server that knows no ranges."""

import contextlib
import functools
import io
import pickle
import threading
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from streaming.storage import (
    AccessDenied,
    NotFound,
    ObjectChanged,
    StoreError,
    Throttled,
    store_for,
)
from streaming.storage.web import HTTPStore
from tests.servers.certificates import make_certificates
from tests.servers.proxy import Fault, FaultProxy
from tests.storage.provider_contract import BIG, get


@pytest.fixture
def store(bucket):
    bucket.put("data/big", BIG, public=True)
    bucket.put("data/a b/%41+ü#1&=?.mds", b"odd", public=True)
    return store_for(f"{bucket.proxy.url}/{bucket.name}/data")


@contextlib.contextmanager
def serving(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_reads(bucket, store):
    assert get(store, "big") == BIG
    assert store.get_range("big", 1000, 1300) == BIG[1000:1300]
    assert store.size("big") == len(BIG)
    assert store.exists("big")
    assert get(store, "a b/%41+ü#1&=?.mds") == b"odd"
    assert get(pickle.loads(pickle.dumps(store)), "big") == BIG
    assert bucket.proxy.connections == 1
    assert bucket.proxy.matching("big", "GET")[1].sent == 300


def test_missing_and_denied(bucket, store):
    for call in (lambda: get(store, "no"), lambda: store.size("no")):
        with pytest.raises((NotFound, AccessDenied), match="data/no"):  # moto hides it.
            call()
    for status, kind in ((404, NotFound), (403, AccessDenied), (401, AccessDenied)):
        bucket.proxy.clear()
        bucket.proxy.add(Fault(status=status))
        with pytest.raises(kind, match="/data/big") as caught:
            get(store, "big")
        assert not caught.value.retryable


def test_versions(bucket, store):
    etag = store.stat("big").etag
    assert store.get_range("big", 0, 3, etag=etag) == BIG[:3]
    bucket.put("data/big", b"another version", public=True)
    with pytest.raises(ObjectChanged):
        get(store, "big", etag=etag)


def test_faults(bucket, store):
    proxy = bucket.proxy
    for fault, kind in (
        (Fault(status=503, retry_after="4"), Throttled),
        (Fault(status=429, retry_after="4"), Throttled),
        (Fault(status=500), StoreError),
        (Fault(cut_after=100_000), StoreError),
        (Fault(short_by=1), StoreError),
    ):
        proxy.clear()
        proxy.add(fault)
        with pytest.raises(kind) as caught:
            get(store, "big")
        assert caught.value.retryable
        assert proxy.count() == 1
        if kind is Throttled:
            assert caught.value.retry_after_s == 4.0
    proxy.clear()
    assert get(store, "big") == BIG


def test_stalls(bucket, store):
    hasty = store_for(store.url, timeout_s=0.3)
    bucket.proxy.add(Fault(stall_after=100_000))
    with pytest.raises(StoreError, match="no data came in time") as caught:
        get(hasty, "big")
    assert caught.value.retryable


def test_nobody_listens():
    with serving(SimpleHTTPRequestHandler) as url:
        pass
    with pytest.raises(StoreError, match="no connection could be made") as caught:
        get(store_for(url), "x")
    assert caught.value.retryable


def test_it_is_read_only(store, tmp_path):
    (tmp_path / "x").touch()
    assert not store.can_write
    assert not store.can_list
    for call in (
        lambda: store.put(tmp_path / "x", "x"),
        lambda: store.delete("x"),
        lambda: list(store.list()),
    ):
        with pytest.raises(StoreError, match="HTTPStore can't be") as caught:
            call()
        assert not caught.value.retryable


def test_certificate_authority(bucket, moto_url, tmp_path):
    bucket.put("x", b"data", public=True)
    trusted, context = make_certificates(tmp_path)
    with FaultProxy(moto_url, tls=context) as proxy:
        url = f"{proxy.url}/{bucket.name}"
        with pytest.raises(StoreError, match="certificate could not be verified") as caught:
            get(store_for(url), "x")
        assert not caught.value.retryable
        assert get(store_for(url, ca_bundle=trusted), "x") == b"data"


def test_credentials_are_sent_and_not_shown(bucket, store):
    bucket.proxy.add(Fault(status=403))
    place = f"{bucket.proxy.url.removeprefix('http://')}/{bucket.name}"
    secret = store_for(f"http://me:p%40ss@{place}?sig=hush", headers={"X-Own": "1"})
    with pytest.raises(AccessDenied, match="An Authorization header was sent") as caught:
        get(secret, "big")
    seen = bucket.proxy.seen[-1]
    assert seen.headers["authorization"] == "Basic bWU6cEBzcw=="
    assert seen.headers["x-own"] == "1"
    assert seen.query == "sig=hush"
    for text in (str(caught.value), repr(secret), secret.url_of("x")):
        assert "hush" not in text
        assert "p%40ss" not in text
        assert "me:" not in text
    with pytest.raises(AccessDenied, match="header was not sent"):
        get(store, "big")


def test_a_url_without_a_host():
    with pytest.raises(ValueError, match="names no host"):
        HTTPStore("http:///x")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def test_a_server_that_knows_no_ranges(tmp_path):
    (tmp_path / "big").write_bytes(BIG)
    with serving(functools.partial(_Quiet, directory=str(tmp_path))) as url:
        store = store_for(url)
        for start, stop in ((0, 1), (5, 9), (300_000, 900_000), (0, len(BIG))):
            assert store.get_range("big", start, stop) == BIG[start:stop]
        with pytest.raises(StoreError, match=f"the object ends at {len(BIG)}"):
            store.get_range("big", 5, len(BIG) + 1)
        with store.open("big", 1_000_000) as body:
            assert b"".join(bytes(chunk) for chunk in body) == BIG[1_000_000:]
        assert store.stat("big").etag is None


def test_redirects_are_followed(tmp_path):
    (tmp_path / "x").write_bytes(b"data")

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", f"{place}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    there = serving(functools.partial(_Quiet, directory=str(tmp_path)))
    with there as place, serving(Elsewhere) as url:
        assert get(store_for(url), "x") == b"data"
    with serving(Elsewhere) as place, pytest.raises(StoreError, match="again and again"):
        store_for(place).get("x", io.BytesIO())  # To itself, for ever.
