"""The background of the writers."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from streaming.format.pipeline import CancelledError, Pipeline
from tests.helpers import in_thread

LIMIT_S = 30.0


class Steps:
    """Two steps that wait until they may go on, and count how many are in them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.inside = {"prepare": 0, "deliver": 0}
        self.most = {"prepare": 0, "deliver": 0}
        self.done: dict[str, list[int]] = {"prepare": [], "deliver": []}
        self.passes = {"prepare": 0, "deliver": 0}

    def step(self, name: str) -> Callable[[int], None]:
        def run(job: int) -> None:
            with self.changed:
                self.inside[name] += 1
                self.most[name] = max(self.most[name], self.inside[name])
                self.changed.notify_all()
                assert self.changed.wait_for(lambda: self.passes[name] > 0, LIMIT_S)
                self.passes[name] -= 1
                self.inside[name] -= 1
                self.done[name].append(job)
                self.changed.notify_all()

        return run

    def let(self, name: str, count: int = 1) -> None:
        with self.changed:
            self.passes[name] += count
            self.changed.notify_all()

    def wait_for(self, enough: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(enough, LIMIT_S)


def threads() -> int:
    return threading.active_count()


def test_both_steps_of_every_job() -> None:
    steps = Steps()
    pipeline: Pipeline[int] = Pipeline(
        steps.step("prepare"), steps.step("deliver"), preparing=2, delivering=3
    )
    steps.let("prepare", 100)
    steps.let("deliver", 100)
    for job in range(50):
        pipeline.submit(job)
    pipeline.drain()
    assert sorted(steps.done["prepare"]) == sorted(steps.done["deliver"]) == list(range(50))
    assert pipeline.error is None


def test_no_more_jobs_than_there_is_room_for() -> None:
    steps = Steps()
    pipeline: Pipeline[int] = Pipeline(
        steps.step("prepare"), steps.step("deliver"), preparing=2, delivering=3
    )
    submitted: list[int] = []

    def submit() -> None:
        for job in range(10):
            pipeline.submit(job)
            submitted.append(job)

    end = in_thread(submit)
    steps.wait_for(lambda: steps.inside["prepare"] == 2)
    assert len(submitted) <= 2
    steps.let("prepare", 100)
    # Three are being delivered, a fourth waits; the fifth has not begun.
    steps.wait_for(lambda: len(steps.done["prepare"]) == 4 and steps.inside["deliver"] == 3)
    assert len(submitted) <= 4
    assert steps.inside["prepare"] == 0
    steps.let("deliver")
    steps.wait_for(lambda: len(steps.done["prepare"]) == 5 and steps.inside["deliver"] == 3)
    steps.let("deliver", 100)
    end()
    pipeline.drain()
    assert steps.most["prepare"] <= 2
    assert steps.most["deliver"] == 3


def test_the_first_error_is_kept_and_stops_the_rest() -> None:
    steps = Steps()
    broken = ValueError("broken")

    def deliver(job: int) -> None:
        if job == 0:
            raise broken
        steps.step("deliver")(job)

    pipeline: Pipeline[int] = Pipeline(steps.step("prepare"), deliver, preparing=4, delivering=2)
    for job in range(3):
        pipeline.submit(job)
    steps.let("prepare", 3)
    steps.let("deliver", 3)
    pipeline.drain()
    assert pipeline.error is broken
    assert pipeline.failed == 0
    before = len(steps.done["prepare"])
    pipeline.submit(7)
    pipeline.drain()
    assert len(steps.done["prepare"]) == before


def test_a_submitter_that_waits_for_room_is_told_of_an_error() -> None:
    steps = Steps()
    pipeline: Pipeline[int] = Pipeline(steps.step("prepare"), preparing=1)
    pipeline.submit(0)
    end = in_thread(lambda: pipeline.submit(1))
    steps.wait_for(lambda: steps.inside["prepare"] == 1)
    pipeline.cancel(ValueError("enough"))
    end()
    steps.let("prepare")
    pipeline.drain()
    assert steps.done["prepare"] == [0]
    assert str(pipeline.error) == "enough"


def test_sleep_ends_when_all_is_called_off() -> None:
    begun = threading.Event()

    def prepare(job: int) -> None:
        begun.set()
        pipeline.sleep(3600.0)

    pipeline: Pipeline[int] = Pipeline(prepare, preparing=1)
    pipeline.sleep(0.0)
    pipeline.submit(0)
    assert begun.wait(LIMIT_S)
    pipeline.stop(RuntimeError("enough"))
    assert str(pipeline.error) == "enough"
    with pytest.raises(CancelledError):
        pipeline.sleep(0.0)


def test_no_thread_when_idle() -> None:
    before = threads()
    pipeline: Pipeline[int] = Pipeline(lambda job: None, preparing=2)
    assert threads() == before
    for job in range(5):
        pipeline.submit(job)
    pipeline.drain()
    deadline = time.monotonic() + LIMIT_S
    while threads() > before and time.monotonic() < deadline:
        pass  # the last one is on its way out
    assert threads() == before


def test_a_process_does_not_wait_for_threads_when_it_ends() -> None:
    script = """
import threading
from streaming.format.pipeline import Pipeline
begun = threading.Event()
pipeline = Pipeline(lambda job: (begun.set(), threading.Event().wait()), preparing=1)
pipeline.submit(0)
begun.wait()
raise SystemExit(7)
"""
    run = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert run.returncode == 7
