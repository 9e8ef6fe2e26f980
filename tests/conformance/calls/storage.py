"""Downloaders and uploaders, as far as they go without a network."""

from pathlib import Path
from typing import Any

from .codec import names, outcome
from .scenario import public, scenario

URLS = (
    *("/data/x", "s3://bucket/x", "gs://bucket/x", "oci://bucket/x", "azure://container/x"),
    *("azure-dl://container/x", "hf://datasets/a/b", "sftp://host/x", "alipan://x"),
)


@scenario("CloudDownloader")
def cloud_downloader(cls: Any, folder: Path) -> Any:
    class Own(cls):  # type: ignore[misc]
        @staticmethod
        def _client_identifier() -> str:
            return "own"

        def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
            Path(local).write_text(f"{remote} {timeout}")

        def clean_up(self) -> None:
            (folder / "cleaned").write_text("")

    target = folder / "deep" / "file"
    own = Own()
    own.download("own://there/x", str(target), timeout=3)
    own.clean_up()
    source = folder / "source"
    source.write_text("x")
    cls.direct_download(str(source), str(folder / "direct"))
    return [
        outcome(cls),
        [type(cls.get(url)).__name__ for url in (None, "", *URLS)],
        [outcome(cls.get, url) for url in ("nope://x", "nope://")],
        target.read_text(),
        outcome(own.download, "s3://bucket/x", str(folder / "other")),
        names(folder),
    ]


@scenario("LocalDownloader")
def local_downloader(cls: Any, folder: Path) -> Any:
    source = folder / "source"
    source.write_text("x")
    downloader = cls()
    downloader.download(str(source), str(folder / "a" / "copy"))
    cls.direct_download(str(source), str(folder / "b" / "copy"), timeout=5.0)
    return [
        names(folder),
        outcome(downloader.download, str(folder / "missing"), str(folder / "c")),
        outcome(downloader.download, None, str(folder / "c")),
        outcome(downloader.download, "nope://x", str(folder / "c")),
        outcome(cls.direct_download, None, str(folder / "c")),
        outcome(cls.direct_download, "nope://x", str(folder / "c")),
        type(cls.get(str(source))).__name__,
        downloader.clean_up(),
        names(folder),
    ]


@scenario(
    *("S3Downloader", "GCSDownloader", "OCIDownloader", "AzureDownloader", "HFDownloader"),
    *("AzureDataLakeDownloader", "SFTPDownloader", "AlipanDownloader", "DBFSDownloader"),
    "DatabricksUnityCatalogDownloader",
)
def downloader(cls: Any, folder: Path) -> Any:
    made = cls()
    target = str(folder / "c")
    return [
        outcome(made.download, "/data/x", target, 1.0),
        outcome(made.download, "nope://x", target, 1.0),
        outcome(made.download, None, target, 1.0),
        outcome(cls.direct_download, "nope://x", target, 1.0),
        outcome(cls.direct_download, None, target, 1.0),
        type(cls.get("s3://bucket/x")).__name__,
        made.clean_up(),
        names(folder),
    ]


@scenario("CloudUploader")
def cloud_uploader(cls: Any, folder: Path) -> Any:
    uploader = cls.get(str(folder / "out"))
    return [
        type(uploader).__name__,
        type(cls.get(str(folder / "out"), exist_ok=True)).__name__,
        outcome(cls.get, ("one",)),
        outcome(cls.get, ("one", "two", "three")),
        outcome(cls.get, "nope://x"),
        _uploading(public("base.storage.CloudUploader").get, folder / "get"),
        _own_uploader(cls, folder / "own"),
    ]


def _own_uploader(cls: Any, folder: Path) -> Any:
    class Own(cls):  # type: ignore[misc]
        pass

    made = Own(out=str(folder), keep_local=True, progress_bar=False, retry=1, exist_ok=False)
    (folder / "x").write_text("")
    made.clear_local(str(folder / "x"))
    facts = [made.keep_local, made.progress_bar, made.retry, made.remote, names(folder)]
    kept = [made.local.replace(str(folder), "out"), *facts]
    other = Own(out=str(folder / "b"))
    (folder / "b" / "x").write_text("")
    other.clear_local(str(folder / "b" / "x"))
    return [
        kept,
        names(folder),
        outcome(made.upload_file, "x"),
        outcome(made.list_objects),
    ]


@scenario("LocalUploader")
def local_uploader(cls: Any, folder: Path) -> Any:
    return _uploading(cls, folder)


def _uploading(cls: Any, folder: Path) -> Any:
    remote, local = folder / "remote", folder / "local"
    uploader = cls(out=(str(local), str(remote)), keep_local=False, retry=1)
    (local / "x").write_text("x")
    uploader.upload_file("x")
    uploaded = names(folder)
    listed = [uploader.list_objects(), uploader.list_objects(prefix="x")]
    single = cls(str(folder / "single"), True)
    (folder / "single" / "x").write_text("x")
    return [
        uploaded,
        [[Path(found).name for found in each or []] for each in listed],
        uploader.clear_local(str(folder / "single" / "x")),
        names(folder),
        [single.upload_file("x"), names(folder)],
        outcome(cls, out=(str(local), str(remote))),
        type(cls.get(str(folder / "got"))).__name__ if hasattr(cls, "get") else None,
    ]


@scenario(
    *("S3Uploader", "GCSUploader", "OCIUploader", "AzureUploader", "AzureDataLakeUploader"),
    *("HFUploader", "AlipanUploader", "DBFSUploader", "DatabricksUnityCatalogUploader"),
)
def uploader(cls: Any, folder: Path) -> Any:
    # What is raised there for a place of another kind differs by provider, and is no use.
    places = ("nope://bucket/x", ("one",), 5)
    makes = (cls, cls.get)
    return [["raises" in outcome(make, place, retry=0) for place in places] for make in makes]
