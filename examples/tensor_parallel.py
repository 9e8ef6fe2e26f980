"""Ranks that share samples: ``python examples/tensor_parallel.py``.

Four processes form a mesh of 2 x 2: two groups by data, of two ranks each that hold half of every
layer (tensor parallelism). The ranks of a group need the same samples. The dataset is told the
mesh, and which of its dimensions shares samples; that is all. The loss of each step is compared
with that of one process that has the whole model and the whole batch.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

GLOBAL_BATCH = 64
RATE = 0.5


def write_digits(folder: str) -> None:
    digits = load_digits()
    columns = {"pixels": "ndarray:float32:64", "label": "int"}
    with MDSWriter(out=f"{folder}/data", columns=columns) as writer:
        for pixels, label in zip(digits.data, digits.target, strict=True):
            writer.write({"pixels": (pixels / 16).astype(np.float32), "label": int(label)})


def make_model() -> nn.Module:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train_alone(folder: str) -> list[float]:
    """The whole model and the whole batch in one process."""
    dataset = StreamingDataset(local=f"{folder}/data", shuffle=True, batch_size=GLOBAL_BATCH)
    model, losses = make_model(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for batch in StreamingDataLoader(dataset, batch_size=GLOBAL_BATCH, drop_last=True):
        loss = nn.functional.cross_entropy(model(batch["pixels"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_on_mesh(folder: str) -> None:
    """What each process does: half of each layer, half of the batch."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    halves = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(make_model(), mesh["tensor"], halves)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    size = GLOBAL_BATCH // 2
    dataset = StreamingDataset(
        local=f"{folder}/data",
        shuffle=True,
        batch_size=size,
        device_mesh=mesh,
        replicate_dims="tensor",
    )
    data, losses = mesh.get_group("data"), []
    for batch in StreamingDataLoader(dataset, batch_size=size, drop_last=True):
        loss = nn.functional.cross_entropy(model(batch["pixels"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        mean = loss.detach().clone()
        for part in [mean, *(p.grad.to_local() for p in model.parameters())]:
            dist.all_reduce(part, group=data)
            part /= 2
        optimizer.step()
        losses.append(mean.item())
    if dist.get_rank() == 0:
        Path(folder, "losses.json").write_text(json.dumps(losses))
    dist.barrier()  # nobody leaves while others still talk
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        train_on_mesh(args.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_digits(folder)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node=4", __file__, "--folder", folder]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        losses = json.loads(Path(folder, "losses.json").read_text())
        alone = train_alone(folder)

    most = max(abs(one - other) for one, other in zip(losses, alone, strict=True))
    print(f"\n  on a mesh of 2 x 2   loss {losses[0]:.3f} at first, {losses[-1]:.3f} at the end")
    print(f"  in one process       loss {alone[0]:.3f} at first, {alone[-1]:.3f} at the end")
    print(f"  largest difference   {most:.1e} over {len(alone)} steps")
    if most > 1e-4:
        sys.exit("The ranks of a group did not see the same samples.")


if __name__ == "__main__":
    main()
