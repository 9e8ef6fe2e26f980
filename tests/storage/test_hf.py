"""`hf://` against a small hub whose large files are on another server, as the real Hub's are."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.storage import (
    AccessDenied,
    MissingPackage,
    NotFound,
    ObjectChanged,
    Store,
    StoreError,
    store_for,
)
from streaming.storage.errors import Throttled
from tests.servers.hub import READER, TOKEN, Elsewhere, Hub
from tests.servers.proxy import Fault, FaultProxy
from tests.storage.end_to_end import up_and_back
from tests.storage.provider_contract import BIG, HTTPContract, Make, get, put


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere() as server:
        yield server


@pytest.fixture
def hub(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "HF_OIDC_RESOURCE"):
        monkeypatch.delenv(name, raising=False)
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with Hub(elsewhere) as hub:
        yield hub


class TestHF(HTTPContract):
    refusal = '{"error": "no"}'
    upload_method = "POST"

    @pytest.fixture
    def proxy(self, hub: Hub, elsewhere: Elsewhere) -> Iterator[FaultProxy]:
        with FaultProxy(hub.url) as proxy:
            yield proxy

    @pytest.fixture
    def make(self, proxy: FaultProxy, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Make:
        monkeypatch.setenv("HF_ENDPOINT", proxy.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)

        def make(url: str = "hf://datasets/org/name/data", **options: Any) -> Store:
            return store_for(url, **options)

        return make

    def fault(self, proxy: FaultProxy, **what: Any) -> Fault:
        proxy.clear()
        return proxy.add(Fault(key="big|x|upload|[0-9a-f]{64}", **what))

    # Bytes of large files do not pass through the Hub: their faults come from the other server.

    @pytest.fixture
    def outside(self, hub: Hub, elsewhere: Elsewhere) -> Iterator[FaultProxy]:
        with FaultProxy(elsewhere.url) as outside:
            hub.outside = outside.url
            yield outside

    def test_cut_off(  # type: ignore[override]
        self, store: Store, outside: FaultProxy, tmp_path: Path
    ) -> None:
        put(store, tmp_path, "big", BIG)
        outside.add(Fault(method="GET", times=1, cut_after=100_000))
        with pytest.raises(StoreError, match="big") as caught:
            get(store, "big")
        assert caught.value.retryable
        assert get(store, "big") == BIG

    def test_stalled(  # type: ignore[override]
        self, make: Make, outside: FaultProxy, tmp_path: Path
    ) -> None:
        put(make(), tmp_path, "big", BIG)
        store = make(timeout_s=0.5)
        outside.add(Fault(method="GET", times=1, stall_after=100_000))
        with pytest.raises(StoreError, match="in time") as caught:
            get(store, "big")
        assert caught.value.retryable

    @pytest.mark.skipif(sys.platform != "linux", reason="only there a socket can be shut like that")
    def test_another_thread_ends_a_stalled_read(  # type: ignore[override]
        self, store: Store, outside: FaultProxy, tmp_path: Path
    ) -> None:
        super().test_another_thread_ends_a_stalled_read(store, outside, tmp_path)

    def test_large_files_come_from_elsewhere_without_the_token(
        self, store: Store, hub: Hub, elsewhere: Elsewhere, tmp_path: Path
    ) -> None:
        put(store, tmp_path, "big", BIG)
        put(store, tmp_path, "index.json", b"{}")
        assert list(elsewhere.blobs.values()) == [BIG]
        assert get(store, "big") == BIG
        assert all("authorization" not in request.headers for request in elsewhere.seen)
        assert store.stat("big").etag == next(iter(elsewhere.blobs))
        assert get(store, "index.json") == b"{}"
        assert hub.repositories["org/name"]["main"] == {"data/big": BIG, "data/index.json": b"{}"}

    def test_same_bytes_go_up_once(
        self, store: Store, elsewhere: Elsewhere, tmp_path: Path
    ) -> None:
        put(store, tmp_path, "one.mds", BIG)
        put(store, tmp_path, "two.mds", BIG)
        assert elsewhere.count("PUT") == 1
        assert get(store, "two.mds") == BIG

    def test_changed_before_it_is_fetched(
        self, store: Store, elsewhere: Elsewhere, tmp_path: Path
    ) -> None:
        put(store, tmp_path, "x.mds", b"first")
        etag = store.stat("x.mds").etag
        put(store, tmp_path, "x.mds", b"second")
        elsewhere.seen.clear()
        with pytest.raises(ObjectChanged, match=r"x\.mds"):
            get(store, "x.mds", etag=etag)
        assert elsewhere.count("GET") == 0

    def test_revisions(self, make: Make, hub: Hub) -> None:
        files = hub.repositories["org/name"]
        for revision in files:
            files[revision]["data/x"] = revision.encode()
        for url, options, found in (
            ("hf://datasets/org/name/data", {}, b"main"),
            ("hf://datasets/org/name@v1.0/data", {}, b"v1.0"),
            ("hf://datasets/org/name@refs/pr/1/data", {}, b"refs/pr/1"),
            ("hf://datasets/org/name@a%2Fb/data", {}, b"a/b"),
            ("hf://datasets/org/name/data", {"revision": "a/b"}, b"a/b"),
        ):
            store = make(url, **options)
            assert get(store, "x") == found
            assert list(store.list()) == ["x"]
        with pytest.raises(NotFound, match="no such revision"):
            get(make("hf://datasets/org/name@v2/data"), "x")

    def test_renamed_data_set(self, make: Make, hub: Hub, tmp_path: Path) -> None:
        put(make(), tmp_path, "big", BIG)
        hub.renamed["old/name"] = "org/name"
        store = make("hf://datasets/old/name/data")
        assert get(store, "big") == BIG
        assert store.size("big") == len(BIG)
        assert store.stat("big") == make().stat("big")

    def test_tokens(
        self, make: Make, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub.private = {"org/name"}
        put(make(), tmp_path, "x", b"x")
        assert get(make(token=READER), "x") == b"x"
        with pytest.raises(AccessDenied, match="may not write"):
            put(make(token=READER), tmp_path, "x", b"y")
        with pytest.raises(AccessDenied, match="Invalid credentials"):
            get(make(token="hf_wrong"), "x")
        with pytest.raises(AccessDenied, match="set HF_TOKEN"):
            get(make(token=False), "x")
        monkeypatch.delenv("HF_TOKEN")
        with pytest.raises(AccessDenied, match="set HF_TOKEN"):
            make().size("x")

    def test_saved_login(self, make: Make, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        from huggingface_hub import constants

        hub.private = {"org/name"}
        hub.repositories["org/name"]["main"]["data/x"] = b"x"
        monkeypatch.delenv("HF_TOKEN")
        Path(constants.HF_TOKEN_PATH).write_text(TOKEN)
        assert get(make(), "x") == b"x"

    def test_gated(self, make: Make, hub: Hub) -> None:
        hub.gated = {"org/name"}
        with pytest.raises(AccessDenied, match="terms have to be accepted"):
            get(make(), "x")

    def test_missing_data_set(self, make: Make, tmp_path: Path) -> None:
        store = make("hf://datasets/no/such")
        for call in (
            lambda: get(store, "x"),
            lambda: store.size("x"),
            lambda: list(store.list()),
            lambda: put(store, tmp_path, "x", b"x"),
            store.check,
        ):
            with pytest.raises(NotFound, match="no such data set"):
                call()
        make().check()

    def test_rate_limit(self, store: Store, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        from tests.servers.rest import Answer

        limited = Answer(429, b"", {"RateLimit": '"api";r=0;t=42'})
        monkeypatch.setattr(hub, "answer", lambda request: limited)
        with pytest.raises(Throttled) as caught:
            get(store, "x")
        assert caught.value.retry_after_s == 42.0

    def test_another_commit_was_in_the_way(
        self, store: Store, proxy: FaultProxy, hub: Hub, tmp_path: Path
    ) -> None:
        proxy.add(Fault(status=412, key="/commit/", times=1))
        with pytest.raises(StoreError, match="another commit") as caught:
            put(store, tmp_path, "x", b"x")
        assert caught.value.retryable
        assert hub.commits == []

    def test_ignored_name(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"\.gitignore"):
            put(store, tmp_path, "x.ignored", b"x")


@pytest.mark.long
def test_a_data_set_goes_up_and_comes_back(hub: Hub, tmp_path: Path) -> None:
    with FaultProxy(hub.url) as proxy:
        options = {"endpoint": proxy.url, "token": TOKEN}
        up_and_back("hf://datasets/org/name/train", tmp_path, proxy, **options)
    assert "train/index.json" in hub.repositories["org/name"]["main"]


def test_official_client_agrees_with_the_small_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways: it reads what we write, and we what it writes."""
    import huggingface_hub
    from huggingface_hub import CommitOperationAdd, HfApi, constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)
    api = HfApi(endpoint=hub.url, token=TOKEN)
    store = store_for("hf://datasets/org/name/data", endpoint=hub.url, token=TOKEN)
    put(store, tmp_path, "ours.mds", BIG)
    api.create_commit(
        "org/name",
        [CommitOperationAdd("data/theirs.mds", io.BytesIO(BIG[5:]))],
        commit_message="theirs",
        repo_type="dataset",
    )
    assert get(store, "theirs.mds") == BIG[5:]
    url = huggingface_hub.hf_hub_url(
        "org/name", "data/ours.mds", repo_type="dataset", endpoint=hub.url
    )
    seen = huggingface_hub.get_hf_file_metadata(url, token=TOKEN, endpoint=hub.url)
    assert (seen.etag, seen.size) == (store.stat("ours.mds").etag, len(BIG))
    listed = api.list_repo_tree("org/name", "data", recursive=True, repo_type="dataset")
    names = [entry.path for entry in listed if not hasattr(entry, "tree_id")]
    assert names == [f"data/{key}" for key in store.list()]


@pytest.mark.parametrize(
    "url", ["hf://org/name", "hf://datasets/name", "hf://models/a/b/c", "hf://"]
)
def test_malformed_urls(url: str) -> None:
    with pytest.raises(ValueError, match="hf://datasets/org/name/path"):
        store_for(url)


def test_two_revisions() -> None:
    with pytest.raises(ValueError, match="names a revision"):
        store_for("hf://datasets/org/name@a/x", revision="b")


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    store = store_for("hf://datasets/org/name")
    with pytest.raises(MissingPackage, match=r"pip install 'shardstream\[hf\]'"):
        store.size("x")
