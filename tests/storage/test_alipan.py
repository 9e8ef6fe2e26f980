"""`alipan://` against a small drive: AliPCS-Py, told where its API is, logs in to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.storage import AccessDenied, MissingPackage, NotFound, Store, StoreError, store_for
from streaming.storage.retry import RetryPolicy
from tests.servers.drive import REFRESH_TOKEN, Drive
from tests.servers.proxy import Fault, FaultProxy
from tests.storage.end_to_end import up_and_back
from tests.storage.provider_contract import BIG, HTTPContract, Make, get, put

VARIABLES = ("ALIPAN_WEB_REFRESH_TOKEN", "ALIPAN_ENCRYPT_PASSWORD", "ALIPAN_ENCRYPT_TYPE")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture
def drive() -> Iterator[Drive]:
    with Drive() as drive:
        yield drive


@pytest.fixture
def proxy(drive: Drive, environment: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    try:
        from alipcs_py.alipcs import pcs
    except ModuleNotFoundError:
        pytest.fail(
            "AliPCS-Py is not installed: `make test-all` does it, where there is a C compiler"
        )
    with FaultProxy(drive.url) as proxy:
        drive.url = proxy.url  # In the URLs that it gives for bytes.
        environment.setattr(pcs, "ALIYUNDRIVE_COM_API", proxy.url)
        environment.setattr("streaming.storage.clients._clients", {})  # Each test logs in.
        environment.setenv("ALIPAN_WEB_REFRESH_TOKEN", REFRESH_TOKEN)
        yield proxy


@pytest.mark.long
class TestAlipan(HTTPContract):
    refusal = '{"code": "Other", "message": "no"}'
    upload_method = "POST"

    @pytest.fixture
    def proxy(self, proxy: FaultProxy) -> FaultProxy:
        return proxy

    @pytest.fixture
    def make(self, proxy: FaultProxy) -> Make:
        def make(url: str = "alipan:///sets/train", **options: Any) -> Store:
            return store_for(url, **options)

        return make

    def fault(self, proxy: FaultProxy, **what: Any) -> Fault:
        proxy.clear()
        key = "/blob/" if what.get("method") == "GET" else "/file/"
        return proxy.add(Fault(key=key, **what))

    def test_uploads_in_parts(self, make: Make, drive: Drive, tmp_path: Path) -> None:
        put(make(part_bytes=400_000), tmp_path, "a/big", BIG)
        assert drive.count("PUT", "/blob/") == 4
        assert get(make(), "a/big") == BIG
        assert sorted(node.name for node in drive.nodes.values()) == ["a", "big", "sets", "train"]

    def test_part_that_is_refused(
        self, store: Store, proxy: FaultProxy, drive: Drive, tmp_path: Path
    ) -> None:
        proxy.add(Fault(status=403, method="PUT"))
        with pytest.raises(AccessDenied):
            put(store, tmp_path, "x", b"data")
        assert not store.exists("x")

    def test_folder_is_not_a_file(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "folder/x", b"x")
        for call in (lambda: store.size("folder"), lambda: get(store, "folder")):
            with pytest.raises(NotFound):
                call()

    def test_logs_in_once(self, store: Store, drive: Drive, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"data")
        assert get(store, "x") == b"data"
        assert (drive.logins, drive.count("POST", "create_session")) == (1, 1)

    def test_login_that_expires(self, store: Store, drive: Drive, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"data")
        drive.expire()
        with pytest.raises(StoreError, match="expired") as caught:
            get(store, "x")
        assert caught.value.retryable
        drive.expire()
        policy = RetryPolicy(retries=2, base_s=0.0)
        assert policy.call(lambda: get(store, "x"), "fetching x") == b"data"

    def test_tokens(self, make: Make, environment: pytest.MonkeyPatch) -> None:
        for call in (lambda s: s.size("x"), lambda s: list(s.list()), lambda s: s.check()):
            with pytest.raises(AccessDenied, match=r"RefreshToken.*ALIPAN_WEB_REFRESH_TOKEN"):
                call(make(refresh_token="wrong"))
        environment.delenv("ALIPAN_WEB_REFRESH_TOKEN")
        with pytest.raises(AccessDenied, match="there is no refresh token"):
            make().size("x")
        make(refresh_token=REFRESH_TOKEN).check()

    def test_denied(self, store: Store, drive: Drive, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"x")
        drive.denied = {"x"}
        for call in (
            lambda: get(store, "x"),
            lambda: store.size("x"),
            lambda: put(store, tmp_path, "x", b"y"),
            lambda: store.delete("x"),
        ):
            with pytest.raises(AccessDenied, match="No Permission"):
                call()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["Simple", "ChaCha20", "AES256CBC"])
class TestEncrypted:
    @pytest.fixture
    def store(self, kind: str, proxy: FaultProxy, environment: pytest.MonkeyPatch) -> Store:
        environment.setenv("ALIPAN_ENCRYPT_PASSWORD", "open sesame")
        environment.setenv("ALIPAN_ENCRYPT_TYPE", kind)
        return store_for("alipan:///sets")

    @pytest.mark.parametrize("data", [b"", b"x", BIG, BIG[:65_536]], ids=len)
    def test_round_trip(self, store: Store, drive: Drive, tmp_path: Path, data: bytes) -> None:
        put(store, tmp_path, "x", data)
        (kept,) = [node.data for node in drive.nodes.values() if node.kind == "file"]
        assert kept != data
        assert get(store, "x") == data
        assert store.size("x") == len(data)
        if len(data) > 1000:
            assert store.get_range("x", 500, 1000) == data[500:1000]
            assert data[600:800] not in kept

    def test_other_clients_files(
        self, kind: str, store: Store, drive: Drive, tmp_path: Path
    ) -> None:
        """What AliPCS's own stream makes of our files."""
        from alipcs_py.common.io import to_decryptio

        put(store, tmp_path, "x", BIG)
        (kept,) = [node.data for node in drive.nodes.values() if node.kind == "file"]
        (tmp_path / "kept").write_bytes(kept)
        with open(tmp_path / "kept", "rb") as file:
            plain = to_decryptio(file, b"open sesame")
            assert b"".join(iter(lambda: plain.read(1 << 16), b"")) == BIG

    def test_plain_files_are_read_too(
        self, store: Store, tmp_path: Path, environment: pytest.MonkeyPatch
    ) -> None:
        environment.delenv("ALIPAN_ENCRYPT_PASSWORD")
        environment.delenv("ALIPAN_ENCRYPT_TYPE")
        put(store_for("alipan:///sets"), tmp_path, "big", BIG)
        put(store_for("alipan:///sets"), tmp_path, "small", b"small")
        for key, data in (("big", BIG), ("small", b"small")):
            assert get(store, key) == data
            assert store.size(key) == len(data)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["No", "ChaCha20"])
def test_a_data_set_goes_up_and_comes_back(
    kind: str, drive: Drive, proxy: FaultProxy, tmp_path: Path
) -> None:
    options = {"encrypt_password": "open sesame", "encrypt_type": kind}
    up_and_back("alipan:///sets/train", tmp_path, proxy, **options)
    assert "index.json" in {node.name for node in drive.nodes.values()}


def test_options(environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="three slashes"):
        store_for("alipan://sets/train")
    with pytest.raises(ValueError, match="'Simple', 'ChaCha20', 'AES256CBC'"):
        store_for("alipan:///sets", encrypt_type="rot13", encrypt_password="x")
    with pytest.raises(ValueError, match="needs a password"):
        store_for("alipan:///sets", encrypt_type="ChaCha20")
    store = store_for("alipan:///sets", refresh_token="se" + "cret")
    assert "secret" not in repr(store) + repr(vars(store))


def test_missing_package(environment: pytest.MonkeyPatch) -> None:
    environment.setitem(sys.modules, "alipcs_py", None)
    environment.setitem(sys.modules, "alipcs_py.alipcs.pcs", None)
    with pytest.raises(MissingPackage, match=r"pip install 'shardstream\[alipan\]'"):
        store_for("alipan:///sets", refresh_token="x").size("x")
