"""Writing to a store: in the background, within bounds, the index last."""

import gc
import json
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming.format.writer import WriteError
from streaming.format.writer_mds import MDSWriter
from streaming.format.writer_xsv import CSVWriter
from streaming.storage import AccessDenied, StoreError
from tests.format.writing import (
    COLUMNS,
    SAMPLES,
    HeldStore,
    Remote,
    broken,
    missing,
    names,
    read_all,
    serve,
)
from tests.helpers import in_thread

MANY = [{"n": i, "s": "x" * 10} for i in range(20)]
SHARDS = [f"shard.{i:05}.mds" for i in range(10)]
"""What 20 samples make with two in a shard."""
SMALL = 240


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return serve(tmp_path / "remote")


@pytest.fixture(autouse=True)
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files; at the end of each test, nothing of ours is in it."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _waits_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.storage.retry.RetryPolicy.wait_s", lambda *args: 0.0)


def write(out: Any, samples: list[dict[str, Any]] = MANY, **kwargs: Any) -> MDSWriter:
    kwargs.setdefault("size_limit", SMALL)
    with MDSWriter(columns=COLUMNS, out=out, **kwargs) as writer:
        for sample in samples:
            writer.write(sample)
    return writer


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_to_a_url(remote: Remote, temp: Path) -> None:
    writer = write(Remote.url)
    assert read_all(remote.root) == MANY
    assert remote.log[-1] == "put index.json"
    assert sorted(remote.log[:-1]) == [f"put {name}" for name in SHARDS]
    assert writer.remote == Remote.url
    assert Path(writer.local).parent == temp
    assert entries(temp) == []


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_the_same_bytes_as_locally(compression: str | None, remote: Remote, tmp_path: Path) -> None:
    for out in (Remote.url, tmp_path / "local"):
        with CSVWriter(
            columns=COLUMNS, out=out, size_limit=40, compression=compression, hashes=["sha1"]
        ) as writer:
            for sample in MANY:
                writer.write(sample)
    assert remote.objects() == names(tmp_path / "local")
    for name in remote.objects():
        assert (remote.root / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


def test_without_samples(remote: Remote) -> None:
    write(Remote.url, [])
    assert remote.log == ["put index.json"]


def test_local_files_may_stay(remote: Remote, temp: Path) -> None:
    writer = write(Remote.url, keep_local=True)
    assert read_all(Path(writer.local)) == read_all(remote.root) == MANY
    assert names(Path(writer.local)) == remote.objects()
    assert entries(temp) == [Path(writer.local).name]
    for path in Path(writer.local).iterdir():
        path.unlink()
    Path(writer.local).rmdir()


@pytest.mark.parametrize("keep", [False, True])
def test_to_a_pair(keep: bool, remote: Remote, tmp_path: Path, temp: Path) -> None:
    local = tmp_path / "local"
    writer = write((str(local), Remote.url), keep_local=keep)
    assert (writer.local, writer.remote) == (str(local), Remote.url)
    assert read_all(remote.root) == MANY
    assert local.exists() == keep
    if keep:
        assert names(local) == remote.objects()
        assert read_all(local) == MANY
    assert entries(temp) == []


def test_to_a_pair_of_folders(tmp_path: Path) -> None:
    write((tmp_path / "local", tmp_path / "far"), keep_local=True)
    assert read_all(tmp_path / "local") == read_all(tmp_path / "far") == MANY


def test_a_pair_with_one_part(remote: Remote, tmp_path: Path) -> None:
    write((tmp_path / "local", ""))
    write(("", Remote.url))
    assert names(tmp_path / "local") == remote.objects()


def test_options_reach_the_store(remote: Remote) -> None:
    write(Remote.url, storage_options={"region": "mars"})
    assert remote.options == {"region": "mars"}
    with pytest.raises(ValueError, match="no storage option 'regoin'"):
        MDSWriter(columns=COLUMNS, out="s3://b/x", storage_options={"regoin": "mars"})


# Bounds.


@pytest.mark.parametrize("workers", [1, 3])
def test_a_slow_store_slows_the_writer_down(workers: int, remote: Remote, temp: Path) -> None:
    remote.hold()
    writer = MDSWriter(columns=COLUMNS, out=Remote.url, size_limit=SMALL, max_workers=workers)

    def run() -> None:
        for sample in MANY:
            writer.write(sample)
        writer.finish()

    end = in_thread(run)
    for uploaded in range(len(SHARDS)):
        if uploaded < len(SHARDS) - workers:
            remote.wait_for(lambda: remote.uploading == workers)
            # One more shard than are being uploaded, and none in memory but the one at hand.
            assert len(names(temp)) <= workers + 1
            assert len(writer.shards) <= uploaded + workers + 1
        assert len(remote.log) == uploaded
        remote.release(1)
        remote.wait_for(lambda done=uploaded: len(remote.log) > done)  # type: ignore[misc]
    remote.release()
    end()
    assert remote.most_uploading == workers
    assert read_all(remote.root) == MANY


def test_writing_goes_on_while_uploading(remote: Remote) -> None:
    remote.hold()
    writer = MDSWriter(columns=COLUMNS, out=Remote.url, size_limit=SMALL, max_workers=4)
    for sample in MANY[:8]:
        writer.write(sample)
    remote.wait_for(lambda: remote.uploading == 3)
    assert remote.log == []
    remote.release()
    writer.finish()
    assert read_all(remote.root) == MANY[:8]


def test_memory_stays_within_a_few_shards(remote: Remote) -> None:
    mib = 1 << 20
    tracemalloc.start()
    try:
        with MDSWriter(
            columns={"data": "bytes"}, out=Remote.url, size_limit=mib, max_workers=2
        ) as writer:
            remote.hold()
            for i in range(400):
                if i == 100:
                    remote.release()
                writer.write({"data": bytes(mib // 10)})
                if i < 20:
                    remote.release(1)
        assert len(writer.shards) > 40
        assert tracemalloc.get_traced_memory()[1] < 9 * mib
    finally:
        tracemalloc.stop()


# Failures.


def test_an_upload_that_fails_is_tried_again(remote: Remote) -> None:
    failures = 0

    def fail(what: str, key: str) -> Exception | None:
        nonlocal failures
        if what == "put" and failures < 6 and len(remote.attempts) % 2:
            failures += 1
            return StoreError("held: hiccup", retryable=True)
        return None

    remote.fail = fail
    write(Remote.url, retry=6)
    assert failures == 6
    assert read_all(remote.root) == MANY


@pytest.mark.parametrize("retry", [0, 1, 3])
def test_an_upload_that_fails_for_good(retry: int, remote: Remote, temp: Path) -> None:
    remote.fail = broken(SHARDS[2])
    writer = MDSWriter(
        columns=COLUMNS, out=Remote.url, size_limit=SMALL, retry=retry, max_workers=1
    )

    def write_on() -> None:
        for sample in MANY * 100:
            writer.write(sample)

    with pytest.raises(WriteError) as caught:
        write_on()
    assert remote.attempts.count(f"put {SHARDS[2]}") == retry + 1
    cause = caught.value.__cause__
    assert isinstance(cause, StoreError)
    assert cause.retryable
    text = str(caught.value)
    assert f"The data set at {Remote.url} could not be written: {SHARDS[2]}" in text
    assert f"{Remote.url}/{SHARDS[2]}: broken" in text
    uploaded = len(remote.objects())
    assert f"has no index; {uploaded} files without an index are left in {Remote.url}" in text
    for _ in range(2):
        with pytest.raises(WriteError, match="broken"):
            writer.finish()
    with pytest.raises(WriteError, match="broken"):
        writer.write(SAMPLES[0])
    assert "index.json" not in remote.objects()
    assert entries(temp) == []


def test_an_error_at_the_end(remote: Remote, temp: Path) -> None:
    remote.fail = broken("shard.00000")
    with pytest.raises(WriteError, match=r"shard\.00000\.mds.*broken"):
        write(Remote.url, SAMPLES, size_limit=None)
    assert remote.objects() == []
    assert entries(temp) == []


def test_an_index_that_can_not_be_uploaded(remote: Remote, tmp_path: Path) -> None:
    remote.fail = broken("index.json")
    with pytest.raises(WriteError, match=r"10 files without an index are left in held") as caught:
        write((tmp_path / "local", Remote.url), keep_local=True)
    assert isinstance(caught.value.__cause__, StoreError)
    assert f"files without an index are left in {tmp_path}/local" in str(caught.value)
    assert remote.objects() == SHARDS
    assert names(tmp_path / "local") == SHARDS


def test_an_exception_in_the_block(
    remote: Remote, temp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run() -> None:
        with MDSWriter(columns=COLUMNS, out=Remote.url, size_limit=SMALL, max_workers=1) as writer:
            for sample in MANY:
                writer.write(sample)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert "index.json" not in remote.objects()
    assert f"{len(remote.objects())} files without an index are left in {Remote.url}" in caplog.text
    assert entries(temp) == []


def test_what_is_under_way_ends_before_the_block_does(remote: Remote) -> None:
    """Else a shard could still arrive when somebody writes there again."""
    remote.hold()
    begun = threading.Event()

    def run() -> str:
        try:
            with MDSWriter(columns=COLUMNS, out=Remote.url, max_workers=2) as writer:
                for sample in MANY[:3]:
                    writer.write(sample)
                    writer.flush_shard()
                remote.wait_for(lambda: remote.uploading == 2)
                begun.set()
                raise RuntimeError("enough")
        except RuntimeError as exc:
            return str(exc)
        return ""

    end = in_thread(run)
    assert begun.wait(30.0)
    remote.release()
    assert end() == "enough"
    # The third shard waited for its turn, which did not come.
    assert len(remote.objects()) == 2
    assert remote.uploading == 0


def test_cancelling_ends_waits_between_attempts(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.storage.retry.RetryPolicy.wait_s", lambda *args: 100.0)
    remote.fail = broken("shard")
    writer = MDSWriter(columns=COLUMNS, out=Remote.url, max_workers=2)
    writer.write(SAMPLES[0])
    writer.flush_shard()
    remote.wait_for(lambda: "put shard.00000.mds" in remote.attempts)
    writer.cancel_future_jobs()
    with pytest.raises(WriteError, match="cancel_future_jobs"):
        writer.finish()
    assert remote.attempts.count("put shard.00000.mds") == 1


def test_a_process_ends_though_an_upload_hangs(tmp_path: Path, temp: Path) -> None:
    script = f"""
import threading
from streaming.format.writer_mds import MDSWriter
from streaming.storage import register_store
from streaming.storage.local import LocalStore

class Hanging(LocalStore):
    def _put(self, path, size, key):
        begun.set()
        threading.Event().wait()

begun = threading.Event()
register_store("hang", lambda url, **options: Hanging({str(tmp_path / "x")!r}))
writer = MDSWriter(columns={{"n": "int"}}, out="hang://bucket")
writer.write({{"n": 1}})
writer.flush_shard()
begun.wait()
raise SystemExit(7)
"""
    run = subprocess.run(
        [sys.executable, "-c", script], timeout=60, check=False, env={"TMPDIR": str(temp)}
    )
    assert run.returncode == 7
    assert entries(temp) == []


def test_a_writer_that_is_forgotten_leaves_nothing(remote: Remote, temp: Path) -> None:
    writer = MDSWriter(columns=COLUMNS, out=Remote.url)
    writer.write(SAMPLES[0])
    assert len(entries(temp)) == 1
    del writer
    gc.collect()
    assert entries(temp) == []
    assert remote.objects() == []


# What is there already.


def test_a_place_that_is_not_empty(remote: Remote, temp: Path) -> None:
    (remote.root / "something").touch()
    with pytest.raises(
        FileExistsError, match=r"held.* is not empty \(it has something\).*exist_ok"
    ):
        MDSWriter(columns=COLUMNS, out=Remote.url)
    assert entries(temp) == []
    assert remote.objects() == ["something"]


def test_a_local_part_that_is_not_empty(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local/something").touch()
    with pytest.raises(FileExistsError, match="local is not empty"):
        MDSWriter(columns=COLUMNS, out=(tmp_path / "local", Remote.url))


def test_the_old_index_goes_before_anything_comes(remote: Remote) -> None:
    write(Remote.url, MANY)
    (remote.root / "README").touch()
    remote.log.clear()
    write(Remote.url, SAMPLES[:5], exist_ok=True)
    assert read_all(remote.root) == SAMPLES[:5]
    assert remote.objects() == ["README", "index.json", *SHARDS[:3]]
    assert remote.log[0] == "delete index.json"
    assert sorted(remote.log[1:4]) == [f"put {name}" for name in SHARDS[:3]]
    assert remote.log[4] == "put index.json"
    assert remote.log[5:] == [f"delete {name}" for name in SHARDS[3:]]


def test_parts_of_an_old_merged_data_set_go_too(remote: Remote) -> None:
    write(f"{Remote.url}/part", MANY)
    index = json.loads((remote.root / "part/index.json").read_text())
    for shard in index["shards"]:
        shard["raw_data"]["basename"] = "part/" + shard["raw_data"]["basename"]
    (remote.root / "index.json").write_text(json.dumps(index))
    (remote.root / "part/notes").touch()
    write(Remote.url, SAMPLES, exist_ok=True)
    assert remote.objects() == ["index.json", "part/notes", *SHARDS[:3]]


def test_an_old_index_that_is_damaged_is_replaced(remote: Remote) -> None:
    (remote.root / "index.json").write_text("{")
    (remote.root / "shard.00009.csv").touch()
    write(Remote.url, SAMPLES, exist_ok=True)
    assert remote.objects() == ["index.json", *SHARDS[:3]]


def test_the_old_data_set_stays_until_there_is_a_new_shard(remote: Remote) -> None:
    write(Remote.url, MANY)

    def fail() -> None:
        with MDSWriter(columns=COLUMNS, out=Remote.url, exist_ok=True) as writer:
            writer.write(SAMPLES[0])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert read_all(remote.root) == MANY


def test_a_failure_in_the_middle_leaves_no_mixture(remote: Remote) -> None:
    write(Remote.url, MANY)
    remote.fail = broken(SHARDS[1])
    with pytest.raises(WriteError, match=f"the index that was in {Remote.url} is removed"):
        write(Remote.url, SAMPLES, exist_ok=True)
    assert "index.json" not in remote.objects()


def test_an_old_index_that_can_not_be_deleted(remote: Remote) -> None:
    write(Remote.url, MANY)
    remote.fail = lambda what, key: (
        AccessDenied(f"{key}: denied") if (what, key) == ("delete", "index.json") else None
    )
    remote.log.clear()
    with pytest.raises(WriteError, match=r"index\.json: denied"):
        write(Remote.url, SAMPLES, exist_ok=True)
    assert remote.log == []
    assert read_all(remote.root) == MANY


def test_old_shards_that_can_not_be_deleted_are_no_harm(
    remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    write(Remote.url, MANY)
    remote.fail = lambda what, key: (
        AccessDenied(f"{key}: denied") if (what, key) == ("delete", SHARDS[5]) else None
    )
    write(Remote.url, SAMPLES, exist_ok=True)
    assert read_all(remote.root) == SAMPLES
    assert "old shards are left there" in caplog.text


@pytest.mark.parametrize("keep", [False, True])
def test_a_pair_is_replaced(keep: bool, remote: Remote, tmp_path: Path) -> None:
    local = tmp_path / "local"
    write((local, Remote.url), MANY, keep_local=True)
    (local / "README").touch()
    with MDSWriter(
        columns=COLUMNS, out=(local, Remote.url), size_limit=SMALL, keep_local=keep, exist_ok=True
    ) as writer:
        for sample in SAMPLES:
            writer.write(sample)
            assert read_all(local) == MANY
    assert read_all(remote.root) == SAMPLES
    # A local data set that is not the remote one any more would be a trap.
    assert names(local) == (["README", *remote.objects()] if keep else ["README"])
    assert sorted(entries(tmp_path)) == ["local", "remote", "temp"]


def deny(*operations: str) -> Callable[[str, str], Exception | None]:
    return lambda what, key: AccessDenied(f"held: {what} denied") if what in operations else None


def test_who_may_not_look(remote: Remote) -> None:
    remote.fail = deny("list", "get")
    with pytest.raises(AccessDenied, match=r"held: list denied.*exist_ok=True"):
        MDSWriter(columns=COLUMNS, out=Remote.url)
    write(Remote.url, SAMPLES, exist_ok=True)
    assert read_all(remote.root) == SAMPLES


def test_a_bucket_that_is_not_there(remote: Remote, temp: Path) -> None:
    remote.fail = lambda what, key: missing()
    for exist_ok in (False, True):
        with pytest.raises(FileNotFoundError, match="no such object"):
            MDSWriter(columns=COLUMNS, out=Remote.url, exist_ok=exist_ok)
    assert entries(temp) == []


def test_stores_that_can_not_be_listed(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldStore, "can_list", False)
    write(Remote.url, MANY)
    with pytest.raises(FileExistsError, match=r"it has index\.json"):
        MDSWriter(columns=COLUMNS, out=Remote.url)
    write(Remote.url, SAMPLES, exist_ok=True)
    assert remote.objects() == ["index.json", *SHARDS[:3]], "its index names the old shards"


# What is shown.


def test_a_progress_bar_if_asked_for(remote: Remote, capfd: pytest.CaptureFixture[str]) -> None:
    write(Remote.url)
    assert capfd.readouterr().err == ""
    for path in remote.root.iterdir():
        path.unlink()
    write(Remote.url, progress_bar=True)
    shown = capfd.readouterr().err
    assert f"Uploading to {Remote.url}" in shown
    total = sum(path.stat().st_size for path in remote.root.iterdir())
    assert f"{total / 1000:.2f}kB" in shown


def test_tqdm_is_not_imported_for_nothing(tmp_path: Path) -> None:
    script = f"""
import sys
from streaming import MDSWriter
out = ({str(tmp_path / "a")!r}, {str(tmp_path / "b")!r})
with MDSWriter(columns={{"n": "int"}}, out=out) as writer:
    writer.write({{"n": 1}})
heavy = {{"tqdm", "torch", "boto3", "botocore", "google.cloud", "oci", "PIL", "requests"}}
print(sorted(heavy & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", script], timeout=60, check=True, capture_output=True, text=True
    )
    assert run.stdout.strip() == "[]"
