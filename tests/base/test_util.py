"""The helpers that scripts import from `streaming.base.util`."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from streaming.base import util


class Flaky:
    """Fails so many times with this exception, then returns its arguments."""

    def __init__(self, failures: int, error: type[Exception] = ValueError) -> None:
        self.calls = 0
        self.failures = failures
        self.error = error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"call {self.calls}")
        return args, kwargs


def eager(*args: Any, **kwargs: Any) -> Any:
    return util.retry(*args, initial_backoff=0.0, max_jitter=0.0, **kwargs)


def decorated(flaky: Flaky, decorator: Any) -> Any:
    @decorator
    def function(*args: Any, **kwargs: Any) -> Any:
        """What it says."""
        return flaky(*args, **kwargs)

    assert function.__name__ == "function"
    assert function.__doc__ == "What it says."
    return function


def test_retry_returns_what_an_attempt_returns() -> None:
    flaky = Flaky(2)
    assert decorated(flaky, eager())(1, a=2) == ((1,), {"a": 2})
    assert flaky.calls == 3


def test_retry_raises_the_last_error() -> None:
    flaky = Flaky(9)
    with pytest.raises(ValueError, match="call 3"):
        decorated(flaky, eager(ValueError))()
    assert flaky.calls == 3


def test_retry_lets_other_errors_through() -> None:
    flaky = Flaky(9, KeyError)
    with pytest.raises(KeyError):
        decorated(flaky, eager((ValueError, OSError)))()
    assert flaky.calls == 1


def test_retry_takes_a_sequence_of_classes() -> None:
    assert decorated(Flaky(1, KeyError), eager([ValueError, KeyError]))(5) == ((5,), {})


def test_retry_cleans_up_after_each_failure() -> None:
    cleaned: list[int] = []
    with pytest.raises(ValueError):
        decorated(Flaky(9), eager(clean_up_fn=lambda: cleaned.append(1), num_attempts=4))()
    assert len(cleaned) == 4


def test_retry_without_arguments() -> None:
    assert decorated(Flaky(0), util.retry)(1) == ((1,), {})


def test_retry_waits_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    with pytest.raises(ValueError):
        decorated(Flaky(9), util.retry(num_attempts=4, initial_backoff=1.0, max_jitter=0.5))()
    assert [int(wait) for wait in waits] == [1, 2, 4]
    assert all(wait % 1 < 0.5 for wait in waits)


def test_retry_leaves_the_shared_generator_alone() -> None:
    random.seed(3)
    expected = random.random()
    random.seed(3)
    decorated(Flaky(1), eager())()
    assert random.random() == expected


@pytest.mark.parametrize(
    "wrong", [{"num_attempts": 0}, {"initial_backoff": -1.0}, {"max_jitter": -1.0}]
)
def test_retry_refuses_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        util.retry(**wrong)


def test_wait_for_a_file(tmp_path: Path) -> None:
    path = tmp_path / "there"
    with pytest.raises(RuntimeError, match=r"Nothing: .*there was not there within 0.020 s"):
        util.wait_for_file_to_exist(str(path), 0.01, 0.02, "Nothing: ")
    path.touch()
    util.wait_for_file_to_exist(str(path), 100.0, 0.0, "Nothing: ")


def test_wait_for_a_file_that_comes(tmp_path: Path) -> None:
    path = tmp_path / "late"
    timer = threading.Timer(0.05, path.touch)
    timer.start()
    util.wait_for_file_to_exist(str(path), 0.001, 60.0, "Nothing: ")
    timer.join()
    assert path.exists()


def test_the_rest() -> None:
    assert util.clean_stale_shared_memory() is None  # type: ignore[func-returns-value]
    assert "pip install 'shardstream[images]'" in util.get_import_exception_message(
        "Pillow", "images"
    )
    assert util.bytes_to_int("1kb") == 1024
    assert util.number_abbrev_to_int("1k") == 1000
    assert util.get_list_arg("a,b") == ["a", "b"]
    assert set(util.__all__) <= set(vars(util))
