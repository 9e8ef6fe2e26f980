"""Which store serves which URL, and how others add theirs."""

import importlib.metadata
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming import MDSWriter
from streaming.storage import UnknownScheme, register_store, registry, schemes, store_for
from streaming.storage.local import LocalStore
from streaming.storage.s3 import S3Store

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(registry, "_BUILT_IN", dict(registry._BUILT_IN))


class Backup(LocalStore):
    def __init__(self, url, *, timeout_s=60.0, shelf="a"):
        super().__init__(f"/mnt/{shelf}", timeout_s=timeout_s)
        self.asked = url


def test_by_scheme():
    assert type(store_for("s3://bucket/x")) is S3Store
    assert type(store_for("S3://bucket/x")) is S3Store
    for place in ("/data", "data", "file:///data", "C:/data", r"C:\data"):
        assert type(store_for(place)) is LocalStore


def test_unknown_scheme():
    with pytest.raises(UnknownScheme, match=r"ftp://h/x: no store is known for ftp://.* s3, sftp"):
        store_for("ftp://h/x")
    with pytest.raises(ValueError, match="register_store"):
        store_for("ftp://h/x")


def test_register():
    register_store("backup", Backup)
    store = store_for("backup://x/y", timeout_s=3, shelf="b")
    assert (store.asked, store.timeout_s, store.url) == ("backup://x/y", 3, "/mnt/b")
    assert "backup" in schemes()
    with pytest.raises(ValueError, match=r"no storage option 'color'; there are shelf"):
        store_for("backup://x", color="red")


def test_register_by_name_and_instead_of_a_built_in():
    register_store("s3", f"{__name__}:Backup")
    assert type(store_for("s3://bucket/x")).__name__ == "Backup"


def test_not_a_scheme():
    for scheme in ("c", "", "no spaces", "s3://", "S3"):
        with pytest.raises(ValueError, match="can't be a scheme"):
            register_store(scheme, Backup)


def test_entry_points(monkeypatch):
    point = importlib.metadata.EntryPoint("shelf", f"{__name__}:Backup", "streaming.stores")

    def entry_points(*, group, name=None):
        assert group == "streaming.stores"
        return [point] if name in (None, "shelf") else []

    monkeypatch.setattr(registry, "entry_points", entry_points)
    assert type(store_for("shelf://x")).__name__ == "Backup"
    assert "shelf" in schemes()


PLUGIN = """
from streaming.storage.local import LocalStore


def open_shelf(url, timeout_s):
    return LocalStore(url.replace("shelf://", "/"))
"""


def test_an_entry_point_of_an_installed_package(tmp_path):
    """In a process of its own, which has only installed it."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "shelves.py").write_text(PLUGIN)
    info = tmp_path / "site" / "shelves-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelves\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[streaming.stores]\nshelf = shelves:open_shelf\n")
    with MDSWriter(out=str(tmp_path / "data"), columns={"x": "int"}) as writer:
        for x in range(10):
            writer.write({"x": x})
    script = (
        "import sys; from streaming import StreamingDataset; "
        "print(sum(s['x'] for s in StreamingDataset(remote=sys.argv[1], local=sys.argv[2], "
        "batch_size=2)))"
    )
    remote = f"shelf:/{tmp_path / 'data'}"
    found = subprocess.run(
        [sys.executable, "-c", script, remote, str(tmp_path / "local")],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path / 'site'}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert found.stdout.strip() == "45", found.stderr


def test_a_scheme_whose_store_this_version_has_not():
    registry._BUILT_IN["later"] = "streaming.storage.later:LaterStore"
    with pytest.raises(UnknownScheme, match="this version has no store for later:// yet"):
        store_for("later://x")


def test_what_is_missing_inside_a_store_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "broken_store.py").write_text("import no_such_thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    register_store("broken", "broken_store:Store")
    with pytest.raises(ModuleNotFoundError, match="no_such_thing"):
        store_for("broken://x")


def test_a_file_of_the_store_is_read(tmp_path):
    (tmp_path / "x").write_bytes(b"data")
    register_store("here", lambda url, timeout_s: LocalStore(str(tmp_path)))
    file = io.BytesIO()
    assert store_for("here://").get("x", file) == 4
