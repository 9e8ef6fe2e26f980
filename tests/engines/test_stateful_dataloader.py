"""torchdata's StatefulDataLoader saves and restores a StreamingDataset to the exact next batch."""

import copy
import io
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torchdata import stateful_dataloader as torchdata

from tests.engines.training import BATCH, loss_of, make_model, open_dataset, weights, write

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

LOADERS = [
    {"num_workers": 0},
    {"num_workers": 1},
    {"num_workers": 3},
    {"num_workers": 3, "persistent_workers": True},
    {"num_workers": 2, "multiprocessing_context": "spawn"},
    {"num_workers": 2, "snapshot_every_n_steps": 3},
]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("stateful"))


def make(local: str, options: dict[str, Any]) -> Any:
    return torchdata.StatefulDataLoader(open_dataset(local), batch_size=BATCH, **options)


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def some(batches: Iterator[Any], count: int) -> list[list[int]]:
    return ids(itertools.islice(batches, count))


@pytest.mark.parametrize("options", LOADERS, ids=str)
def test_the_exact_next_batch(local: str, options: dict[str, Any]) -> None:
    whole = make(local, options)
    expected = [ids(whole) for _ in range(3)]
    loader = make(local, options)
    resumed = loader
    for stop in (0, 5, 13):
        seen = some(iter(loader), stop)
        state = copy.deepcopy(loader.state_dict())
        for resumed in (make(local, options), loader):
            resumed.load_state_dict(state)
            assert seen + ids(resumed) == expected[0]
            assert ids(resumed) == expected[1]
        loader = make(local, options)


@pytest.mark.parametrize("workers", [0, 2])
def test_after_a_finished_epoch(local: str, workers: int) -> None:
    loader = make(local, {"num_workers": workers})
    expected = [ids(loader)]
    state = copy.deepcopy(loader.state_dict())
    expected += [ids(loader), ids(loader)]
    resumed = make(local, {"num_workers": workers})
    resumed.load_state_dict(state)
    assert [ids(resumed), ids(resumed)] == expected[1:]


def test_training_goes_on(local: str) -> None:
    def train(stop: int, saved: bytes | None = None) -> tuple[list[float], bytes]:
        model, optimizer = make_model()
        loader = make(local, {"num_workers": 2})
        step = 0
        if saved is not None:
            state = torch.load(io.BytesIO(saved), weights_only=False)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            loader.load_state_dict(state["loader"])
            step = state["step"]
        while step < stop:
            for batch in loader:
                optimizer.zero_grad()
                loss_of(model, batch["id"]).backward()
                optimizer.step()
                step += 1
                if step == stop:
                    break
        file = io.BytesIO()
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "loader": loader.state_dict(),
            "step": step,
        }
        torch.save(state, file)
        return weights(model), file.getvalue()

    unbroken, _ = train(20)
    _, saved = train(8)
    assert train(20, saved)[0] == unbroken
