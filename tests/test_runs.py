"""Whole runs recorded from mosaicml-streaming 0.13, replayed through torch's loader and ours."""

import json
from typing import Any

import pytest
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader, StreamingDataset
from tests.conformance_data import CONFORMANCE

RUNS = json.loads((CONFORMANCE / "formats" / "runs.json").read_text())
METHODS = ["fork", "spawn", "forkserver"]


def open_dataset(run: dict[str, Any], **kwargs: Any) -> StreamingDataset:
    return StreamingDataset(
        local=str(CONFORMANCE / "formats" / run["dataset"]), **run["args"], **kwargs
    )


def ids(batch: Any) -> list[int]:
    return batch["id"].tolist()


def workers_of(run: dict[str, Any], method: str, persistent: bool) -> dict[str, Any]:
    workers = run["num_workers"]
    if not workers:
        return {"num_workers": 0}
    return {
        "num_workers": workers,
        "multiprocessing_context": method,
        "persistent_workers": persistent,
    }


def replay(run: dict[str, Any], method: str, persistent: bool) -> None:
    size = run["args"]["batch_size"]
    kwargs = workers_of(run, method, persistent)
    loader = StreamingDataLoader(open_dataset(run), batch_size=size, **kwargs)
    state = None
    for epoch, expected in enumerate(run["epochs"]):
        batches = []
        for batch in loader:
            batches.append(ids(batch))
            if epoch == 0 and len(batches) == 5:
                state = loader.state_dict()
        assert batches == expected
        assert len(loader) == len(expected)
    assert state is not None
    # The recorded states know of nothing else.
    assert set(state) - set(run["state_after_5_batches"]) == {"fingerprint"}
    assert state | run["state_after_5_batches"] == state

    plain = DataLoader(open_dataset(run), batch_size=size, **kwargs)
    for expected in run["epochs"]:
        assert [ids(batch) for batch in plain] == expected

    for saved in (state, run["state_after_5_batches"]):
        resumed = StreamingDataLoader(open_dataset(run), batch_size=size, **kwargs)
        resumed.load_state_dict(saved)
        assert [ids(batch) for batch in resumed] == run["resumed_batches"]
        assert [ids(batch) for batch in resumed] == run["epochs"][1]


SLOW = {4, 9}
"""Runs of many processes."""


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[pytest.mark.long] if number in SLOW else [])
        for number in range(len(RUNS))
    ],
)
def test_by_fork(number: int) -> None:
    replay(RUNS[number], "fork", persistent=number % 2 == 0)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number", range(len(RUNS)))
def test_by_every_way_to_start_workers(number: int, method: str, persistent: bool) -> None:
    replay(RUNS[number], method, persistent)


@pytest.mark.timeout(300)
@pytest.mark.long
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_by_other_ways_to_start_workers(method: str) -> None:
    with_workers = [run for run in RUNS if run["num_workers"] == 3]
    replay(with_workers[0], method, persistent=False)
    replay(with_workers[-1], method, persistent=True)
