"""s3:// and http:// from nginx: a fast server of files that knows nothing of buckets."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streaming import StreamingDataset
from streaming.storage import AccessDenied, NotFound, ObjectChanged, Store, StoreError, store_for
from tests.data import write_numbers
from tests.servers import nginx
from tests.servers.moto import CREDENTIALS
from tests.servers.nginx import Nginx
from tests.servers.rest import Answer, Request, SmallServer
from tests.storage.provider_contract import BIG, get, put

Make = Callable[[], Store]


@pytest.fixture(scope="module", autouse=True)
def _nginx_is_there() -> None:
    try:
        nginx.program()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "bucket" / "denied").mkdir(parents=True)
    (tmp_path / "root" / "bucket" / "denied" / "x").write_bytes(b"secret")
    return tmp_path / "root"


@pytest.fixture
def server(tmp_path: Path, root: Path, clean_environment: pytest.MonkeyPatch) -> Iterator[Nginx]:
    with Nginx(tmp_path / "nginx", root, can_write=True) as server:
        yield server


@pytest.fixture(params=["s3", "http"])
def store(request: pytest.FixtureRequest, server: Nginx) -> Store:
    if request.param == "http":
        return store_for(f"{server.url}/bucket")
    return store_for("s3://bucket", endpoint_url=server.url, region="us-east-1", **CREDENTIALS)


def test_reads(store: Store, root: Path) -> None:
    (root / "bucket" / "train").mkdir()
    (root / "bucket" / "train" / "big").write_bytes(BIG)
    assert get(store, "train/big") == BIG
    assert store.size("train/big") == len(BIG)
    assert store.exists("train/big")


def test_reads_ranges(store: Store, root: Path, server: Nginx) -> None:
    (root / "bucket" / "big").write_bytes(BIG)
    assert store.get_range("big", 1000, 1300) == BIG[1000:1300]
    with store.open("big", 1_000_000) as body:
        assert b"".join(map(bytes, body)) == BIG[1_000_000:]
    with pytest.raises(StoreError, match="big"):
        store.get_range("big", len(BIG) - 5, len(BIG) + 5)
    assert (206, 300) in [(status, size) for _, _, status, size in server.requests()]


def test_missing(store: Store) -> None:
    for call in (lambda: get(store, "no"), lambda: store.size("no")):
        with pytest.raises(NotFound, match="bucket/no"):
            call()
    assert not store.exists("no")


def test_denied(store: Store) -> None:
    for call in (lambda: get(store, "denied/x"), lambda: store.size("denied/x")):
        with pytest.raises(AccessDenied, match="denied/x") as caught:
            call()
        assert not caught.value.retryable


def test_versions(store: Store, root: Path) -> None:
    (root / "bucket" / "x").write_bytes(b"first")
    etag = store.stat("x").etag
    assert get(store, "x", etag=etag) == b"first"
    (root / "bucket" / "x").write_bytes(b"second version")
    with pytest.raises(ObjectChanged):
        get(store, "x", etag=etag)


def test_what_cannot_list_says_so(store: Store) -> None:
    with pytest.raises(StoreError, match=r"can't be listed|501"):
        list(store.list())


def test_only_s3_writes(server: Nginx, tmp_path: Path) -> None:
    store = store_for("s3://bucket", endpoint_url=server.url, region="us-east-1", **CREDENTIALS)
    put(store, tmp_path, "train/new", b"data")
    assert get(store, "train/new") == b"data"
    store.delete("train/new")
    assert not store.exists("train/new")
    with pytest.raises(StoreError, match="can't be written to"):
        put(store_for(f"{server.url}/bucket"), tmp_path, "x", b"data")


def test_a_data_set(store: Store, root: Path, tmp_path: Path, server: Nginx) -> None:
    write_numbers(root / "bucket" / "train", 100)
    dataset = StreamingDataset(
        remote=f"{store.url}/train",
        local=str(tmp_path / "local"),
        batch_size=4,
        stream_config={"storage_options": options_of(store, server)},
    )
    assert sorted(int(sample["id"]) for sample in dataset) == list(range(100))


def options_of(store: Store, server: Nginx) -> dict[str, str]:
    if store.url.startswith("http"):
        return {}
    return {"endpoint_url": server.url, "region": "us-east-1", **CREDENTIALS}


def test_many_at_once(store: Store, root: Path) -> None:
    data = {f"{i}": random.Random(i).randbytes(3 << 20) for i in range(8)}
    for key, body in data.items():
        (root / "bucket" / key).write_bytes(body)
    with ThreadPoolExecutor(8) as pool:
        for key, body in zip(data, pool.map(lambda key: get(store, key), data), strict=True):
            assert hashlib.sha1(body).digest() == hashlib.sha1(data[key]).digest()


class Redirecting(SmallServer):
    """A web server that is no S3 at all."""

    def answer(self, request: Request) -> Answer:
        return Answer(301, b"", {"Location": f"{self.url}/elsewhere"})


@pytest.mark.usefixtures("clean_environment")
def test_a_server_that_redirects_without_end() -> None:
    with Redirecting() as server:
        store = store_for("s3://bucket", endpoint_url=server.url, region="us-east-1", **CREDENTIALS)
        with pytest.raises(StoreError, match=r"redirects without end.*endpoint_url") as caught:
            store.size("x")
        assert not caught.value.retryable
