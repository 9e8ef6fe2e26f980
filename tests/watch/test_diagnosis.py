"""One line about why a trainer waits, and what to do about it."""

import pytest

from streaming.watch.diagnosis import Watch, diagnose

BUSY = {"starved_s": 4.0, "training_s": 6.0}


def line(workers: int = 2, **amounts: float) -> str:
    found = diagnose({**BUSY, **amounts}, rank=3, workers=workers)
    assert found is not None
    assert found.startswith("rank 3 waits for ")
    assert "40 % of its time: " in found
    return found


def test_downloads_say_what_is_wanted_and_what_was_got() -> None:
    slow = line(wait_s=9, bytes_fetched=120e6, bytes_fetched_by_range=30e6)
    assert "downloads" in slow
    assert "25 MB/s wanted, 15 MB/s got" in slow
    assert "max_connections" in slow
    assert "retries" in line(wait_s=9, bytes_fetched=1e6, retries=7)
    assert "cache_limit" in line(wait_s=9, bytes_fetched=1e6, evictions=7)
    assert "compression" in line(wait_s=9, bytes_fetched=1e6, decompressing_s=8)


def test_only_waiting() -> None:
    found = diagnose({"starved_s": 5, "training_s": 0, "wait_s": 5}, 0, 0)
    assert found is not None
    assert "wanted" not in found


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ("reading_s", "disk"),
        ("decoding_s", "busy|num_workers"),
        ("user_code_s", "__getitem__"),
        ("collating_s", "busy|num_workers"),
        ("planning_s", "blockwise"),
    ],
)
def test_other_stages(stage: str, said: str) -> None:
    assert any(word in line(**{stage: 9}) for word in said.split("|"))
    if stage != "planning_s":
        assert "num_workers" in line(workers=0, **{stage: 9})


def test_a_trainer_that_hardly_waits_is_left_alone() -> None:
    assert diagnose({"starved_s": 0.05, "training_s": 1.0, "wait_s": 9}, 0, 2) is None
    assert diagnose({}, 0, 0) is None


def test_looks_come_after_twice_as_long_each() -> None:
    watch = Watch(first_s=10, last_s=30)
    looks = [
        (second, watch.look(second, {"samples": second})["samples"])
        for second in range(100)
        if watch.is_due(second)
    ]
    assert looks == [(10, 10), (30, 20), (60, 30), (90, 30)]
