"""Downloaders and uploaders by their old names; a user's own downloader under a data set's feet."""

import io
import multiprocessing
import os
import pickle
from pathlib import Path

import pytest

import streaming.base.storage as old
from streaming.base.storage import download, upload
from streaming.storage import (
    AccessDenied,
    NotFound,
    RetryPolicy,
    StoreError,
    Throttled,
    register_store,
    registry,
    store_for,
)
from streaming.storage.local import LocalStore
from tests.servers.fixtures import *  # noqa: F403
from tests.servers.proxy import Fault


class Own(old.CloudDownloader):
    """As somebody may have written it for 0.13."""

    calls = 0
    raises: Exception | None = None

    @staticmethod
    def _client_identifier() -> str:
        return "own"

    def clean_up(self) -> None:
        pass

    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        type(self).calls += 1
        if type(self).raises is not None:
            raise type(self).raises
        Path(local).write_bytes(f"{remote} within {timeout}".encode())


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setattr(Own, "calls", 0)
    monkeypatch.setitem(download.DOWNLOADER_MAPPINGS, "own", Own)


def read(store, key):
    file = io.BytesIO()
    store.get(key, file)
    return file.getvalue()


def _read_and_send(store, key, pipe):
    pipe.send(read(store, key))


class TestOwnDownloader:
    """Registered for its scheme, it is what `store_for` finds."""

    pytestmark = pytest.mark.usefixtures("own")

    def test_is_found(self, tmp_path):
        store = store_for("own://place/data", timeout_s=7)
        text = b"own://place/data/train/x within 7"
        assert read(store, "train/x") == text
        assert store.get_range("train/x", 4, 9) == text[4:9]
        assert store.size("train/x") == len(text)
        assert not store.can_range
        assert not store.can_write
        assert isinstance(old.CloudDownloader.get("own://place"), Own)
        old.CloudDownloader.direct_download("own://place/y", str(tmp_path / "a" / "y"), 5.0)
        assert (tmp_path / "a" / "y").read_text() == "own://place/y within 5.0"

    def test_leaves_nothing_behind(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        store = store_for("own://place")
        read(store, "x")
        store.size("x")
        monkeypatch.setattr(Own, "raises", OSError("broken"))
        with pytest.raises(StoreError):
            read(store, "x")
        assert os.listdir(tmp_path) == []

    def test_errors(self, monkeypatch):
        store = store_for("own://place")
        for raised, kind, retryable in (
            (FileNotFoundError("gone"), NotFound, False),
            (PermissionError("no"), AccessDenied, False),
            (ValueError("the service hiccuped"), StoreError, True),
        ):
            monkeypatch.setattr(Own, "raises", raised)
            with pytest.raises(kind, match=f"own://place/x: Own failed.*{raised}") as caught:
                read(store, "x")
            assert caught.value.retryable is retryable
        Own.calls = 0
        policy = RetryPolicy(retries=2, sleep=lambda s: None)
        with pytest.raises(StoreError):
            policy.call(lambda: read(store, "x"), "fetching")
        assert Own.calls == 3

    def test_one_that_writes_nothing(self, monkeypatch):
        monkeypatch.setattr(Own, "_download_file_impl", lambda *args: None)
        with pytest.raises(StoreError, match="own://place/x: Own wrote no file"):
            read(store_for("own://place"), "x")

    def test_pickles_and_spawns(self):
        store = pickle.loads(pickle.dumps(store_for("own://place")))
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=_read_and_send, args=(store, "x", there)
        )
        process.start()
        try:
            assert here.poll(60)
            assert here.recv() == b"own://place/x within 60.0"
        finally:
            process.join(60)

    def test_may_stand_upon_a_built_in_one(self, tmp_path, monkeypatch):
        class Louder(old.LocalDownloader):
            def _download_file_impl(self, remote, local, timeout):
                super()._download_file_impl(remote, local, timeout)
                Path(local).write_bytes(Path(local).read_bytes().upper())

        monkeypatch.setitem(download.DOWNLOADER_MAPPINGS, "", Louder)
        (tmp_path / "x").write_text("data")
        assert read(store_for(str(tmp_path)), "x") == b"DATA"


def test_built_in_downloaders_leave_the_stores_alone(tmp_path):
    assert type(store_for(str(tmp_path))) is LocalStore
    assert type(store_for("s3://bucket")).__name__ == "S3Store"


class TestDownloaders:
    def test_local(self, tmp_path, monkeypatch):
        (tmp_path / "a b").write_text("data")
        target = tmp_path / "deep" / "copy"
        for source in (str(tmp_path / "a b"), (tmp_path / "a b").as_uri()):
            old.LocalDownloader().download(source, str(target))
            assert target.read_text() == "data"
            target.unlink()
        monkeypatch.chdir(tmp_path)
        old.LocalDownloader().download("a b", "copy")
        assert Path("copy").read_text() == "data"

    def test_what_is_there_stays(self, tmp_path):
        (tmp_path / "x").write_text("mine")
        old.S3Downloader().download("s3://bucket/x", str(tmp_path / "x"))
        old.S3Downloader().download(None, str(tmp_path / "x"))
        assert (tmp_path / "x").read_text() == "mine"

    def test_errors(self, tmp_path):
        local = str(tmp_path / "x")
        with pytest.raises(FileNotFoundError):
            old.LocalDownloader().download(str(tmp_path / "no"), local)
        with pytest.raises(ValueError, match="no remote is given"):
            old.LocalDownloader().download(None, local)
        with pytest.raises(ValueError, match="S3Downloader downloads from 's3', not from 'gs'"):
            old.S3Downloader().download("gs://bucket/x", local)
        with pytest.raises(ValueError, match="no store is known for nope://"):
            old.CloudDownloader.get("nope://x")
        assert os.listdir(tmp_path) == []

    def test_every_built_in_scheme_has_one(self):
        for url, name in {
            "s3://b": "S3Downloader",
            "dbfs:/Volumes/a": "DatabricksUnityCatalogDownloader",
            "dbfs:/a": "DBFSDownloader",
            "file:///a": "LocalDownloader",
            r"C:\a": "LocalDownloader",
        }.items():
            assert type(old.CloudDownloader.get(url)).__name__ == name

    def test_s3(self, bucket, tmp_path):
        bucket.put("train/x", b"data")
        local = tmp_path / "deep" / "x"
        old.CloudDownloader.direct_download(f"{bucket.url}/train/x", str(local))
        assert local.read_bytes() == b"data"
        with pytest.raises(NotFound, match="train/y"):
            old.S3Downloader().download(f"{bucket.url}/train/y", str(tmp_path / "y"))
        bucket.proxy.add(Fault(cut_after=1))
        with pytest.raises(StoreError):
            old.S3Downloader().download(f"{bucket.url}/train/x", str(tmp_path / "z"))
        assert os.listdir(tmp_path) == ["deep"]
        assert os.listdir(tmp_path / "deep") == ["x"]

    def test_http(self, bucket, tmp_path):
        bucket.put("a b/x", b"data", public=True)
        url = f"{bucket.proxy.url}/{bucket.name}/a%20b/x?sig=1"
        old.CloudDownloader.direct_download(url, str(tmp_path / "x"))
        assert (tmp_path / "x").read_bytes() == b"data"
        assert bucket.proxy.seen[0].query == "sig=1"


class TestUploaders:
    def test_a_pair_of_folders(self, tmp_path):
        local, remote = tmp_path / "local", tmp_path / "remote"
        uploader = upload.CloudUploader.get((str(local), str(remote)))
        assert type(uploader) is upload.LocalUploader
        (local / "deep").mkdir()
        (local / "deep" / "x").write_text("data")
        uploader.upload_file(os.path.join("deep", "x"))
        assert (remote / "deep" / "x").read_text() == "data"
        assert not (local / "deep" / "x").exists()
        assert uploader.list_objects() == [str(remote / "deep" / "x")]
        with pytest.raises(FileNotFoundError):
            uploader.upload_file("no")

    def test_one_folder(self, tmp_path):
        uploader = upload.CloudUploader.get(str(tmp_path / "out"), keep_local=True)
        assert (uploader.local, uploader.remote) == (str(tmp_path / "out"), None)
        (tmp_path / "out" / "x").write_text("data")
        uploader.upload_file("x")
        uploader.clear_local(str(tmp_path / "out" / "x"))
        assert (tmp_path / "out" / "x").read_text() == "data"

    def test_a_folder_with_something_in_it(self, tmp_path, caplog):
        (tmp_path / "x").touch()
        with pytest.raises(FileExistsError, match="exist_ok=True"):
            upload.CloudUploader.get(str(tmp_path))
        upload.CloudUploader.get(str(tmp_path), exist_ok=True)
        assert "is not empty" in caplog.text
        assert (tmp_path / "x").exists()

    @pytest.mark.parametrize("out", [5, ("a",), ("a", "b", "c"), None])
    def test_no_place_at_all(self, out):
        with pytest.raises(ValueError, match="out is"):
            upload.CloudUploader.get(out)

    def test_no_such_scheme(self):
        with pytest.raises(ValueError, match="no store is known for nope://"):
            upload.CloudUploader.get("nope://x")
        with pytest.raises(ValueError, match="read-only"):
            upload.CloudUploader.get("https://host/x")

    def test_s3(self, bucket, tmp_path):
        uploader = upload.CloudUploader.get(f"{bucket.url}/train")
        assert type(uploader) is upload.S3Uploader
        Path(uploader.local, "x").write_bytes(b"data")
        uploader.upload_file("x")
        assert bucket.read("train/x") == b"data"
        assert os.listdir(uploader.local) == []
        bucket.put("other", b"")
        bucket.put("train/y/z", b"")
        assert uploader.list_objects() == ["train/x", "train/y/z"]
        assert uploader.list_objects("y") == ["train/y/z"]
        uploader.check_bucket_exists(bucket.url)
        with pytest.raises(NotFound, match="no such bucket: 'no-such-bucket'"):
            uploader.check_bucket_exists("s3://no-such-bucket/x")
        with pytest.raises(NotFound, match="no such bucket"):
            upload.CloudUploader.get("s3://no-such-bucket/x")

    def test_s3_again_and_again(self, bucket, tmp_path):
        uploader = upload.S3Uploader(
            (str(tmp_path), bucket.url), keep_local=True, progress_bar=True, retry=1
        )
        (tmp_path / "x").write_bytes(b"data")
        bucket.proxy.add(Fault(method="PUT", status=500, times=1))
        uploader.upload_file("x")
        assert bucket.read("x") == b"data"
        assert (tmp_path / "x").exists()
        bucket.proxy.add(Fault(method="PUT", status=503, retry_after="1000"))
        with pytest.raises(Throttled, match="would pass"):
            uploader.upload_file("x")

    def test_a_scheme_of_ones_own(self, tmp_path, monkeypatch):
        monkeypatch.setattr(registry, "_registered", {})
        register_store("shelf", lambda url, timeout_s: LocalStore(str(tmp_path / "shelf")))
        (tmp_path / "shelf").mkdir()
        uploader = upload.CloudUploader.get((str(tmp_path / "local"), "shelf://a/b"))
        (tmp_path / "local" / "x").write_text("data")
        uploader.upload_file("x")
        assert (tmp_path / "shelf" / "x").read_text() == "data"
