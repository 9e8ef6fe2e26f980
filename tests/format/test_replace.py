"""Putting a new local data set in an old one's place, and dying in the middle of it."""

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.format import replace
from streaming.format.replace import (
    Staging,
    dataset_files,
    remove_dataset,
    write_atomically,
)
from streaming.format.writer_mds import MDSWriter
from tests.format.writing import COLUMNS, SAMPLES, names, read_all

MODES = ["exchange", "rename", "inside", "fallback"]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The ways in which the data set can get to its place."""
    chosen: str = request.param
    use_mode(chosen, monkeypatch.setattr)
    return chosen


def use_mode(mode: str, setattr: Callable[..., Any]) -> None:
    if mode == "rename":
        setattr(replace, "_exchange", lambda one, other: False)
    elif mode == "inside":
        setattr(os.path, "ismount", lambda path: os.path.basename(path) == "data")
    elif mode == "fallback":

        def refuse(one: Path, other: Path) -> bool:
            raise PermissionError("no renaming here")

        setattr(replace, "_exchange", refuse)


def index_of(*shards: str) -> bytes:
    entries = [{"raw_data": {"basename": name}, "zip_data": None} for name in shards]
    return json.dumps({"version": 2, "shards": entries}).encode()


OLD = ["shard.00000.mds", "shard.00001.mds", "shard.00002.mds", "part/shard.00000.mds"]
NEW = ["shard.00000.mds", "shard.00001.mds"]
EXTRA = {"README": "mine", "notes/a.txt": "mine", "part/list": "mine"}


def fill(folder: Path, shards: list[str], text: str) -> None:
    for name in shards:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_old(root: Path) -> Path:
    target = root / "data"
    fill(target, [*OLD, "part/index.json"], "old")
    (target / "index.json").write_bytes(index_of(*OLD))
    for name, text in EXTRA.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return target


def put_new(target: Path) -> None:
    staging = Staging(target, exist_ok=True)
    fill(staging.folder, NEW, "new")
    staging.publish(index_of(*NEW))


def state(target: Path) -> str:
    """Which data set is to be read: "old", "new" or "none"; anything else fails."""
    if not (target / "index.json").exists():
        return "none"
    listed = json.loads((target / "index.json").read_text())["shards"]
    shards = [shard["raw_data"]["basename"] for shard in listed]
    found = {(target / name).read_text() for name in shards}
    assert found in ({"old"}, {"new"}), f"a mixture: {found}"
    assert shards == (OLD if found == {"old"} else NEW)
    return found.pop()


# Names.


def test_files_of_a_data_set() -> None:
    index = index_of("shard.00000.mds", "a/b/shard.00000.mds", "../up", "/abs", "C:/x", "a/../../x")
    assert dataset_files(index) == {
        "index.json",
        "shard.00000.mds",
        "a/b/shard.00000.mds",
        "a/b/index.json",
    }


@pytest.mark.parametrize(
    "index", [None, b"", b"{", b"[]", b"{}", b'{"shards": 3}', b'{"shards": [3]}', b"\xff"]
)
def test_an_index_that_can_not_be_read(index: bytes | None) -> None:
    assert dataset_files(index) == {"index.json"}


def test_removing_a_data_set_leaves_the_rest(tmp_path: Path) -> None:
    target = make_old(tmp_path)
    fill(target, ["shard.00007.csv.meta.zstd", "shard.txt"], "x")
    assert remove_dataset(target) == ["README", "notes", "part", "shard.txt"]
    assert names(target) == sorted([*EXTRA, "shard.txt"])


def test_folders_that_become_empty_go(tmp_path: Path) -> None:
    fill(tmp_path, ["a/b/shard.00000.mds", "a/c/shard.00000.mds"], "x")
    (tmp_path / "index.json").write_bytes(index_of("a/b/shard.00000.mds", "a/c/shard.00000.mds"))
    assert remove_dataset(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_writing_atomically(tmp_path: Path) -> None:
    path = tmp_path / "index.json"
    for data in (b"one", b"another"):
        write_atomically(path, data)
        assert path.read_bytes() == data
        assert names(tmp_path) == ["index.json"]


# Where files are written.


def test_an_empty_place(tmp_path: Path) -> None:
    for exist_ok in (False, True):
        target = tmp_path / f"deep/{exist_ok}"
        staging = Staging(target, exist_ok)
        assert staging.folder == target
        assert not staging.replaces
        fill(staging.folder, NEW, "new")
        assert state(target) == "none"
        staging.publish(index_of(*NEW))
        assert state(target) == "new"
        assert names(tmp_path / "deep") == [
            *(
                f"{done}/{name}"
                for done in ([False] if not exist_ok else [False, True])
                for name in sorted([*NEW, "index.json"])
            )
        ]


def test_a_place_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(FileExistsError, match=f"{tmp_path} is not empty.*exist_ok=True"):
        Staging(tmp_path, exist_ok=False)
    assert names(tmp_path) == ["x"]


def test_replacing(mode: str, tmp_path: Path) -> None:
    target = make_old(tmp_path)
    os.chmod(target, 0o750)
    staging = Staging(target, exist_ok=True)
    assert staging.replaces
    assert (staging.folder.parent == target) == (mode == "inside")
    fill(staging.folder, NEW, "new")
    assert state(target) == "old"
    assert "is as it was" in staging.left()
    staging.publish(index_of(*NEW))
    assert state(target) == "new"
    assert names(tmp_path) == sorted(f"data/{name}" for name in [*NEW, *EXTRA, "index.json"])
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    staging.give_up()
    assert state(target) == "new"


def test_giving_up(mode: str, tmp_path: Path) -> None:
    target = make_old(tmp_path)
    before = names(tmp_path)
    staging = Staging(target, exist_ok=True)
    fill(staging.folder, NEW, "new")
    staging.give_up()
    staging.give_up()
    assert names(tmp_path) == before
    assert state(target) == "old"


def test_dropping(tmp_path: Path) -> None:
    target = make_old(tmp_path)
    staging = Staging(target, exist_ok=True)
    fill(staging.folder, NEW, "new")
    assert staging.drop() == ["README", "notes", "part"]
    assert names(tmp_path) == sorted(f"data/{name}" for name in EXTRA)
    other = Staging(tmp_path / "other", exist_ok=False)
    fill(other.folder, NEW, "new")
    assert other.drop() == []
    assert not (tmp_path / "other").exists()


def test_shards_without_an_index_only_take_room(tmp_path: Path) -> None:
    fill(tmp_path, ["shard.00000.mds", "shard.00008.mds", "README"], "old")
    staging = Staging(tmp_path, exist_ok=True)
    assert staging.folder == tmp_path
    assert names(tmp_path) == ["README"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    target = make_old(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(target)
    put_new(link)
    assert link.is_symlink()
    assert state(link) == state(target) == "new"


def test_a_failure_in_the_middle_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = make_old(tmp_path)
    use_mode("inside", monkeypatch.setattr)
    staging = Staging(target, exist_ok=True)
    fill(staging.folder, NEW, "new")
    real = os.replace

    def broken(one: Any, other: Any) -> None:
        if os.path.basename(other) == NEW[1]:
            raise OSError("disk on fire")
        real(one, other)

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="on fire"):
        staging.publish(index_of(*NEW))
    staging.give_up()
    assert state(target) == "none"
    assert str(staging.folder) in staging.left()
    here = {name.rpartition("/")[2] for name in names(tmp_path)}
    assert set(NEW) <= here, "what was written is still there"


# Death.

STEPS = [(os, "replace"), (os, "rename"), (os, "rmdir"), (os, "unlink"), (os, "mkdir")]


def run_until_death(step: int, mode: str, target: Path) -> bool:
    """Replace a data set in a process that dies before it changes the folder once more.

    Returns:
        Whether it died; if not, there are no more steps.
    """
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, 9), f"the child failed: {code}"
        return code == 9
    try:
        die_before(step)
        use_mode(mode, setattr)
        put_new(target)
    except BaseException:
        os._exit(1)
    os._exit(0)


def die_before(step: int) -> None:
    left = iter(range(step))

    def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(left, None) is None:
                os._exit(9)
            return real(*args, **kwargs)

        return call

    for module, name in STEPS:
        setattr(module, name, deadly(getattr(module, name)))
    replace._exchange = deadly(replace._exchange)  # type: ignore[assignment]


@pytest.mark.parametrize("mode_name", MODES)
def test_death_at_any_step(mode_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for step in range(1000):
        root = tmp_path / str(step)
        target = make_old(root)
        died = run_until_death(step, mode_name, target)
        seen.append(state(target))
        everywhere = {Path(name).name for name in names(root)}
        assert {"README", "a.txt", "list"} <= everywhere, "a file of the user's is lost"
        if not died:
            break
        # Whoever writes next makes everything good.
        with monkeypatch.context() as patch:
            use_mode(mode_name, patch.setattr)
            put_new(target)
        assert state(target) == "new"
        assert names(root) == sorted(f"data/{name}" for name in [*NEW, *EXTRA, "index.json"])
    assert seen[-1] == "new"
    order = list(dict.fromkeys(seen))
    # In one step from the old one to the new one, wherever the system can do that.
    assert order == (["old", "new"] if mode_name == "exchange" else ["old", "none", "new"])


def test_death_while_writing_is_swept_up(tmp_path: Path) -> None:
    target = make_old(tmp_path)
    pid = os.fork()
    if not pid:
        fill(Staging(target, exist_ok=True).folder, [*NEW, "shard.00002.mds"], "new")
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(list(tmp_path.iterdir())) == 2
    assert state(target) == "old"
    put_new(target)
    assert list(tmp_path.iterdir()) == [target]


def test_a_writer_that_lives_is_left_alone(tmp_path: Path) -> None:
    target = make_old(tmp_path)
    first = Staging(target, exist_ok=True)
    fill(first.folder, NEW, "new")
    second = Staging(target, exist_ok=True)
    assert names(first.folder) == NEW
    second.give_up()
    first.publish(index_of(*NEW))
    assert state(target) == "new"


# With writers.


def test_a_writer_replaces_when_it_is_done(mode: str, tmp_path: Path) -> None:
    target = tmp_path / "data"
    for samples in (SAMPLES, SAMPLES[:2]):
        with MDSWriter(columns=COLUMNS, out=target, exist_ok=True, size_limit=250) as writer:
            for sample in samples:
                writer.write(sample)
            if samples is not SAMPLES:
                assert read_all(target) == SAMPLES
            assert writer.local == str(target)
        assert read_all(target) == samples
    assert len(names(tmp_path)) == 1 + len(writer.shards)


def test_a_writer_that_fails_leaves_the_old(mode: str, tmp_path: Path) -> None:
    target = tmp_path / "data"
    with MDSWriter(columns=COLUMNS, out=target) as writer:
        writer.write(SAMPLES[0])
    before = names(tmp_path)

    def fail() -> None:
        with MDSWriter(columns=COLUMNS, out=target, exist_ok=True, size_limit=250) as writer:
            for sample in SAMPLES:
                writer.write(sample)
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        fail()
    assert names(tmp_path) == before
    assert read_all(target) == SAMPLES[:1]


def test_a_writer_that_is_forgotten_leaves_nothing_beside(tmp_path: Path) -> None:
    target = tmp_path / "data"
    with MDSWriter(columns=COLUMNS, out=target) as writer:
        writer.write(SAMPLES[0])
    forgotten = MDSWriter(columns=COLUMNS, out=target, exist_ok=True)
    assert len(list(tmp_path.iterdir())) == 2
    forgotten._destination._rubbish()  # what the garbage collector, or the process's end, calls
    assert list(tmp_path.iterdir()) == [target]


@pytest.fixture(autouse=True)
def _no_leaks(tmp_path: Path) -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    yield
    if before:
        import gc

        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before
