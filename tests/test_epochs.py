"""The board on which a rank and its workers agree on the epoch."""

import os

import pytest

from streaming.epochs import EpochBoard, Iteration, Worker

ME = os.getpid()


def test_each_iteration_is_the_next_epoch() -> None:
    board = EpochBoard()
    assert [board.begin().epoch for _ in range(3)] == [0, 1, 2]
    assert board.position() == (2, 0)
    assert board.next_epoch == 3


def test_workers_started_together_share_an_epoch() -> None:
    board = EpochBoard()
    for generation, epoch in ((1, 0), (4, 1), (5, 2)):
        joined = {board.join(Worker(ME, generation, 1)) for _ in range(4)}
        (iteration,) = joined
        assert isinstance(iteration, Iteration)
        assert iteration.epoch == epoch


def test_persistent_workers_go_by_their_count() -> None:
    board = EpochBoard()
    for count in (1, 2, 3):
        iterations = [board.join(Worker(ME, 7, count)) for _ in range(2)]
        assert [it and it.epoch for it in iterations] == [count - 1] * 2


def test_an_older_generation_never_moves_the_epoch() -> None:
    board = EpochBoard()
    board.join(Worker(ME, 5, 1))
    assert board.join(Worker(ME, 3, 1)) is None
    assert board.next_epoch == 1


def test_a_late_sibling_of_an_ended_iteration_is_refused() -> None:
    board = EpochBoard()
    board.join(Worker(ME, 5, 1))
    board.begin()  # in the main process
    assert board.join(Worker(ME, 5, 1)) is None


def test_two_persistent_loaders_take_turns() -> None:
    board = EpochBoard()
    turns = [(1, 1), (3, 1), (1, 2), (3, 2), (1, 3)]
    for epoch, (generation, count) in enumerate(turns):
        for _ in range(2):
            iteration = board.join(Worker(ME, generation, count))
            assert iteration is not None
            assert iteration.epoch == epoch


def test_the_later_iteration_ends_the_earlier() -> None:
    board = EpochBoard()
    first = board.begin()
    assert board.is_latest(first)
    second = board.join(Worker(ME, 1, 1))
    assert second is not None
    assert not board.is_latest(first)
    assert board.is_latest(second)


def test_resuming() -> None:
    board = EpochBoard()
    board.begin()
    board.resume((4, 96))
    assert board.position() == (4, 96)
    iteration = board.join(Worker(ME, 2, 1))
    assert iteration is not None
    assert (iteration.epoch, iteration.sample_in_epoch) == (4, 96)
    assert board.next_epoch == 5
    assert board.begin().sample_in_epoch == 0


def test_a_finished_epoch_makes_way() -> None:
    board = EpochBoard()
    board.resume((4, 96))
    iteration = board.begin(lambda position: (position[0] + 1, 0))
    assert (iteration.epoch, iteration.sample_in_epoch) == (5, 0)
    assert board.next_epoch == 6


def test_ranks_forked_from_one_process_have_their_own_epochs() -> None:
    board = EpochBoard()
    board.resume((3, 8))
    other = os.getppid()  # any process that lives
    iteration = board.join(Worker(other, 1, 1))
    assert iteration is not None
    assert (iteration.epoch, iteration.sample_in_epoch) == (3, 8)
    assert board.begin().epoch == 3
    assert board.is_latest(iteration)


def test_more_ranks_than_slots_is_an_error_only_while_they_live() -> None:
    board = EpochBoard()
    for dead in range(200):
        board.add(2**22 + 1 + dead, {0: 1})  # past the largest process id
    board.set_order(2, 9176, None)
    assert board.order(ME) == (2, 9176, None)


@pytest.mark.parametrize("initial", [None, 4])
def test_the_order_of_a_checkpoint(initial: int | None) -> None:
    board = EpochBoard()
    assert board.order(ME) is None
    board.set_order(8, 0, initial)
    assert board.order(ME) == (8, 0, initial)
