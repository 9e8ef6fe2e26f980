"""Composer's and llm-foundry's sequence of calls: a plain DataLoader, and the dataset's state.

The trainer counts the samples of the epoch over all ranks by itself, saves
`dataset.state_dict(counted, True)`, and loads it into the dataset of the resumed run before its
workers start.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from streaming import StreamingDataset
from tests.data import write_numbers

SAMPLES = 97
GLOBAL_BATCH = 12


def trainer_rank(
    local: str, ranks: int, workers: int, rank: int, state: str | None, steps: int | None
) -> tuple[list[list[int]], str]:
    """One rank's batches of an epoch, up to so many steps, and what it saves after them."""
    dataset = StreamingDataset(
        local=local,
        batch_size=GLOBAL_BATCH // ranks,
        shuffle=True,
        num_canonical_nodes=4,
        rank=rank,
        world_size=ranks,
        local_world_size=min(2, ranks),
    )
    counted = 0
    if state is not None:
        dataset.load_state_dict(json.loads(state))
        counted = json.loads(state)["sample_in_epoch"]
    loader = DataLoader(dataset, batch_size=GLOBAL_BATCH // ranks, num_workers=workers)
    batches: list[list[int]] = []
    for batch in loader:
        batches.append(batch["id"].tolist())
        counted += GLOBAL_BATCH
        if len(batches) == steps:
            break
    return batches, json.dumps(dataset.state_dict(counted, True))


def run(local: str, world: tuple[int, int], state: str | None, steps: int | None) -> Any:
    """All ranks' global batches, each as a sorted list, and the state of the first."""
    ranks, workers = world
    each = [trainer_rank(local, ranks, workers, rank, state, steps) for rank in range(ranks)]
    parts = [batches for batches, _ in each]
    together = [sorted(i for part in step for i in part) for step in zip(*parts, strict=True)]
    return together, each[0][1]


@pytest.mark.parametrize("worlds", [[(1, 0), (2, 1), (4, 0)], [(4, 1), (1, 2), (2, 0)]])
def test_a_run_goes_on_in_other_worlds(tmp_path: Path, worlds: list[tuple[int, int]]) -> None:
    local = str(write_numbers(tmp_path / "numbers", SAMPLES))
    unbroken, _ = run(local, (1, 0), None, None)
    seen: list[list[int]] = []
    state = None
    for world, steps in zip(worlds, (3, 2, None), strict=True):
        batches, state = run(local, world, state, steps)
        seen += batches
    whole = SAMPLES // GLOBAL_BATCH
    assert seen[:whole] == unbroken[:whole]
    assert {i for batch in seen for i in batch} == set(range(SAMPLES))
    # The last world has finished the epoch.
    following, _ = run(local, (2, 0), state, 1)
    assert following[0] != unbroken[0]
    assert json.loads(state or "")["epoch"] == 0
