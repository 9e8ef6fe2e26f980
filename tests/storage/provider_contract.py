"""What every writable provider has to do, as tests to be inherited.

A provider's test class gives the fixture `make`: called with storage options, it makes the store at
an empty place of the test's own. Those that speak HTTP inherit `HTTPContract` and give `proxy`, the
`FaultProxy` that all of the store's requests pass through, too.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streaming.storage import AccessDenied, NotFound, ObjectChanged, RetryPolicy, Store, StoreError
from streaming.storage.errors import Throttled
from tests.servers.proxy import Fault, FaultProxy

Make = Callable[..., Store]

BIG = bytes(range(256)) * 6000
"""1.5 MB: several chunks of every store."""


def put(store: Store, tmp_path: Path, key: str, data: bytes) -> None:
    source = tmp_path / "source"
    source.write_bytes(data)
    store.put(source, key)


def get(store: Store, key: str, **options: Any) -> bytes:
    file = io.BytesIO()
    assert store.get(key, file, **options) == len(file.getvalue())
    return file.getvalue()


def wait_until_it_reads(thread: threading.Thread, within: str = socket.__file__) -> None:
    """Wait until a thread is in code of a file whose path has this in it: a socket's read."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        frame = sys._current_frames().get(thread.ident or 0)
        while frame is not None:
            if within in frame.f_code.co_filename:
                return
            frame = frame.f_back
        time.sleep(0.005)
    raise TimeoutError("the thread did not come to read")


def _read_in_child(store: Store, key: str, pipe: Any) -> None:
    try:
        pipe.send(get(store, key))
    except BaseException as exc:
        pipe.send(repr(exc))


class StoreContract:
    """Reading, writing, listing, deleting; pickling, threads, fork."""

    etags = True
    """Whether objects have a version token."""
    odd_key = "a b/%41+ü#1&=.mds"

    @pytest.fixture
    def make(self) -> Make:
        raise NotImplementedError

    @pytest.fixture
    def store(self, make: Make) -> Store:
        return make()

    def test_writes_and_reads(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "train/shard.00000.mds", BIG)
        assert get(store, "train/shard.00000.mds") == BIG
        assert store.size("train/shard.00000.mds") == len(BIG)
        assert store.exists("train/shard.00000.mds")

    def test_replaces(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"a long first version")
        put(store, tmp_path, "x", b"second")
        assert get(store, "x") == b"second"
        assert list(store.list()) == ["x"]

    def test_empty_object(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "empty", b"")
        assert get(store, "empty") == b""
        assert store.size("empty") == 0

    def test_odd_characters_in_keys(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, self.odd_key, b"odd")
        assert get(store, self.odd_key) == b"odd"
        assert store.size(self.odd_key) == 3
        assert list(store.list()) == [self.odd_key]
        store.delete(self.odd_key)
        assert list(store.list()) == []

    @pytest.mark.parametrize(("start", "stop"), [(0, 1), (5, 9), (0, 1_536_000), (1_000_000, None)])
    def test_reads_ranges(self, store: Store, tmp_path: Path, start: int, stop: int | None) -> None:
        put(store, tmp_path, "big", BIG)
        with store.open("big", start, stop) as body:
            assert b"".join(bytes(chunk) for chunk in body) == BIG[start:stop]
        if stop is not None:
            assert store.get_range("big", start, stop) == BIG[start:stop]

    def test_range_beyond_the_end(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"0123456789")
        with pytest.raises(StoreError, match="x") as caught:
            store.get_range("x", 5, 20)
        assert not caught.value.retryable
        with pytest.raises(StoreError, match="x"):
            store.get_range("x", 10, 20)

    def test_lists_at_every_depth(self, store: Store, tmp_path: Path) -> None:
        keys = ["a/b/1", "a/b/2", "a/c", "ab", "d/e/f/g", "z"]
        for key in keys:
            put(store, tmp_path, key, key.encode())
        assert sorted(store.list()) == keys
        assert sorted(store.list("a/")) == ["a/b/1", "a/b/2", "a/c"]
        assert sorted(store.list("a")) == ["a/b/1", "a/b/2", "a/c", "ab"]
        assert sorted(store.list("a/b/2")) == ["a/b/2"]
        assert list(store.list("nothing/here/")) == []

    def test_deletes(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "a/x", b"x")
        store.delete("a/x")
        store.delete("a/x")
        assert not store.exists("a/x")

    def test_missing_object(self, store: Store) -> None:
        for call in (
            lambda: get(store, "no/such"),
            lambda: store.get_range("no/such", 0, 5),
            lambda: store.size("no/such"),
        ):
            with pytest.raises(NotFound, match="no/such") as caught:
                call()
            assert not caught.value.retryable
            assert isinstance(caught.value, FileNotFoundError)
        assert not store.exists("no/such")

    def test_keys_stay_below_the_root(self, store: Store) -> None:
        for key in ("../x", "/x", "a/../../x"):
            with pytest.raises(ValueError, match="not a key below"):
                store.size(key)

    def test_etag(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"first")
        etag = store.stat("x").etag
        assert (etag is not None) == self.etags
        if etag is None:
            return
        with store.open("x") as body:
            assert body.etag == etag
        assert get(store, "x", etag=etag) == b"first"
        assert store.get_range("x", 1, 3, etag=etag) == b"ir"
        self.let_time_pass()
        put(store, tmp_path, "x", b"second version")
        assert store.stat("x").etag != etag
        with pytest.raises(ObjectChanged):
            get(store, "x", etag=etag)
        with pytest.raises(ObjectChanged):
            store.get_range("x", 1, 3, etag=etag)

    def let_time_pass(self) -> None:
        """Where versions are told apart by their times: make the next one later."""

    def test_pickles(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"data")
        again = pickle.loads(pickle.dumps(store))
        assert again.url == store.url
        assert get(again, "x") == b"data"

    def test_threads(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "big", BIG)
        with ThreadPoolExecutor(6) as pool:
            for data in pool.map(lambda i: store.get_range("big", i, i + 300_000), range(12)):
                assert len(data) == 300_000

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    def test_fork(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "big", BIG)
        body = store.open("big")  # A connection in use, which the child must not touch.
        chunks = iter(body)
        first = bytes(next(chunks))
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(
            target=_read_in_child, args=(store, "big", there)
        )
        process.start()
        try:
            assert here.poll(60)
            assert here.recv() == BIG
        finally:
            process.join(60)
        assert first + b"".join(bytes(chunk) for chunk in chunks) == BIG
        body.close()
        assert get(store, "big") == BIG

    def test_closing_early_is_harmless(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "big", BIG)
        for _ in range(3):
            with store.open("big") as body:
                next(iter(body))
        assert get(store, "big") == BIG


class HTTPContract(StoreContract):
    """What a provider makes of a server or a network in trouble: one attempt, the right error."""

    refusal = '{"message": "no"}'

    @pytest.fixture
    def proxy(self) -> FaultProxy:
        raise NotImplementedError

    def fault(self, proxy: FaultProxy, **what: Any) -> Fault:
        proxy.clear()
        return proxy.add(Fault(key="big|x", **what))

    def test_throttled(self, store: Store, proxy: FaultProxy, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"data")
        for status in (429, 503):
            fault = self.fault(proxy, status=status, retry_after="7", text=self.refusal)
            with pytest.raises(Throttled) as caught:
                get(store, "x")
            assert caught.value.retryable
            assert caught.value.retry_after_s == 7.0
            assert caught.value.url.endswith("/x")
            assert fault.applied == 1  # The client beneath has not tried again.

    def test_server_errors_are_retryable(
        self, store: Store, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        put(store, tmp_path, "x", b"data")
        for status in (500, 502, 504):
            fault = self.fault(proxy, status=status, text=self.refusal)
            with pytest.raises(StoreError) as caught:
                store.get_range("x", 0, 2)
            assert caught.value.retryable
            assert fault.applied == 1

    def test_refused(self, store: Store, proxy: FaultProxy, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"data")
        for status in (401, 403):
            self.fault(proxy, status=status, text=self.refusal)
            for call in (lambda: get(store, "x"), lambda: store.size("x")):
                with pytest.raises(AccessDenied) as caught:
                    call()
                assert not caught.value.retryable
                assert isinstance(caught.value, PermissionError)

    def test_cut_off(self, store: Store, proxy: FaultProxy, tmp_path: Path) -> None:
        put(store, tmp_path, "big", BIG)
        for how in ({"cut_after": 100_000}, {"short_by": 10}):
            self.fault(proxy, method="GET", times=1, **how)
            with pytest.raises(StoreError) as caught:
                get(store, "big")
            assert caught.value.retryable, caught.value
            assert get(store, "big") == BIG

    def test_stalled(self, make: Make, proxy: FaultProxy, tmp_path: Path) -> None:
        put(make(), tmp_path, "big", BIG)
        store = make(timeout_s=0.5)
        self.fault(proxy, method="GET", times=1, stall_after=100_000)
        with pytest.raises(StoreError, match="in time") as caught:
            get(store, "big")
        assert caught.value.retryable
        # On a busy machine the server itself can be late.
        again = RetryPolicy(retries=5, base_s=0.0)
        assert again.call(lambda: get(store, "big"), "fetching big") == BIG

    @pytest.mark.skipif(sys.platform != "linux", reason="only there a socket can be shut like that")
    def test_another_thread_ends_a_stalled_read(
        self, store: Store, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        put(store, tmp_path, "big", BIG)
        self.fault(proxy, method="GET", times=1, stall_after=100_000)
        body = store.open("big")
        failed = threading.Event()
        stuck: list[BaseException] = []

        def read() -> None:
            try:
                for _ in body:
                    pass
            except StoreError as error:
                stuck.append(error)
            failed.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        wait_until_it_reads(reader)
        body.close()
        assert failed.wait(10)
        reader.join(10)
        assert isinstance(stuck[0], StoreError)
        assert stuck[0].retryable

    def test_nobody_listens(self, make: Make, proxy: FaultProxy) -> None:
        store = make()
        proxy.__exit__()
        with pytest.raises(StoreError) as caught:
            get(store, "x")
        assert caught.value.retryable

    def test_policy_brings_it_through(
        self, store: Store, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        put(store, tmp_path, "x", b"data")
        fault = self.fault(proxy, status=503, times=2)
        policy = RetryPolicy(retries=3, base_s=0.0)
        assert policy.call(lambda: get(store, "x"), "fetching x") == b"data"
        assert fault.applied == 2

    def test_failed_upload(self, store: Store, proxy: FaultProxy, tmp_path: Path) -> None:
        self.fault(proxy, status=503, method=self.upload_method)
        with pytest.raises(Throttled):
            put(store, tmp_path, "x", b"data")
        proxy.clear()
        assert not store.exists("x")

    upload_method = "PUT"
