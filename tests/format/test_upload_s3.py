"""Writing to S3: over HTTP, to a real API, with requests that fail."""

from pathlib import Path

import pytest

from streaming.format.merge import merge_index
from streaming.format.writer import WriteError
from streaming.format.writer_mds import MDSWriter
from streaming.storage import AccessDenied
from tests.format.writing import COLUMNS, read_all
from tests.servers.fixtures import Bucket
from tests.servers.proxy import Fault

SAMPLES = [{"n": i, "s": "x" * 10} for i in range(40)]


@pytest.fixture(autouse=True)
def _waits_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.storage.retry.RetryPolicy.wait_s", lambda *args: 0.0)


def write(out: str, **kwargs: object) -> None:
    kwargs.setdefault("size_limit", 240)
    with MDSWriter(columns=COLUMNS, out=out, **kwargs) as writer:  # type: ignore[arg-type]
        for sample in SAMPLES:
            writer.write(sample)


def download(bucket: Bucket, prefix: str, folder: Path) -> Path:
    keys = bucket.keys()
    for key in keys:
        if key.startswith(prefix):
            path = folder / key.removeprefix(prefix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bucket.read(key))
    return folder


def test_a_data_set_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    write(f"{bucket.url}/train", compression="zstd", hashes=["sha1"])
    assert read_all(download(bucket, "train/", tmp_path)) == SAMPLES
    puts = [seen.path for seen in bucket.proxy.matching(method="PUT")]
    assert puts[-1].endswith("/train/index.json")
    with pytest.raises(FileExistsError, match="is not empty"):
        MDSWriter(columns=COLUMNS, out=f"{bucket.url}/train")
    write(f"{bucket.url}/train", exist_ok=True, size_limit=None)
    assert bucket.keys() == ["train/index.json", "train/shard.00000.mds"]


def test_requests_that_fail_are_repeated(bucket: Bucket, tmp_path: Path) -> None:
    bucket.proxy.add(Fault(status=503, retry_after="0", method="PUT", share=0.3))
    write(f"{bucket.url}/train", retry=20)
    assert bucket.proxy.spoiled > 0
    assert read_all(download(bucket, "train/", tmp_path)) == SAMPLES


def test_a_shard_that_is_refused(bucket: Bucket) -> None:
    bucket.proxy.add(Fault(status=403, method="PUT", key=r"shard\.00003"))
    with pytest.raises(
        WriteError, match=r"shard\.00003\.mds: s3://.*/train/shard\.00003"
    ) as caught:
        write(f"{bucket.url}/train", max_workers=2)
    assert isinstance(caught.value.__cause__, AccessDenied)
    left = bucket.keys()
    assert "train/index.json" not in left
    assert f"{len(left)} files without an index are left in {bucket.url}/train" in str(caught.value)


def test_merging_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    for part in ("0", "1"):
        write(f"{bucket.url}/train/{part}")
    merge_index(f"{bucket.url}/train")
    assert read_all(download(bucket, "train/", tmp_path)) == SAMPLES * 2
