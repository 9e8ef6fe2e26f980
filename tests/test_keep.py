"""The folder of what is worth keeping: made once, mapped by all, and nothing depends on it."""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming import keep as keeping
from streaming.keep import Keep, user_keep

ARRAYS = {
    "numbers": np.arange(100_000, dtype=np.uint32),
    "rows": np.ones((3, 5), np.float32),
    "none": np.zeros(0, np.int64),
}


def make() -> dict[str, Any]:
    return dict(ARRAYS)


def refuse() -> dict[str, Any]:
    raise AssertionError("made again")


def check(found: dict[str, Any]) -> None:
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert np.array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    return Keep(str(tmp_path / "keep"))


def files(keep: Keep) -> list[Path]:
    return sorted(Path(keep.path).glob("*.keep"))


def test_what_is_kept_is_what_was_made(keep: Keep) -> None:
    assert keep.find("things", "ab") is None
    check(keep.get("things", "ab", make))
    found = keep.get("things", "ab", refuse)
    check(found)
    check(keep.find("things", "ab") or {})
    with pytest.raises(ValueError, match="read-only"):
        found["numbers"][0] = 1
    assert os.stat(files(keep)[0]).st_mode & 0o777 & ~0o644 == 0


def test_threads_wait_for_the_one_that_makes_it(keep: Keep) -> None:
    made, all_ask = [], threading.Barrier(4)

    def count() -> dict[str, Any]:
        made.append(1)
        return make()

    def ask() -> None:
        all_ask.wait()
        check(keep.get("things", "ab", count))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


PROGRAM = """
import os, sys
import numpy as np
from streaming.keep import Keep

def make():
    print("making", flush=True)
    sys.stdin.readline()
    return {"numbers": np.arange(10)}

found = Keep(sys.argv[1]).get("things", "ab", make)
print(found["numbers"].tolist() == list(range(10)), flush=True)
"""


def start(keep: Keep) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, keep.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_wait_for_the_one_that_makes_it(keep: Keep) -> None:
    first = start(keep)
    assert first.stdout.readline() == "making\n"
    second = start(keep)
    first.stdin.write("\n")
    first.stdin.flush()
    assert first.communicate()[0] == "True\n"
    assert second.communicate()[0] == "True\n"


def test_whoever_waits_takes_over_from_one_that_is_killed(keep: Keep) -> None:
    first = start(keep)
    assert first.stdout.readline() == "making\n"
    second = start(keep)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert second.stdout.readline() == "making\n"
    assert second.communicate("\n")[0] == "True\n"
    first.communicate()


def test_what_a_killed_process_left_is_removed(keep: Keep) -> None:
    left = Path(keep.path, ".part-77-00000000")
    left.write_bytes(b"half")
    keep.get("things", "ab", make)
    assert not left.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:5],
        lambda data: b"",
        lambda data: data + b"x",
        lambda data: b"\0" * len(data),
        lambda data: data[:30] + b"\xff" + data[31:],
        lambda data: data[:9000] + b"\xff" * 9000 + data[18000:],
    ],
)
def test_a_damaged_file_is_made_again(keep: Keep, damage: Any, caplog: Any) -> None:
    keep.get("things", "ab", make)
    path = files(keep)[0]
    path.write_bytes(damage(path.read_bytes()))
    check(keep.get("things", "ab", make))
    assert "is damaged and will be made again" in caplog.text
    check(keep.get("things", "ab", refuse))


def test_large_files_are_summed_up_in_part(keep: Keep, monkeypatch: Any) -> None:
    monkeypatch.setattr(keeping, "_SAMPLED", 4)
    keep.get("things", "ab", make)
    check(keep.get("things", "ab", refuse))
    path = files(keep)[0]
    data = path.read_bytes()
    path.write_bytes(data[:-65536] + b"\xff" * 65536)
    check(keep.get("things", "ab", make))


def test_the_least_recently_used_goes_first(keep: Keep) -> None:
    keep.limit_bytes = 1_000_000
    for at, key in enumerate(["aa", "bb"]):
        keep.get("things", key, make)
        os.utime(keep._path("things", key), (at, at))
    keep.get("things", "aa", refuse)
    keep.get("things", "cc", make)
    assert [path.name for path in files(keep)] == ["things-aa.keep", "things-cc.keep"]


def test_what_is_mapped_outlives_its_file(keep: Keep) -> None:
    found = keep.get("things", "ab", make)
    files(keep)[0].unlink()
    check(found)


def test_what_is_too_large_is_not_kept(keep: Keep) -> None:
    keep.limit_bytes = 1000
    check(keep.get("things", "ab", make))
    assert not files(keep)


def test_a_folder_that_cant_be_written_to(keep: Keep) -> None:
    """The size of files is limited, as that of a full disk is."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        check(keep.get("things", "ab", make))
        keep.make_ahead("things", "ab", make)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not files(keep)
    assert not list(Path(keep.path).glob(".part*"))


def test_a_folder_that_vanishes(keep: Keep) -> None:
    Path(keep.path, "locks").unlink()
    Path(keep.path).rmdir()
    check(keep.get("things", "ab", make))


def test_making_ahead(keep: Keep) -> None:
    keep.make_ahead("things", "ab", make)
    keep.make_ahead("things", "ab", refuse)
    check(keep.get("things", "ab", refuse))
    lock = keep.lock("cd")
    with lock:
        keep.make_ahead("things", "cd", refuse)


def test_what_fails_while_it_is_made_leaves_no_lock(keep: Keep) -> None:
    with pytest.raises(AssertionError, match="made again"):
        keep.get("things", "ab", refuse)
    check(keep.get("things", "ab", make))


def test_where_the_folder_is(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("STREAMING_CACHE_LIMIT", "2kb")
    found = user_keep()
    assert found is not None
    assert (found.path, found.limit_bytes) == (str(tmp_path / "mine"), 2048)
    assert os.stat(found.path).st_mode & 0o777 == 0o700
    monkeypatch.setenv("STREAMING_CACHE_DIR", "")
    assert user_keep() is None
    monkeypatch.delenv("STREAMING_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = user_keep()
    assert found is not None
    assert found.path == str(tmp_path / "cache" / "shardstream")


def test_a_folder_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(shared))
    with caplog.at_level("INFO", "streaming"):
        assert user_keep() is None
    assert "no folder that only this user may write to" in caplog.text
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("")
    assert user_keep() is None
