"""The board on which workers note what they do, for every process of the user to see."""

import copy
import multiprocessing
import os
import pickle
import subprocess
from typing import Any

import numpy as np
import pytest

from streaming.watch.board import IN_RANK, NUM_COUNTERS, ROWS, RunBoard, rows_of


def test_each_worker_has_its_row() -> None:
    board = RunBoard("s3://bucket/data")
    owner = os.getpid()
    board.begin(owner, 1, node=2, rank=5, epoch=3)
    board.add(owner, 1, {0: 7, NUM_COUNTERS - 1: 2})
    board.add(owner, IN_RANK, {1: 4})
    own, worker = board.rows()
    assert (own.worker, own.counters[1]) == (IN_RANK, 4)
    assert (own.node, own.rank, own.epoch) == (2, 5, 3)  # which its workers know
    assert (worker.worker, worker.pid, worker.counters[0]) == (1, owner, 7)
    assert worker.counters[-1] == 2
    assert worker.updated_s > 1e9


def test_what_is_waited_for() -> None:
    board = RunBoard()
    board.waits(1, 0, "shard 7 of " + "ü" * 200)
    (row,) = board.rows()
    assert row.waits_for.startswith("shard 7 of üü")
    assert row.waits_since_s > 1e9
    board.waits(1, 0, None)
    assert (board.rows()[0].waits_for, board.rows()[0].waits_since_s) == ("", 0)


def test_rows_of_ranks_that_are_gone_are_used_again() -> None:
    board = RunBoard()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as rank:
        for worker in range(ROWS):
            board.add(rank.pid, worker, {0: 1})
    board.add(os.getpid(), 0, {0: 5})
    assert [row.counters[0] for row in board.rows() if row.owner == os.getpid()] == [5]
    assert len(board.rows()) == ROWS


def test_too_many_workers_are_left_out() -> None:
    board = RunBoard()
    for worker in range(ROWS + 5):
        board.add(1, worker, {0: 1})
        board.waits(1, worker, "a shard")
        board.begin(1, worker, 0, 0, 0)
    assert len(board.rows()) == ROWS


def _adds(board: RunBoard, owner: int) -> None:
    for _ in range(100):
        board.add(owner, 0, {0: 1})


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_processes_add_to_one_row(method: Any) -> None:
    board, context = RunBoard("data"), multiprocessing.get_context(method)
    processes = [context.Process(target=_adds, args=(board, os.getpid())) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    (row,) = board.rows()
    assert (row.counters[0], row.owner) == (300, os.getpid())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda board: pickle.loads(pickle.dumps(board))])
def test_other_copies_are_boards_of_their_own(copied: Any) -> None:
    board = RunBoard("data")
    board.add(1, 0, {0: 1})
    other = copied(board)
    assert (other.dataset, other.rows()) == ("data", [])
    assert len(pickle.dumps(board)) < 1000


def test_rows_are_read_from_bytes() -> None:
    board = RunBoard("data")
    board.add(1, 0, {0: 1})
    assert rows_of(np.array(board._ints.slice(0, board._ints.size))) == board.rows()
