"""Say in one line why a trainer waits for its data, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Mapping

STARVED = 0.05
"""The share of a trainer's time from which on its waiting is worth a line."""

STAGES = {
    "wait_s": "downloads",
    "reading_s": "reading",
    "decoding_s": "decoding",
    "user_code_s": "your own code",
    "collating_s": "collating",
    "planning_s": "planning",
}
"""What workers are at work with or wait for, by the counter of its time."""

TRAINER = "trainer_s"
"""The counter of the time in which workers wait for whoever takes what they made."""

Amounts = Mapping[str, int | float]


def stages(amounts: Amounts) -> dict[str, int | float]:
    """Seconds of workers, by what they were at work with or waited for.

    Example:
        >>> stages({"wait_s": 2.5, "reading_s": 1.0, "trainer_s": 0.5})["downloads"]
        2.5
    """
    spoken = {**STAGES, TRAINER: "the trainer"}
    return {name: amounts.get(counter, 0) for counter, name in spoken.items()}


def spent(before: Amounts, now: Amounts) -> dict[str, int | float]:
    """What counters have grown by."""
    return {name: amount - before.get(name, 0) for name, amount in now.items()}


def starved_share(amounts: Amounts) -> float:
    """The share of a trainer's time in which it waited for data.

    Example:
        >>> starved_share({"starved_s": 1.0, "training_s": 3.0})
        0.25
    """
    whole = amounts.get("starved_s", 0) + amounts.get("training_s", 0)
    return amounts.get("starved_s", 0) / whole if whole else 0.0


def longest_stage(amounts: Amounts) -> str:
    """The counter of the stage that took most of the workers' time."""
    return max(STAGES, key=lambda name: amounts.get(name, 0))


def diagnose(amounts: Amounts, rank: int, workers: int) -> str | None:
    """Why a rank's trainer waits for data, if it does for more than 5 % of its time.

    Args:
        amounts: What the rank's counters have grown by, as in ``dataset.stats()``.
        rank: The rank.
        workers: How many workers its loader has.

    Returns:
        One line, or None.

    Example:
        >>> diagnose({"starved_s": 6, "training_s": 4, "user_code_s": 9}, rank=3, workers=0)
        'rank 3 waits for your own code 60 % of its time: give the loader num_workers.'
        >>> diagnose({"starved_s": 0.1, "training_s": 9.9}, rank=0, workers=2) is None
        True
    """
    share = starved_share(amounts)
    if share <= STARVED:
        return None
    stage = longest_stage(amounts)
    begin = f"rank {rank} waits for {STAGES[stage]} {share:.0%} of its time".replace("%", " %")
    return f"{begin}: {_advice(stage, amounts, workers)}."


def _advice(stage: str, amounts: Amounts, workers: int) -> str:
    if stage == "wait_s":
        return _of_downloads(amounts)
    if stage == "planning_s":
        return 'shuffle_algo="blockwise" plans at once, and a plan that was made is kept'
    more = _more_workers(workers)
    if stage == "reading_s":
        return f"{more}, or read from a faster disk; StreamingDataLoader reads by column"
    if stage == "user_code_s":
        return f"{more}" if not workers else f"{more}, or make __getitem__ and transforms quicker"
    return more


def _of_downloads(amounts: Amounts) -> str:
    fetched = amounts.get("bytes_fetched", 0) + amounts.get("bytes_fetched_by_range", 0)
    training, starved = amounts.get("training_s", 0), amounts.get("starved_s", 0)
    got = fetched / (training + starved) / 1e6
    rates = f"{got:.3g} MB/s got by this rank"
    if training > starved / 100:
        rates = f"{fetched / training / 1e6:.3g} MB/s wanted, {rates}"
    if amounts.get("decompressing_s", 0) > 0.5 * (training + starved):
        return f"{rates}, decompressing takes most of a core: write shards without compression"
    if amounts.get("retries", 0):
        return f"{rates}, with {amounts['retries']} retries: see the log for their reasons"
    if amounts.get("evictions", 0):
        return f"{rates}, with {amounts['evictions']} evictions: raise cache_limit"
    return f"{rates}; raise max_connections or predownload, or see what the link gives"


def _more_workers(workers: int) -> str:
    cores = os.cpu_count() or 1
    if not workers:
        return "give the loader num_workers"
    if workers < cores:
        return f"raise num_workers ({workers} now, {cores} cores)"
    return f"{workers} workers are busy on {cores} cores"


class Watch:
    """Looks at a rank's counters now and then, each time after twice as long.

    Args:
        first_s: After how long it first does.
        last_s: The longest time between two looks.
    """

    def __init__(self, first_s: float, last_s: float) -> None:
        self._every_s, self._last_s = first_s, last_s
        self._due_s: float | None = None
        self._before: dict[str, int | float] = {}

    def is_due(self, now_s: float) -> bool:
        """Whether to look now."""
        if self._due_s is None:
            self._due_s = now_s + self._every_s
        return now_s >= self._due_s

    def look(self, now_s: float, totals: dict[str, int | float]) -> dict[str, int | float]:
        """What the totals have grown by since the last look."""
        grown = spent(self._before, totals)
        self._every_s = min(self._last_s, 2 * self._every_s)
        self._due_s, self._before = now_s + self._every_s, totals
        return grown
