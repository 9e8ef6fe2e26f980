"""How many connections there are, and whose turn it is."""

from collections.abc import Callable

import pytest

from streaming.cache.connections import FIRST, Connections
from tests.helpers import in_thread


@pytest.mark.parametrize(
    ("together", "least", "most"), [(1e9, 27, 28), (300.0, 12, 24), (20.0, 4, 12)]
)
def test_as_many_as_pay(together: float, least: int, most: int) -> None:
    now = 0.0
    connections = Connections(32, lambda: now)
    limits = []
    for _ in range(400):
        now += 0.05
        # Each brings 20 bytes a second, and all of them no more than the link.
        connections.moved(int(min(together, 20.0 * connections.limit) * 50))
        connections._adapt()
        limits.append(connections.limit)
    assert least <= sum(limits[200:]) / 200 <= most


def test_what_is_needed_first_comes_first_and_what_is_urgent_before() -> None:
    connections = Connections(2)
    held = connections.turn(0)
    came: list[str] = []

    def wait(name: str, need: float, urgent: bool) -> Callable[[], None]:
        def run() -> None:
            with connections.turn(need, urgent):
                came.append(name)

        waiting = len(connections._waiting) + len(connections._urgently_waiting)
        result = in_thread(run)
        while len(connections._waiting) + len(connections._urgently_waiting) == waiting:
            pass
        return result

    urgent = connections.turn(0, urgent=True)
    threads = [wait("late", 9, False), wait("soon", 3, False), wait("now", 9, True)]
    urgent.end()
    threads[2]()
    held.end()
    held.end()  # harmless
    for thread in threads:
        thread()
    assert came == ["now", "soon", "late"]
    assert connections.busy == 0


def test_throttling_takes_connections_and_good_answers_give_them_back() -> None:
    connections = Connections(2 * FIRST)
    for _ in range(3):
        connections.answered(throttled=True)
    assert connections.limit == FIRST - 3
    for _ in range(100):
        connections.answered(throttled=False)
    assert connections.limit == FIRST
    for _ in range(100):
        connections.answered(throttled=True)
    assert connections.limit == 1


def test_a_store_that_refuses_few_requests_is_used_in_full() -> None:
    connections = Connections(2 * FIRST)
    limits = []
    for number in range(2000):
        connections.answered(throttled=number % 20 == 0)
        limits.append(connections.limit)
    assert min(limits) >= FIRST - 1
