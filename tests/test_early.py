"""The first part of what is kept is there before the rest."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming.early import Early, Publish, get_early
from streaming.keep import Arrays, Keep

LIMIT_S = 60.0


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    return Keep(str(tmp_path / "keep"))


def numbers(count: int) -> Arrays:
    return {"numbers": np.arange(count)}


def kept(keep: Keep) -> int:
    return len([name for name in os.listdir(keep.path) if name.endswith(".keep")])


def check(early: Early, first: int | None, whole: int = 10) -> None:
    assert early.is_whole == (first is None)
    assert early.arrays["numbers"].tolist() == list(range(whole if first is None else first))
    assert early.whole()["numbers"].tolist() == list(range(whole))


class Slow:
    """Makes something whose rest is there when it is told to go on."""

    def __init__(self, first: int | None = 4) -> None:
        self.first = first
        self.go_on = threading.Event()
        self.made = 0

    def __call__(self, publish: Publish) -> Arrays:
        self.made += 1
        if self.first is not None:
            publish(numbers(self.first))
        assert self.go_on.wait(LIMIT_S)
        return numbers(10)


def test_the_first_part_comes_before_the_rest(keep: Keep) -> None:
    make = Slow()
    early = get_early(keep, "things", "ab", make)
    another = get_early(keep, "things", "ab", make)
    assert kept(keep) == 1
    assert not another.end(), "it is the other one that makes it"
    make.go_on.set()
    assert early.end()
    check(early, 4)
    check(another, 4)
    check(get_early(keep, "things", "ab", make), None)
    assert make.made == 1
    assert kept(keep) == 1, "the first part should be gone, the whole is there"
    assert keep.get("things", "ab", lambda: numbers(0))["numbers"].tolist() == list(range(10))


def test_without_a_first_part_all_is_waited_for(keep: Keep) -> None:
    make = Slow(None)
    make.go_on.set()
    check(get_early(keep, "things", "ab", make), None)
    check(get_early(keep, "things", "ab", make), None)
    assert make.made == 1


def test_what_fails_at_once_is_raised(keep: Keep) -> None:
    def make(publish: Publish) -> Arrays:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            get_early(keep, "things", "ab", make)
    make_well = Slow()
    make_well.go_on.set()
    check(get_early(keep, "things", "ab", make_well), 4)


def test_what_fails_later_is_raised_where_the_rest_is_needed(keep: Keep) -> None:
    def make(publish: Publish) -> Arrays:
        publish(numbers(4))
        raise ValueError("no")

    early = get_early(keep, "things", "ab", make)
    assert early.arrays["numbers"].tolist() == [0, 1, 2, 3]
    assert not early.end()
    with pytest.raises(ValueError, match="no"):
        early.whole()


def test_what_cant_be_kept_is_given_all_the_same(tmp_path: Path) -> None:
    keep = Keep(str(tmp_path / "keep"), limit_bytes=8)
    make = Slow()
    early = get_early(keep, "things", "ab", make)
    make.go_on.set()
    check(early, 4)
    assert kept(keep) == 0
    assert make.made == 1


PROGRAM = """
import sys
import numpy as np
from streaming.early import get_early
from streaming.keep import Keep

def say(line):
    sys.stdout.write(line + "\\n")  # in one piece: a thread says something, too
    sys.stdout.flush()

def make(publish):
    publish({"numbers": np.arange(4)})
    say("making")
    sys.stdin.readline()
    return {"numbers": np.arange(10)}

early = get_early(Keep(sys.argv[1]), "things", "ab", make)
say(f"first {early.arrays['numbers'].tolist() == [0, 1, 2, 3]}")
say(f"whole {early.whole()['numbers'].tolist() == list(range(10))}")
"""


def start(keep: Keep) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, keep.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_another_process_has_the_first_part_and_waits_for_the_rest(keep: Keep) -> None:
    maker = start(keep)
    assert {maker.stdout.readline() for _ in range(2)} == {"making\n", "first True\n"}
    other = start(keep)
    assert other.stdout.readline() == "first True\n"
    maker.stdin.write("\n")
    maker.stdin.flush()
    for process in (maker, other):
        assert process.communicate(timeout=LIMIT_S)[0] == "whole True\n"


def test_whoever_needs_the_rest_makes_it_if_the_maker_was_killed(keep: Keep) -> None:
    maker = start(keep)
    assert {maker.stdout.readline() for _ in range(2)} == {"making\n", "first True\n"}
    other = start(keep)
    assert other.stdout.readline() == "first True\n"
    maker.send_signal(signal.SIGKILL)
    maker.communicate(timeout=LIMIT_S)
    out, _ = other.communicate("\n", timeout=LIMIT_S)
    assert out == "making\nwhole True\n"
    assert kept(keep) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_waits_for_its_parent_to_make_the_rest(keep: Keep) -> None:
    program = f"""
import multiprocessing, sys
import numpy as np
from streaming.early import get_early
from streaming.keep import Keep
from tests.test_early import Slow

make = Slow()
early = get_early(Keep({keep.path!r}), "things", "ab", make)

def child(inside):
    inside.set()
    assert len(early.whole()["numbers"]) == 10

context = multiprocessing.get_context("fork")
inside = context.Event()
process = context.Process(target=child, args=(inside,))
process.start()
inside.wait({LIMIT_S})
make.go_on.set()
process.join({LIMIT_S})
print(process.exitcode, make.made)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=2 * LIMIT_S
    )
    assert done.stdout == "0 1\n", done.stderr
