"""How a shard's file is held: mapped, or read by position where others could shrink it."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming.format import mapping
from streaming.format.errors import CorruptShardError
from streaming.format.mapping import PositionedFile, is_network_device, open_file
from streaming.format.readers import reader_from_json
from tests.format.shard_files import lines_shard, mds_shard


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say what file system this folder's device has."""
    device = os.stat(tmp_path).st_dev
    monkeypatch.setattr(mapping, "_devices", {})
    table = tmp_path / "mountinfo"
    monkeypatch.setattr(mapping, "_MOUNTS", str(table))

    def say(kind: str) -> int:
        mapping._devices.clear()
        table.write_text(
            "36 35 98:0 / /mnt rw,noatime master:1 - nfs4 server:/x rw\n"
            f"40 35 {os.major(device)}:{os.minor(device)} /sub /here rw shared:2 - {kind} src rw\n"
        )
        return device

    return say


@pytest.mark.parametrize(
    ("kind", "network"),
    [
        *(("ext4", False), ("xfs", False), ("overlay", False), ("tmpfs", False)),
        *(("fuseblk", False), ("nfsd", False), ("btrfs", False)),
        *(("nfs", True), ("nfs4", True), ("cifs", True), ("smb3", True), ("lustre", True)),
        *(("fuse.sshfs", True), ("fuse", True), ("ceph", True), ("9p", True), ("virtiofs", True)),
    ],
)
def test_which_file_systems_are_read(mounts: Any, kind: str, network: bool) -> None:
    assert is_network_device(mounts(kind)) is network


def test_what_is_in_no_table_is_mapped(mounts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts("nfs")
    assert not is_network_device(os.makedev(250, 99))
    mapping._devices.clear()
    monkeypatch.setattr(mapping, "_MOUNTS", "/nonexistent/mountinfo")
    assert not is_network_device(os.makedev(98, 0))


def test_this_machine() -> None:
    assert is_network_device(os.stat("/").st_dev) in (False, True)


COLUMNS = {"a": "int", "b": "str", "c": "ndarray:int32:50", "d": "json"}


def sample_of(i: int) -> dict[str, Any]:
    return {"a": i, "b": "é" * i, "c": np.full(50, i, np.int32), "d": [i]}


def test_reading_by_position_gives_the_same(tmp_path: Path, mounts: Any) -> None:
    obj = mds_shard(tmp_path, COLUMNS, [sample_of(i) for i in range(12)])
    mounts("nfs4")
    read = reader_from_json(str(tmp_path), None, obj)
    read.open()
    mounts("ext4")
    mapped = reader_from_json(str(tmp_path), None, obj)
    mapped.open()
    assert type(read._opened.file.data) is PositionedFile  # type: ignore[union-attr]
    assert type(mapped._opened.file.data) is not PositionedFile  # type: ignore[union-attr]
    for i in range(12):
        assert repr(read.sample(i)) == repr(mapped.sample(i))
        assert read.get_sample_data(i) == mapped.get_sample_data(i)
    at = [3, 11, 0, 3]
    assert repr(read.batch(at)) == repr(mapped.batch(at))
    assert read.batch([])["c"].shape == (0, 50)
    assert read.sample(3)["c"].flags.writeable
    assert not read.unlinked()
    (tmp_path / "shard.00000.mds").unlink()
    assert read.unlinked()
    assert read.sample(11)["a"] == 11
    assert not pickle.loads(pickle.dumps(read)).is_open


def test_lines_by_position(tmp_path: Path, mounts: Any) -> None:
    fields = {"column_names": ["a", "b"], "column_encodings": ["int", "str"]}
    obj = lines_shard(tmp_path, "csv", ["1,x", "2,y", "3,z"], fields, head="a,b")
    mounts("cifs")
    reader = reader_from_json(str(tmp_path), None, obj)
    assert list(reader) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3, "b": "z"}]
    assert reader.batch([2, 0]) == {"a": [3, 1], "b": ["z", "x"]}


def test_a_file_that_shrinks_is_an_error(tmp_path: Path, mounts: Any) -> None:
    """On a network file system; mapped, it would kill the process."""
    obj = mds_shard(tmp_path, COLUMNS, [sample_of(i) for i in range(12)])
    mounts("nfs")
    reader = reader_from_json(str(tmp_path), None, obj)
    reader.open()
    os.truncate(tmp_path / "shard.00000.mds", 800)
    for use in (lambda: reader.sample(11), lambda: reader.batch([11])):
        with pytest.raises(CorruptShardError, match=r"shard\.00000\.mds.*changed while in use"):
            use()


def test_positioned_files_close_their_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    descriptor = os.open(path, os.O_RDONLY)
    file = PositionedFile(descriptor, 10, str(path))
    assert (len(file), file[2:5], file[8:20], file[5:5]) == (10, b"234", b"89", b"")
    del file
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_opening(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    assert open_file(str(path), 0).data == b""
    with pytest.raises(CorruptShardError, match="0 bytes where the index says 5"):
        open_file(str(path), 5)
    with pytest.raises(FileNotFoundError):
        open_file(str(tmp_path / "y"), 0)
    with pytest.raises((CorruptShardError, OSError)):
        open_file(str(tmp_path), 5)


def test_readers_survive_fork(tmp_path: Path) -> None:
    mds_shard(tmp_path, {"x": "int"}, [{"x": i} for i in range(9)])
    script = f"""
import os
from tests.format.shard_files import mds_shard
from streaming.format.readers import reader_from_json
from pathlib import Path
obj = mds_shard(Path({str(tmp_path)!r}), {{"x": "int"}}, [{{"x": i}} for i in range(9)])
reader = reader_from_json({str(tmp_path)!r}, None, obj)
reader.open()
pid = os.fork()
if not pid:
    os._exit(reader.sample(7)["x"])
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status), reader.sample(8)["x"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["7", "8"]
