"""How a data set comes to be, or does not."""

import json
import logging
import shutil
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from streaming.format import compression
from streaming.format.layout import header, offset_table
from streaming.format.writer import WriteError
from streaming.format.writer_kinds import JointWriter, SplitWriter
from streaming.format.writer_mds import MDSWriter
from tests.format.writing import COLUMNS, SAMPLES, WRITERS, names, parse, read_all


def make(format: str, out: Any, **kwargs: Any) -> Any:
    if format == "xsv":
        kwargs["separator"] = "|"
    return WRITERS[format](columns=COLUMNS, out=out, **kwargs)


@pytest.mark.parametrize("format", sorted(WRITERS))
def test_an_exception_in_the_block_means_no_index(
    format: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class MyError(Exception):
        pass

    def write() -> None:
        with make(format, tmp_path, size_limit=40) as writer:
            for sample in SAMPLES:
                writer.write(sample)
            raise MyError

    with pytest.raises(MyError):
        write()
    left = names(tmp_path)
    assert "index.json" not in left
    assert left
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "because of MyError" in record.message
    assert f"files without an index are left in {tmp_path}" in record.message


def test_a_mistake_that_is_caught_costs_nothing(tmp_path: Path) -> None:
    with MDSWriter(columns=COLUMNS, out=tmp_path) as writer:
        writer.write(SAMPLES[0])
        with pytest.raises(KeyError):
            writer.write({"n": 1})
        writer.write(SAMPLES[1])
    assert read_all(tmp_path) == SAMPLES[:2]


def test_a_mistake_that_is_not_caught_means_no_index(tmp_path: Path) -> None:
    def write() -> None:
        with MDSWriter(columns=COLUMNS, out=tmp_path) as writer:
            writer.write(SAMPLES[0])
            writer.write({"n": 1})

    with pytest.raises(KeyError):
        write()
    assert names(tmp_path) == []


def test_finish_may_be_repeated_and_ends_writing(tmp_path: Path) -> None:
    writer = MDSWriter(columns=COLUMNS, out=tmp_path)
    writer.write(SAMPLES[0])
    writer.finish()
    index = (tmp_path / "index.json").read_bytes()
    writer.finish()
    with pytest.raises(ValueError, match="this writer is finished"):
        writer.write(SAMPLES[1])
    assert (tmp_path / "index.json").read_bytes() == index
    assert len(writer.shards) == 1


def test_flush_shard_ends_a_shard(tmp_path: Path) -> None:
    with MDSWriter(columns=COLUMNS, out=tmp_path) as writer:
        writer.write(SAMPLES[0])
        writer.flush_shard()
        assert writer.new_samples == []
        writer.write(SAMPLES[1])
        writer.write(SAMPLES[2])
    assert [shard["samples"] for shard in writer.shards] == [1, 2]
    assert read_all(tmp_path) == SAMPLES[:3]


def test_closing_is_prompt(tmp_path: Path) -> None:
    took = []
    for i in range(5):
        begin = time.perf_counter()
        with MDSWriter(columns=COLUMNS, out=tmp_path / str(i)):
            pass
        took.append(time.perf_counter() - begin)
    assert min(took) < 0.05


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with MDSWriter(columns=COLUMNS, out=tmp_path, size_limit=300) as writer:
        assert set(threading.enumerate()) == before
        for sample in SAMPLES:
            writer.write(sample)
    for thread in set(threading.enumerate()) - before:
        thread.join(30.0)
        assert not thread.is_alive()


def test_the_local_folder_vanishes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    writer = MDSWriter(columns=COLUMNS, out=out)
    writer.write(SAMPLES[0])
    shutil.rmtree(out)
    with pytest.raises(
        WriteError, match=r"out could not be written: shard\.00000\.mds: "
    ) as caught:
        writer.finish()
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert "no index; nothing is left behind" in str(caught.value)
    with pytest.raises(WriteError):
        writer.finish()
    with pytest.raises(WriteError):
        writer.write(SAMPLES[0])


def test_an_error_in_the_background_is_raised_by_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = threading.Event()

    def broken(self: Any, data: bytes) -> bytes:
        if data:
            assert flushed.wait(30.0)
            raise MemoryError("too much")
        return data

    monkeypatch.setattr(compression.Zstandard, "compress", broken)
    writer = MDSWriter(columns=COLUMNS, out=tmp_path, compression="zstd")
    writer.write(SAMPLES[0])
    writer.flush_shard()
    flushed.set()
    writer._pipeline.drain()
    with pytest.raises(WriteError, match=r"shard\.00000\.mds: too much") as caught:
        writer.write(SAMPLES[1])
    assert isinstance(caught.value.__cause__, MemoryError)
    with pytest.raises(WriteError, match="too much"):
        writer.finish()
    assert names(tmp_path) == []


def test_finished_shards_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds no more shards than the background works on, and the one at hand."""
    room = threading.Semaphore(0)
    changed = threading.Condition()
    inside = 0

    def slow(self: Any, data: bytes) -> bytes:
        nonlocal inside
        if data:
            with changed:
                inside += 1
                changed.notify_all()
            assert room.acquire(timeout=30.0)
        return data

    monkeypatch.setattr(compression.Zstandard, "compress", slow)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    writer = MDSWriter(columns=COLUMNS, out=tmp_path, compression="zstd", size_limit=240)

    def write() -> None:
        for i in range(40):
            writer.write({"n": i, "s": "x" * 10})
        writer.finish()

    thread = threading.Thread(target=write)
    thread.start()
    with changed:
        assert changed.wait_for(lambda: inside == 3, 30.0)
    assert len(writer.shards) <= 3
    room.release(1)
    with changed:
        assert changed.wait_for(lambda: inside == 4, 30.0)
    assert len(writer.shards) <= 4
    room.release(1000)
    thread.join(30.0)
    assert len(writer.shards) > 10
    assert (tmp_path / "index.json").exists()


# Subclasses.


class Lines(JointWriter):
    format = "lines"

    def __init__(self, *, suffix: str, **kwargs: Any) -> None:
        super().__init__(extra_bytes_per_shard=3, extra_bytes_per_sample=2, **kwargs)
        self.suffix = suffix

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        return f"{sample['n']}{self.suffix}\n".encode()

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "suffix": self.suffix}

    def encode_joint_shard(self) -> bytes:
        return b"==\n" + b"".join(b"> " + sample for sample in self.new_samples)


def test_a_joint_writer_of_ones_own(tmp_path: Path) -> None:
    with Lines(suffix="!", out=tmp_path, size_limit=14, hashes=["md5"]) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    # 3 bytes, and 5 for each sample: two fit.
    assert names(tmp_path) == ["index.json", *(f"shard.0000{i}.lines" for i in range(3))]
    assert (tmp_path / "shard.00001.lines").read_bytes() == b"==\n> 2!\n> 3!\n"
    shard = json.loads((tmp_path / "index.json").read_text())["shards"][1]
    assert shard == {
        "compression": None,
        "format": "lines",
        "hashes": ["md5"],
        "raw_data": {
            "basename": "shard.00001.lines",
            "bytes": 13,
            "hashes": {"md5": shard["raw_data"]["hashes"]["md5"]},
        },
        "samples": 2,
        "size_limit": 14,
        "suffix": "!",
        "version": 2,
        "zip_data": None,
    }


def test_a_split_writer_of_ones_own(tmp_path: Path) -> None:
    class Split(SplitWriter):
        format = "split"
        extra_bytes_per_sample = 1

        def encode_sample(self, sample: dict[str, Any]) -> bytes:
            return str(sample["n"]).encode()

        def encode_split_shard(self) -> tuple[bytes, bytes]:
            meta = offset_table(self.new_samples, 0) + header(self.get_config())
            return b"".join(self.new_samples), meta

    with Split(out=tmp_path, size_limit=4, compression="zstd") as writer:
        for sample in SAMPLES:
            writer.write(sample)
    assert [shard["samples"] for shard in writer.shards] == [2, 2, 2]
    assert names(tmp_path)[1:3] == ["shard.00000.split.meta.zstd", "shard.00000.split.zstd"]


def test_methods_may_be_overridden(tmp_path: Path) -> None:
    flushed: list[int] = []

    class Doubled(MDSWriter):
        def encode_sample(self, sample: dict[str, Any]) -> bytes:
            return super().encode_sample({**sample, "n": 2 * sample["n"]})

        def flush_shard(self) -> None:
            flushed.append(len(self.new_samples))
            super().flush_shard()

    with Doubled(columns=COLUMNS, out=tmp_path, size_limit=250) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    assert [sample["n"] for sample in parse(tmp_path)] == [0, 2, 4, 6, 8, 10]
    assert flushed == [shard["samples"] for shard in writer.shards]


def test_abstract_classes_stay_abstract(tmp_path: Path) -> None:
    for writer in (JointWriter, SplitWriter):
        with pytest.raises(TypeError, match="abstract"):
            writer(out=tmp_path)  # type: ignore[abstract]


# Callbacks.


def test_a_failed_future_calls_everything_off(tmp_path: Path) -> None:
    good: Future[int] = Future()
    good.set_result(1)
    bad: Future[int] = Future()
    bad.set_exception(OSError("upload failed"))
    writer = MDSWriter(columns=COLUMNS, out=tmp_path)
    writer.exception_callback(good)
    writer.write(SAMPLES[0])
    writer.exception_callback(bad)
    with pytest.raises(WriteError, match="upload failed"):
        writer.write(SAMPLES[1])
    with pytest.raises(WriteError, match="upload failed"):
        writer.finish()
    assert names(tmp_path) == []


def test_without_uploads_there_is_nothing_to_cancel(tmp_path: Path) -> None:
    with MDSWriter(columns=COLUMNS, out=tmp_path) as writer:
        writer.write(SAMPLES[0])
        writer.cancel_future_jobs()
        writer.write(SAMPLES[1])
    assert read_all(tmp_path) == SAMPLES[:2]
