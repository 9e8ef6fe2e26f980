"""Claims are exclusive among threads and processes, and end with their holder."""

import multiprocessing
import os
from pathlib import Path

import pytest

from streaming.cache.claims import SPACE, Claim
from tests.helpers import in_thread


@pytest.fixture
def index(tmp_path: Path) -> Path:
    path = tmp_path / "index.json"
    path.write_text("{}")
    return path


def test_one_at_a_time(index: Path) -> None:
    first, second, other = Claim(index, 5), Claim(index, 5), Claim(index, SPACE)
    assert first.try_acquire()
    assert not second.try_acquire()
    assert other.try_acquire()
    first.release()
    assert second.try_acquire()
    second.release()
    other.release()


def test_waiting_ends_when_the_holder_releases(index: Path) -> None:
    first, second = Claim(index, 0), Claim(index, 0)
    first.acquire()
    waited = in_thread(second.acquire)
    first.release()
    waited()
    assert not Claim(index, 0).try_acquire()
    second.release()


def _claim_forever(index: Path, ready: "multiprocessing.synchronize.Event") -> None:
    Claim(index, 1).acquire()
    ready.set()
    multiprocessing.Event().wait()


def test_a_killed_holder_gives_it_up(index: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=_claim_forever, args=(index, ready))
    child.start()
    assert ready.wait(30)
    claim = Claim(index, 1)
    assert not claim.try_acquire()
    waited = in_thread(claim.acquire)
    child.kill()
    waited()
    claim.release()
    child.join(30)


def _live_on(ready: "multiprocessing.synchronize.Event") -> None:
    ready.set()
    multiprocessing.Event().wait()


def test_a_forked_child_does_not_keep_its_parents_claim(index: Path) -> None:
    """A worker forked while a thread has a claim must not hold it after the thread's process is
    gone.
    """
    context = multiprocessing.get_context("fork")
    claim = Claim(index, 2)
    claim.acquire()
    ready = context.Event()
    child = context.Process(target=_live_on, args=(ready,))
    child.start()
    assert ready.wait(30)
    assert not [fd for fd in os.listdir(f"/proc/{child.pid}/fd") if _is(child.pid, fd, index)]
    claim.release()
    assert Claim(index, 2).try_acquire()
    child.kill()
    child.join(30)


def _is(pid: int | None, fd: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}") == str(path)
    except OSError:
        return False


def test_a_replaced_index_takes_the_claims_with_it(index: Path) -> None:
    old = Claim(index, 3)
    old.acquire()
    new = index.with_name("new")
    new.write_text("{}")
    waiter = Claim(index, 3)
    waited = in_thread(waiter.acquire)
    os.replace(new, index)
    old.release()
    waited()
    assert not Claim(index, 3).try_acquire(), (
        "the waiter's lock has to be on the file that is there now"
    )
    waiter.release()


def test_without_an_index_or_locks_everyone_goes_ahead(tmp_path: Path) -> None:
    claim = Claim(tmp_path / "missing.json", 0)
    assert claim.try_acquire()
    assert not claim.is_real
    claim.release()
