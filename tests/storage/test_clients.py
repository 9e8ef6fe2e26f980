"""Clients: one for each process and set of options, through threads and forks."""

import gc
import multiprocessing
import os
import threading

import pytest

from streaming.storage import clients


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(clients, "_clients", {})


def test_made_once_for_equal_options():
    made = []

    def make():
        made.append(1)
        return object()

    barrier, found = threading.Barrier(8), []

    def ask():
        barrier.wait(30)
        found.append(clients.shared_client(("x", 1), make))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(made) == 1
    assert len(set(found)) == 1
    assert clients.shared_client(("x", 2), make) is not found[0]


def test_what_failed_is_tried_again():
    with pytest.raises(ZeroDivisionError):
        clients.shared_client("x", lambda: 1 / 0)
    assert clients.shared_client("x", lambda: 7) == 7


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_rests_meanwhile_and_is_left_as_it_was(enabled):
    def make():
        assert not gc.isenabled()
        raise ZeroDivisionError

    try:
        if not enabled:
            gc.disable()
        with pytest.raises(ZeroDivisionError):
            clients.shared_client("x", make)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def _ask(pipe):
    # The child's collector is as it was before the parent began.
    assert gc.isenabled()
    pipe.send(clients.shared_client("x", os.getpid))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_makes_its_own_even_if_the_parent_was_making_one():
    here, there = multiprocessing.Pipe()
    mine = clients.shared_client("x", os.getpid)
    making, forked = threading.Event(), threading.Event()

    def slowly():
        making.set()
        assert forked.wait(30)
        return 1

    thread = threading.Thread(target=clients.shared_client, args=("y", slowly))
    thread.start()
    assert making.wait(30)  # From here on the lock is held.
    process = multiprocessing.get_context("fork").Process(target=_ask, args=(there,))
    process.start()
    try:
        assert here.poll(30), "the child waits for a lock that nobody holds"
        assert here.recv() == process.pid != mine
    finally:
        forked.set()
        thread.join(30)
        process.join(30)


def test_environment_token(monkeypatch):
    monkeypatch.setenv("STREAMING_TEST_A", "1")
    before = clients.environment_token("STREAMING_TEST_")
    assert clients.environment_token("STREAMING_TEST_") == before
    monkeypatch.setenv("OTHER", "1")
    assert clients.environment_token("STREAMING_TEST_") == before
    monkeypatch.setenv("STREAMING_TEST_A", "secret")
    after = clients.environment_token("STREAMING_TEST_")
    assert after != before
    assert "secret" not in after
