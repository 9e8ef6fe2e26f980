"""`dbfs:/Volumes/…` and `dbfs:/…` against a small workspace."""

from __future__ import annotations

import os
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
from tests.servers.proxy import Fault, FaultProxy
from tests.servers.workspace import READER, TOKEN, Workspace
from tests.storage.end_to_end import up_and_back
from tests.storage.provider_contract import BIG, HTTPContract, Make, get, put

VOLUME = "dbfs:/Volumes/main/default/data"


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workspace]:
    for name in os.environ:
        if name.startswith(("DATABRICKS_", "ARM_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with Workspace() as workspace:
        yield workspace


@pytest.fixture
def proxy(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    with FaultProxy(workspace.url) as proxy:
        monkeypatch.setenv("DATABRICKS_HOST", proxy.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", TOKEN)
        yield proxy


class DatabricksContract(HTTPContract):
    refusal = '{"message": "no"}'
    root: str

    @pytest.fixture
    def proxy(self, proxy: FaultProxy) -> FaultProxy:
        return proxy

    @pytest.fixture
    def make(self, proxy: FaultProxy) -> Make:
        def make(url: str = f"{self.root}/train", **options: Any) -> Store:
            return store_for(url, **options)

        return make

    @pytest.fixture(autouse=True)
    def _clock(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def let_time_pass(self) -> None:
        self.workspace.now_s += 2

    def test_tokens(self, make: Make, tmp_path: Path) -> None:
        put(make(), tmp_path, "x", b"x")
        reader = make(token=READER)
        assert get(reader, "x") == b"x"
        for call in (lambda: put(reader, tmp_path, "x", b"y"), lambda: reader.delete("x")):
            with pytest.raises(AccessDenied, match="WRITE VOLUME"):
                call()
        stranger = make(token="dapi-wrong")
        for call in (lambda: get(stranger, "x"), lambda: stranger.size("x"), stranger.check):
            with pytest.raises(AccessDenied, match="authenticated by 'pat'"):
                call()

    def test_profile_in_the_configuration_file(
        self, make: Make, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(make(), tmp_path, "x", b"x")
        monkeypatch.delenv("DATABRICKS_HOST")
        monkeypatch.delenv("DATABRICKS_TOKEN")
        config = tmp_path / ".databrickscfg"
        config.write_text(f"[tests]\nhost = {workspace.url}\ntoken = {TOKEN}\n")
        assert get(make(profile="tests"), "x") == b"x"
        config.rename(tmp_path / "elsewhere")
        assert get(make(profile="tests", config_file=tmp_path / "elsewhere"), "x") == b"x"

    def test_says_which_workspace_is_meant(self, make: Make, workspace: Workspace) -> None:
        assert not make().exists("x")
        assert workspace.seen[-1].headers["x-databricks-workspace-id"] == "12345"

    def test_no_credentials(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("DATABRICKS_HOST")
        monkeypatch.delenv("DATABRICKS_TOKEN")
        with pytest.raises(AccessDenied, match="Set DATABRICKS_HOST and DATABRICKS_TOKEN"):
            make().size("x")

    def test_folder_is_not_a_file(self, make: Make, tmp_path: Path) -> None:
        put(make(), tmp_path, "folder/x", b"x")
        with pytest.raises(NotFound):
            make().size("folder")


class TestVolumes(DatabricksContract):
    root = VOLUME

    def test_same_second_other_size(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"first")
        etag = store.stat("x").etag
        put(store, tmp_path, "x", b"second")
        with pytest.raises(ObjectChanged):
            get(store, "x", etag=etag)
        with pytest.raises(ObjectChanged):
            store.get_range("x", 0, 2, etag=etag)

    def test_missing_volume(self, make: Make) -> None:
        make().check()
        with pytest.raises(NotFound):
            make("dbfs:/Volumes/main/default/nothing/train").check()

    def test_folders_are_made_once(
        self, store: Store, workspace: Workspace, tmp_path: Path
    ) -> None:
        for name in "abc":
            put(store, tmp_path, f"deep/er/{name}", b"")
        assert workspace.count("PUT", "fs/directories") == 1


class TestDBFS(DatabricksContract):
    root = "dbfs:/mnt"
    upload_method = "POST"

    def fault(self, proxy: FaultProxy, **what: Any) -> Fault:
        proxy.clear()
        return proxy.add(Fault(key="dbfs/read" if "method" in what else "dbfs/", **what))

    def test_another_thread_ends_a_stalled_read(self) -> None:  # type: ignore[override]
        """It does not here: blocks are short requests, each ended by its own time-out."""

    def test_failed_upload(self, store: Store, proxy: FaultProxy, tmp_path: Path) -> None:
        for step in ("create", "add-block", "close", "move"):
            proxy.clear()
            proxy.add(Fault(status=503, key=f"dbfs/{step}"))
            with pytest.raises(StoreError):
                put(store, tmp_path, "x", b"data")
            assert not any(name.endswith("x") for name in self.workspace.files)
            assert not list(store.list())
        assert [name for name in self.workspace.files if "uploading" in name] == []

    def test_half_an_upload_is_not_listed(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "x", b"data")
        self.workspace.files["/mnt/train/y.0.uploading"] = self.workspace.files["/mnt/train/x"]
        assert list(store.list()) == ["x"]

    def test_changes_while_it_is_read(self, store: Store, tmp_path: Path) -> None:
        put(store, tmp_path, "big", BIG)
        with store.open("big") as body:
            chunks = iter(body)
            next(chunks)
            self.let_time_pass()
            put(store, tmp_path, "big", BIG[::-1])
            with pytest.raises(ObjectChanged):
                list(chunks)


@pytest.mark.long
@pytest.mark.parametrize("root", [VOLUME, "dbfs:/mnt"])
def test_a_data_set_goes_up_and_comes_back(
    root: str, workspace: Workspace, proxy: FaultProxy, tmp_path: Path
) -> None:
    up_and_back(f"{root}/train", tmp_path, proxy)
    assert f"{root.removeprefix('dbfs:')}/train/index.json" in workspace.files


@pytest.mark.parametrize("url", ["dbfs:/Volumes", "dbfs:/Volumes/main/default"])
def test_malformed_urls(url: str) -> None:
    with pytest.raises(ValueError, match="dbfs:/Volumes/catalog/schema/volume/path"):
        store_for(url)


@pytest.mark.parametrize("url", ["dbfs:/mnt", VOLUME])
def test_missing_package(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "databricks.sdk.config", None)
    monkeypatch.setitem(sys.modules, "databricks.sdk", None)
    with pytest.raises(MissingPackage, match=r"pip install 'shardstream\[databricks\]'"):
        store_for(url).size("x")


def test_official_client_agrees_with_the_small_workspace(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Both ways: it reads what we write, and we what it writes."""
    import io

    from databricks.sdk import WorkspaceClient

    client = WorkspaceClient(host=workspace.url, token=TOKEN)
    options = {"host": workspace.url, "token": TOKEN}
    store = store_for(VOLUME, **options)
    put(store, tmp_path, "ours", BIG)
    client.files.upload("/Volumes/main/default/data/theirs", io.BytesIO(BIG[5:]), overwrite=True)
    assert get(store, "theirs") == BIG[5:]
    assert client.files.get_metadata("/Volumes/main/default/data/ours").content_length == len(BIG)
    listed = client.files.list_directory_contents("/Volumes/main/default/data")
    assert [entry.name for entry in listed] == list(store.list()) == ["ours", "theirs"]

    store = store_for("dbfs:/mnt", **options)
    put(store, tmp_path, "ours", BIG)
    client.dbfs.upload("/mnt/theirs", io.BytesIO(BIG[5:]))
    assert get(store, "theirs") == BIG[5:]
    with client.dbfs.download("/mnt/ours") as file:
        assert file.read() == BIG
    assert [entry.path for entry in client.dbfs.list("/mnt")] == ["/mnt/ours", "/mnt/theirs"]
