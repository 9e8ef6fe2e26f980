"""What each rank of a job under torchrun does: train a model that torch wraps, stop, go on.

Arguments: the data set, how to wrap the model, a folder for what all ranks tell.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from streaming import StreamingDataLoader, StreamingDataset
from tests.engines.training import loss_of

STOP_AFTER = 3
"""Batches of the second epoch."""
EPOCHS = 2


def open_dataset(data: str) -> StreamingDataset:
    return StreamingDataset(local=data, batch_size=4, shuffle=True)


def wrapped(how: str) -> Any:
    """A model whose gradients, or whose parameters, too, are shared out over the ranks."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    if how == "DDP":
        return DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def train(model: Any, loader: StreamingDataLoader, stop_after: int | None) -> list[Any]:
    """The ids of the batches that are left, or of so many, and the loss of each."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told = []
    for batch in loader:
        loss = loss_of(model, batch["id"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append([batch["id"].tolist(), loss.item()])
        if len(told) == stop_after:
            break
    return told


def main(data: str, how: str, out: Path) -> None:
    # Before the process group is there: rank and world are found when an iteration begins.
    datasets = [open_dataset(data) for _ in range(3)]
    dist.init_process_group("gloo")
    loaders = [StreamingDataLoader(each, batch_size=4, num_workers=1) for each in datasets]
    model = wrapped(how)
    unbroken = [train(model, loaders[0], None) for _ in range(EPOCHS)]

    model = wrapped(how)
    begun = [train(model, loaders[1], None), train(model, loaders[1], STOP_AFTER)]
    weights, state = model.state_dict(), json.loads(json.dumps(loaders[1].state_dict()))

    model = wrapped(how)
    model.load_state_dict(weights)
    loaders[2].load_state_dict(state)
    begun[-1] += train(model, loaders[2], None)

    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, {"unbroken": unbroken, "resumed": begun})
    if dist.get_rank() == 0:
        (out / "told.json").write_text(json.dumps(everyone))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
