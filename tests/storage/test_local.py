"""Folders as stores."""

import io
import os
import pickle

import pytest

from streaming.storage import (
    AccessDenied,
    NotFound,
    ObjectChanged,
    StoreError,
    is_local,
    local_path,
    store_for,
)
from streaming.storage.local import LocalStore


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.write_bytes(bytes(range(256)) * 4096)  # 1 MiB: several chunks.
    return path


@pytest.fixture
def store(tmp_path):
    return LocalStore(str(tmp_path / "root"))


def test_round_trip(store, source):
    store.put(source, "a/b")
    file = io.BytesIO()
    assert store.get("a/b", file) == 1 << 20
    assert file.getvalue() == source.read_bytes()
    assert store.get_range("a/b", 300, 305) == bytes(range(44, 49))
    assert store.get_range("a/b", 0, 1 << 20) == source.read_bytes()
    assert store.get_range("a/b", 7, 7) == b""
    assert store.size("a/b") == 1 << 20
    assert store.exists("a/b")
    store.delete("a/b")
    store.delete("a/b")
    assert not store.exists("a/b")


def test_empty_file(store, tmp_path):
    (tmp_path / "empty").touch()
    store.put(tmp_path / "empty", "e")
    file = io.BytesIO()
    assert store.get("e", file) == 0
    assert store.size("e") == 0


def test_missing(store, source):
    for call in (
        lambda: store.get("no", io.BytesIO()),
        lambda: store.get_range("no", 0, 1),
        lambda: store.size("no"),
        store.check,
    ):
        with pytest.raises(NotFound, match="root") as caught:
            call()
        assert not caught.value.retryable
    with pytest.raises(FileNotFoundError):
        store.put(source.parent / "nothing", "a")
    assert list(store.list()) == []


def test_folders_are_not_objects(store, source):
    store.put(source, "a/b")
    with pytest.raises(NotFound):
        store.get("a", io.BytesIO())
    with pytest.raises(NotFound):
        store.size("a")
    assert not store.exists("a")
    assert not store.exists("a/b/c")
    store.check()


def test_denied(store, source):
    store.put(source, "a")
    store.path("a").chmod(0)
    superuser = os.geteuid() == 0  # May read everything, until it has become somebody else.
    if superuser:
        os.seteuid(65534)
    try:
        with pytest.raises(AccessDenied, match="root/a: the file system denies access"):
            store.get("a", io.BytesIO())
    finally:
        if superuser:
            os.seteuid(0)


def test_range_past_the_end(store, source):
    store.put(source, "a")
    with pytest.raises(StoreError, match="the object ends at 1048576"):
        store.get_range("a", (1 << 20) - 1, (1 << 20) + 1)
    with pytest.raises(StoreError):
        store.get_range("a", 2 << 20, (2 << 20) + 1)
    with pytest.raises(ValueError, match="not a range"):
        store.get_range("a", 5, 4)
    with pytest.raises(ValueError, match="not a range"):
        store.get_range("a", -1, 4)


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../x", "a/../../x", "a\\..\\x", "..", "\0"])
def test_keys_stay_below_the_root(store, source, key):
    for call in (
        lambda: store.get(key, io.BytesIO()),
        lambda: store.put(source, key),
        lambda: store.delete(key),
        lambda: store.size(key),
    ):
        with pytest.raises(ValueError, match="not a key below"):
            call()


def test_dots_that_are_names_are_fine(store, source):
    store.put(source, "..a/b..c")
    assert list(store.list()) == ["..a/b..c"]


def test_list(store, source):
    keys = ["index.json", "train/0", "train/1", "train/deep/2", "training", "val/0"]
    for key in reversed(keys):
        store.put(source, key)
    assert list(store.list()) == keys
    assert list(store.list("train")) == ["train/0", "train/1", "train/deep/2", "training"]
    assert list(store.list("train/")) == ["train/0", "train/1", "train/deep/2"]
    assert list(store.list("train/de")) == ["train/deep/2"]
    assert list(store.list("nothing/here")) == []


def test_an_upload_appears_whole_or_not_at_all(store, source, monkeypatch):
    store.put(source, "a")
    before = store.get_range("a", 0, 1 << 20)

    def breaks(src, dst):
        dst.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", breaks)
    with pytest.raises(OSError, match="No space"):
        store.put(source, "a")
    assert store.get_range("a", 0, 1 << 20) == before
    assert os.listdir(store.root) == ["a"]


def test_what_is_being_uploaded_is_not_listed(store, source):
    store.put(source, "a")
    (store.root / "b.0123.uploading").write_bytes(b"half")
    assert list(store.list()) == ["a"]


def test_versions(store, source):
    store.put(source, "a")
    etag = store.stat("a").etag
    assert store.get_range("a", 0, 2, etag=etag) == b"\0\1"
    store.put(source, "a")
    with pytest.raises(ObjectChanged) as caught:
        store.get("a", io.BytesIO(), etag=etag)
    assert not caught.value.retryable


def test_what_the_receiver_raises_is_its_own(store, source):
    class Full(io.RawIOBase):
        def write(self, data):
            raise OSError(28, "No space left on device")

    store.put(source, "a")
    with pytest.raises(OSError, match="No space left") as caught:
        store.get("a", Full())
    assert not isinstance(caught.value, StoreError)


def test_a_body_that_is_cut_short(store, source):
    store.put(source, "a")
    body = store.open("a")
    os.truncate(store.path("a"), 1000)
    with body, pytest.raises(StoreError, match="1048576 bytes were announced, but 1000") as caught:
        list(body)
    assert caught.value.retryable


def test_reading_that_is_given_up(store, source):
    store.put(source, "a")
    body = store.open("a")
    chunks = iter(body)
    next(chunks)
    body.close()
    with pytest.raises(StoreError, match="root/a: reading was given up") as caught:
        next(chunks)
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("url", "local", "path"),
    [
        ("/data/x", True, "/data/x"),
        ("data", True, "data"),
        ("/with%20escape", True, "/with%20escape"),
        ("/a:b/c", True, "/a:b/c"),
        ("file:///data/x", True, "/data/x"),
        ("file://localhost/data", True, "/data"),
        ("FILE:///my%20data/%C3%A4", True, "/my data/ä"),
        ("file:///a#b?c", True, "/a#b?c"),
        ("file:///C:/data", True, "C:/data"),
        (r"C:\data", True, r"C:\data"),
        ("C:/data", True, "C:/data"),
        ("s3://bucket/x", False, None),
        ("dbfs:/Volumes/x", False, None),
        ("azure-dl://x", False, None),
    ],
)
def test_local_urls(url, local, path):
    assert is_local(url) is local
    if local:
        assert local_path(url) == path
    else:
        with pytest.raises(ValueError, match="not a local path"):
            local_path(url)


def test_another_machines_file():
    with pytest.raises(ValueError, match="file:///server/share"):
        store_for("file://server/share")


def test_file_urls_and_path_objects(tmp_path, source):
    folder = tmp_path / "ein Ordner"
    for url in (folder.as_uri(), str(folder), folder):
        store = store_for(url)
        assert isinstance(store, LocalStore)
        store.put(source, "a")
        assert (folder / "a").exists()
        assert pickle.loads(pickle.dumps(store)).size("a") == 1 << 20
