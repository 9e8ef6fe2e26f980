"""A small training, the same whichever library runs it."""

from pathlib import Path
from typing import Any

import torch

from streaming import StreamingDataset
from tests.data import write_numbers

SAMPLES = 50
BATCH = 4


def write(where: Path) -> str:
    return str(write_numbers(where / "numbers", SAMPLES))


def open_dataset(local: str, **kwargs: Any) -> StreamingDataset:
    return StreamingDataset(local=local, **{"batch_size": BATCH, "shuffle": True, **kwargs})


def make_model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(7)
    model = torch.nn.Linear(1, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)


def loss_of(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    x = ids.float().reshape(-1, 1) / SAMPLES
    return ((model(x) - torch.sin(3 * x)) ** 2).mean()


def weights(model: torch.nn.Module) -> list[float]:
    return [parameter.item() for parameter in model.parameters()]
