"""Memory that a process shares with its children."""

import copy
import multiprocessing
import pickle
import threading

import pytest

from streaming.shared import SharedInts


def _increment(ints: SharedInts, times: int) -> None:
    for _ in range(times):
        with ints.lock():
            ints[0] += 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_share_it(method: str) -> None:
    ints = SharedInts(4)
    context = multiprocessing.get_context(method)
    children = [context.Process(target=_increment, args=(ints, 200)) for _ in range(3)]
    for child in children:
        child.start()
    _increment(ints, 200)
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert ints[0] == 800


def test_threads_exclude_one_another() -> None:
    ints = SharedInts(1)
    threads = [threading.Thread(target=_increment, args=(ints, 500)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ints[0] == 2000


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda ints: pickle.loads(pickle.dumps(ints))])
def test_other_copies_are_on_their_own(copied: object) -> None:
    ints = SharedInts(3)
    ints[1] = -5
    other = copied(ints)  # type: ignore[operator]
    other[1] += 1
    assert (ints[1], other[1]) == (-5, -4)


def _hold_and_die(ints: SharedInts, held: "multiprocessing.synchronize.Event") -> None:
    with ints.lock():
        held.set()
        threading.Event().wait()


def test_a_killed_holder_gives_up_the_lock() -> None:
    ints = SharedInts(1)
    context = multiprocessing.get_context("fork")
    held = context.Event()
    child = context.Process(target=_hold_and_die, args=(ints, held))
    child.start()
    assert held.wait(30)
    child.kill()
    child.join(30)
    with ints.lock():
        ints[0] = 1
    assert ints[0] == 1


def test_many_leave_no_descriptors() -> None:
    import os

    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2000):
        SharedInts(8)
    assert len(os.listdir("/proc/self/fd")) <= before + 2
