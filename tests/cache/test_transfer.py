"""Bytes on their way: cut off, refused, stalled, in parts; with a real server."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from streaming.cache import landing, transfer
from streaming.cache.landing import Landing
from streaming.cache.transfer import Network, Source
from streaming.storage import Body, NotFound, ObjectChanged, RetryPolicy, StoreError, store_for
from tests.servers.files import Files
from tests.servers.proxy import Fault, FaultProxy

DATA = np.random.default_rng(1).bytes(1_000_000)
PART = 100_000


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "x").write_bytes(DATA)
    with Files(tmp_path / "remote") as files, FaultProxy(files.url) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "PART_BYTES", PART)


def source(proxy: FaultProxy, key: str = "x", size: int = len(DATA), retries: int = 2) -> Source:
    return Source(store_for(proxy.url), key, size, RetryPolicy(retries=retries, base_s=0.001))


def land(source: Source, path: Path, network: Network) -> bytes:
    path.write_bytes(b"\0" * source.size)
    with Landing(str(path), source, network, 0) as arriving:
        arriving.begin()
        digest = hashlib.sha1()
        for piece in arriving.pieces():
            digest.update(piece)
        arriving.wait()
    data = path.read_bytes()
    assert digest.digest() == hashlib.sha1(data).digest()
    return data


@pytest.mark.usefixtures("patience")
def test_parts_come_side_by_side_and_each_once(proxy: FaultProxy, tmp_path: Path) -> None:
    network = Network(4)
    for _ in range(2):
        proxy.clear()
        assert land(source(proxy), tmp_path / "x", network) == DATA
        assert proxy.bytes() == len(DATA)
        assert proxy.count() == 10
        # All of one version: the first says of which.
        assert sum("if-match" in seen.headers for seen in proxy.seen) >= 1
    assert network.connections.busy == 0


def test_a_cut_connection_goes_on_where_it_was_cut(proxy: FaultProxy) -> None:
    data = bytearray(len(DATA))

    def sink(at: int, chunk: bytes | memoryview) -> None:
        data[at : at + len(chunk)] = chunk

    proxy.add(Fault(short_by=300_000, times=1))
    Network(4).bring(source(proxy), 0, len(DATA), sink).begin().wait()
    assert data == DATA
    first, second = proxy.seen
    begun = int(second.headers["range"].removeprefix("bytes=").rstrip("-"))
    assert 500_000 < begun <= first.sent
    assert second.sent == len(DATA) - begun


def test_whoever_waits_goes_on_after_the_end_was_told(proxy: FaultProxy) -> None:
    told: list[str] = []

    class EndsLate(Source):
        def open(self, start: int, stop: int) -> Body:
            body = super().open(start, stop)

            def chunks() -> Iterator[bytes | memoryview]:
                yield from body
                waiter.join(0.1)  # all bytes are here: time enough to go on too early

            return Body(chunks(), length=body.length, etag=body.etag, close=body.close)

    def wait() -> None:
        bringing.wait()
        told.append("waited")

    whole = EndsLate(store_for(proxy.url), "x", len(DATA), RetryPolicy())
    bringing = Network(4).bring(whole, 0, len(DATA), lambda at, chunk: None)
    bringing.on_end = lambda _: told.append("ended")
    waiter = threading.Thread(target=wait)
    waiter.start()
    bringing.begin()
    waiter.join(30)
    assert told == ["ended", "waited"]


@pytest.mark.parametrize("fault", [Fault(cut_after=70_000, times=3), Fault(cut_after=0, times=3)])
def test_cut_connections_are_asked_again(proxy: FaultProxy, tmp_path: Path, fault: Fault) -> None:
    proxy.add(fault)
    assert land(source(proxy, retries=4), tmp_path / "x", Network(4)) == DATA
    assert proxy.spoiled == 3


def test_refusals_are_waited_out(proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.add(Fault(status=503, retry_after="0", share=0.3, times=6))
    network = Network(4)
    assert land(source(proxy, retries=4), tmp_path / "x", network) == DATA
    assert proxy.spoiled


def test_a_stalled_connection_is_replaced(
    proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "FLOOR_S", 0.1)
    # The store itself would wait for a minute, and there are no retries.
    proxy.add(Fault(stall_after=0, times=1))
    proxy.add(Fault(stall_after=50_000, times=2))
    assert land(source(proxy, retries=0), tmp_path / "x", Network(4)) == DATA
    assert proxy.spoiled == 3


def test_a_connection_that_answers_nothing_is_replaced(
    proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "FLOOR_S", 0.1)
    proxy.add(Fault(delay_s=60.0, times=1))
    network = Network(1)
    assert land(source(proxy, retries=0), tmp_path / "x", network) == DATA
    assert network.connections.busy == 0


@pytest.mark.usefixtures("patience")
def test_what_is_not_there_is_told_at_once(proxy: FaultProxy, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="/y"):
        land(source(proxy, "y"), tmp_path / "y", Network(4))
    assert proxy.count() == 1


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1, PART, 2 * len(DATA)])
def test_another_size_is_an_error(proxy: FaultProxy, tmp_path: Path, size: int) -> None:
    with pytest.raises(StoreError, match=f"the index says {size:,}") as error:
        land(source(proxy, size=size), tmp_path / "x", Network(4))
    assert "attempt 3" in str(error.value)
    assert not error.value.retryable


def test_parts_of_two_versions_are_never_mixed(proxy: FaultProxy, tmp_path: Path) -> None:
    origin = source(proxy)
    data = bytearray(len(DATA))

    def sink(at: int, chunk: bytes | memoryview) -> None:
        data[at : at + len(chunk)] = chunk

    network = Network(2)
    network.bring(origin, 0, PART, sink).begin().wait()
    (tmp_path / "remote" / "x").write_bytes(DATA[::-1])
    with pytest.raises(ObjectChanged):
        network.bring(origin, PART, 2 * PART, sink).begin().wait()


def test_every_attempts_reason_is_told(proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.add(Fault(status=500, text="first", times=1))
    proxy.add(Fault(cut_after=0, times=1))
    proxy.add(Fault(status=502, text="third"))
    moving = Network(2).bring(source(proxy), 0, PART, lambda at, chunk: None).begin()
    with pytest.raises(StoreError) as error:
        moving.wait()
    for reason in ("attempt 1", "500", "first", "attempt 2", "attempt 3", "502", "third"):
        assert reason in str(error.value)


@pytest.mark.usefixtures("patience")
def test_where_there_are_no_parts_all_comes_at_once(proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.add(Fault(drop_headers=("range",)))
    network = Network(4)
    assert land(source(proxy), tmp_path / "x", network) == DATA
    proxy.seen.clear()
    assert land(source(proxy), tmp_path / "x", network) == DATA
    assert proxy.count() == 2  # the first part alone has to be asked for, and then the whole
    assert network.gives_parts(proxy.url) is False


def test_cancelling_leaves_the_sink_alone(proxy: FaultProxy) -> None:
    proxy.add(Fault(bandwidth=1e6))
    came: list[int] = []
    network = Network(2)
    moving = network.bring(
        source(proxy), 0, len(DATA), lambda at, chunk: came.append(len(chunk))
    ).begin()
    moving.wait_for(1)
    moving.cancel()
    count = len(came)
    proxy.clear()
    network.bring(source(proxy), 0, PART, lambda at, chunk: None).begin().wait()
    assert len(came) == count
