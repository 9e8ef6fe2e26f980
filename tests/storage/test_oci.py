"""`oci://` against a small server that verifies the signature of every request."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.storage import AccessDenied, NotFound, Store, StoreError, store_for
from streaming.storage.oci import OCIStore
from streaming.storage.retry import RetryPolicy
from tests.servers.oci import OCIServer, new_key, write_config
from tests.servers.proxy import Fault, FaultProxy
from tests.storage.end_to_end import up_and_back
from tests.storage.provider_contract import BIG, HTTPContract, Make, get, put

KEY = new_key()
MIB = 1 << 20


@pytest.fixture
def server() -> Iterator[OCIServer]:
    with OCIServer(KEY) as server:
        server.buckets = {"bucket": {}, "other": {"x": b"x"}}
        yield server


@pytest.fixture
def proxy(server: OCIServer) -> Iterator[FaultProxy]:
    # A test may have ended it already.
    with FaultProxy(server.url) as proxy, contextlib.suppress(OSError):
        yield proxy


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OCI_CONFIG_FILE", "OCI_CLI_PROFILE", "OCI_CLI_AUTH", "OCI_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "oci"
    folder.mkdir()
    config = write_config(folder, KEY)
    monkeypatch.setenv("OCI_CONFIG_FILE", str(config))
    return config


class TestOCI(HTTPContract):
    refusal = '{"code": "Other", "message": "no"}'

    @pytest.fixture
    def make(self, proxy: FaultProxy, config: Path) -> Make:
        def make(url: str = "oci://bucket@tests/data", **options: Any) -> Store:
            return store_for(url, **{"endpoint_url": proxy.url, **options})

        return make

    @pytest.fixture
    def proxy(self, proxy: FaultProxy) -> FaultProxy:
        return proxy

    def test_namespace_is_asked_for_once(
        self, make: Make, server: OCIServer, tmp_path: Path
    ) -> None:
        store = make("oci://bucket/data")
        put(store, tmp_path, "x", b"data")
        assert get(store, "x") == b"data"
        assert server.buckets["bucket"] == {"data/x": b"data"}
        assert server.count("GET", "^/n/?$") == 1

    def test_only_the_prefix_is_seen(self, make: Make, server: OCIServer) -> None:
        server.buckets["bucket"] = {"data/a": b"", "data/folder/": b"", "database": b"", "z": b""}
        assert list(make().list()) == ["a"]
        assert sorted(make("oci://bucket").list()) == ["data/a", "database", "z"]

    def test_unknown_key(self, make: Make, tmp_path: Path) -> None:
        (tmp_path / "stranger").mkdir()
        store = make(config_file=write_config(tmp_path / "stranger", new_key()))
        for call in (lambda: get(store, "x"), lambda: list(store.list()), lambda: store.size("x")):
            with pytest.raises(AccessDenied, match="Requests go to http://127"):
                call()

    def test_forged_signature(self, make: Make, server: OCIServer) -> None:
        (known,) = server.keys
        server.keys[known] = new_key().public_key()
        with pytest.raises(AccessDenied, match="signature does not verify"):
            get(make(), "x")

    def test_bucket_may_not_be_written(self, make: Make, server: OCIServer, tmp_path: Path) -> None:
        server.read_only = {"other"}
        store = make("oci://other")
        assert get(store, "x") == b"x"
        with pytest.raises(AccessDenied, match="NotAuthorized"):
            put(store, tmp_path, "y", b"y")
        with pytest.raises(AccessDenied):
            store.delete("x")

    def test_missing_bucket(self, make: Make) -> None:
        store = make("oci://nothing")
        for call in (lambda: get(store, "x"), lambda: store.size("x"), store.check):
            with pytest.raises(NotFound, match="no such bucket"):
                call()
        make().check()

    def test_damaged_upload(self, make: Make, proxy: FaultProxy, tmp_path: Path) -> None:
        answer = '{"code": "UnmatchedContentMD5", "message": "damaged"}'
        proxy.add(Fault(status=400, text=answer, method="PUT"))
        with pytest.raises(StoreError, match="arrived damaged") as caught:
            put(make(), tmp_path, "x", b"data")
        assert caught.value.retryable

    def test_big_file_goes_up_in_parts(
        self, make: Make, server: OCIServer, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        store = make(multipart_threshold_bytes=MIB, part_bytes=MIB // 2)
        assert isinstance(store, OCIStore)
        store.part_policy = RetryPolicy(retries=2, base_s=0.0)
        fault = proxy.add(Fault(status=503, method="PUT", key="/u/", times=2, skip=1))
        put(store, tmp_path, "big", BIG)
        assert fault.applied == 2
        assert server.buckets["bucket"]["data/big"] == BIG
        assert server.count("PUT", "/u/") == 3
        assert server.uploads == {}

    def test_upload_in_parts_that_fails_leaves_nothing(
        self, make: Make, server: OCIServer, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        store = make(multipart_threshold_bytes=MIB, part_bytes=MIB // 2)
        assert isinstance(store, OCIStore)
        store.part_policy = RetryPolicy(retries=1, base_s=0.0)
        proxy.add(Fault(status=500, method="PUT", key="/u/"))
        with pytest.raises(StoreError, match="uploading part") as caught:
            put(store, tmp_path, "big", BIG)
        assert not caught.value.retryable
        assert server.uploads == {}
        assert server.buckets["bucket"] == {}


@pytest.mark.long
def test_a_data_set_goes_up_and_comes_back(
    server: OCIServer, proxy: FaultProxy, config: Path, tmp_path: Path
) -> None:
    up_and_back("oci://bucket@tests/train", tmp_path, proxy, endpoint_url=proxy.url)
    assert "train/index.json" in server.buckets["bucket"]


def test_default_config_file(
    server: OCIServer, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OCI_CONFIG_FILE")
    monkeypatch.setenv("HOME", str(config.parent.parent))
    config.parent.rename(config.parent.with_name(".oci"))
    moved = config.parent.with_name(".oci") / "config"
    moved.write_text(moved.read_text().replace("/oci/", "/.oci/"))
    assert list(store_for("oci://other@tests", endpoint_url=server.url).list()) == ["x"]


def test_machine_without_config_file(
    server: OCIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OCI_CONFIG_FILE", raising=False)
    monkeypatch.setenv("OCI_METADATA_BASE_URL", f"{server.url}/opc/v2")
    options = {"endpoint_url": server.url, "federation_endpoint": f"{server.url}/v1/x509"}
    store = store_for("oci://other", **options)
    assert get(store, "x") == b"x"
    assert server.count("POST", "/v1/x509") == 1
    asked = store_for("oci://other", auth="instance_principal", **options)
    assert asked.size("x") == 1


def test_no_credentials_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: OCIServer
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OCI_CONFIG_FILE", raising=False)
    monkeypatch.setenv("OCI_METADATA_BASE_URL", f"{server.url}/nothing")
    store = store_for("oci://other", endpoint_url=server.url)
    with pytest.raises(
        AccessDenied, match=r"oci://other: there is no .*config, and this machine"
    ) as e:
        store.size("x")
    assert "OCI_CONFIG_FILE" in str(e.value)


def test_config_file_that_is_not_there(tmp_path: Path) -> None:
    store = store_for("oci://bucket", config_file=tmp_path / "nothing")
    with pytest.raises(AccessDenied, match="no such configuration file"):
        store.size("x")


def test_region_leads_to_its_endpoint(config: Path) -> None:
    store = store_for("oci://bucket", region="us-phoenix-1")
    assert isinstance(store, OCIStore)
    assert "us-phoenix-1" in store._client.how
    store = store_for("oci://bucket")
    assert isinstance(store, OCIStore)
    assert "eu-frankfurt-1" in store._client.how


@pytest.mark.parametrize("url", ["oci://", "oci://@tests/x", "oci://bucket@/x"])
def test_malformed_urls(url: str) -> None:
    with pytest.raises(ValueError, match="oci://bucket@namespace/prefix"):
        store_for(url)


def test_options() -> None:
    with pytest.raises(ValueError, match="instance_principal"):
        store_for("oci://bucket", auth="password")
    with pytest.raises(ValueError, match="did you mean 'endpoint_url'"):
        store_for("oci://bucket", endpoint="x")
