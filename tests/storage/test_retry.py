"""Back-off with full jitter; its clock and its chance are given, not patched."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.storage import NotFound, RetryPolicy, StoreError, Throttled

CUT = StoreError("s3://b/k: cut off", url="s3://b/k", retryable=True)


class Attempts:
    """A function that fails in the ways given and then succeeds, and the waits around it."""

    def __init__(self, *errors):
        self.errors, self.calls, self.waits, self.told = list(errors), 0, [], []

    def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def run(self, rng=lambda: 0.5, **fields):
        policy = RetryPolicy(rng=rng, sleep=self.waits.append, **fields)
        return policy.call(self, "fetching s3://b/k", self.told.append)


def test_no_failure_no_wait():
    attempts = Attempts()
    assert attempts.run() == "done"
    assert (attempts.calls, attempts.waits, attempts.told) == (1, [], [])


def test_waits_double_up_to_the_cap():
    attempts = Attempts(*[CUT] * 5)
    assert attempts.run(retries=5, base_s=1.0, cap_s=3.0) == "done"
    assert attempts.waits == [0.5, 1.0, 1.5, 1.5, 1.5]
    assert attempts.told == [CUT] * 5


@given(
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=6, max_size=6),
    base=st.floats(0, 10),
    cap=st.floats(0, 10),
)
def test_jitter_is_full_and_bounded(draws, base, cap):
    attempts, left = Attempts(*[CUT] * 6), list(draws)
    attempts.run(rng=lambda: left.pop(0), retries=6, base_s=base, cap_s=cap)
    expected = [d * min(cap, base * 2.0**i) for i, d in enumerate(draws)]
    assert attempts.waits == expected


def test_the_last_error_has_every_reason():
    errors = [StoreError(f"s3://b/k: reason {i}", url="s3://b/k", retryable=True) for i in range(2)]
    attempts = Attempts(*errors, NotFound("s3://b/k: reason 2", url="s3://b/k"))
    with pytest.raises(NotFound) as caught:
        attempts.run(retries=5)
    message = str(caught.value)
    assert "fetching s3://b/k failed after 3 attempts" in message
    assert all(f"attempt {i + 1}: s3://b/k: reason {i}" in message for i in range(3))
    assert caught.value.url == "s3://b/k"
    assert attempts.calls == 3


def test_what_is_not_retryable_is_raised_at_once_as_it_is():
    attempts = Attempts(NotFound("s3://b/k: no such object"))
    with pytest.raises(NotFound, match=r"^s3://b/k: no such object$"):
        attempts.run()
    assert (attempts.calls, attempts.waits) == (1, [])


def test_other_exceptions_pass_through():
    attempts = Attempts(ZeroDivisionError("bug"))
    with pytest.raises(ZeroDivisionError):
        attempts.run()
    assert attempts.calls == 1


@pytest.mark.parametrize("retries", [0, 1, 2, 5])
def test_number_of_attempts(retries):
    attempts = Attempts(*[CUT] * 50)
    with pytest.raises(StoreError):
        attempts.run(retries=retries)
    assert attempts.calls == retries + 1


def test_retry_after_is_waited_for_and_jitter_added():
    attempts = Attempts(Throttled("slow", retry_after_s=7.0))
    attempts.run(base_s=2.0)
    assert attempts.waits == [8.0]


def test_throttling_has_attempts_of_its_own():
    attempts = Attempts(*[Throttled("slow")] * 6, CUT, CUT)
    assert attempts.run(retries=2) == "done"
    attempts = Attempts(*[Throttled("slow")] * 50)
    with pytest.raises(Throttled):
        attempts.run(retries=2, throttle_retries=3)
    assert attempts.calls == 6
    attempts = Attempts(*[Throttled("slow")] * 50)
    with pytest.raises(Throttled):
        attempts.run(retries=0)
    assert attempts.calls == 1


def test_the_time_waited_is_bounded():
    attempts = Attempts(*[Throttled("slow", retry_after_s=50.0)] * 9)
    with pytest.raises(Throttled, match=r"would pass 120\.0 s in all"):
        attempts.run(base_s=0.0)
    assert attempts.waits == [50.0, 50.0]
    attempts = Attempts(Throttled("slow", retry_after_s=3600.0))
    with pytest.raises(Throttled, match="would pass"):
        attempts.run()
    assert attempts.waits == []


def test_a_policy_is_checked_and_can_be_pickled():
    with pytest.raises(ValueError, match="retries is -1"):
        RetryPolicy(retries=-1)
    policy = RetryPolicy(retries=7)
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_the_users_random_numbers_are_left_alone():
    import random

    random.seed(1)
    expected = random.random()
    random.seed(1)
    RetryPolicy(sleep=lambda s: None).call(Attempts(CUT), "trying")
    assert random.random() == expected
