"""Ray Train, stopped on two workers and gone on with on four: ``python examples/ray_train.py``.

A network is trained by Ray's ``TorchTrainer``. The first run has 2 workers with 32 samples each and
ends in the middle of an epoch; the second goes on from Ray's checkpoint on 4 workers with 16
samples each. The dataset is made on the driver and sent to the workers, which find out themselves
which rank they are. The example compares the samples of every step with those of one process that
was never interrupted.

Needs ``pip install 'ray[train]'``; everything runs on this machine.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

GLOBAL_BATCH = 64
STOP_AFTER = 9


def write_digits(folder: str) -> None:
    digits = load_digits()
    columns = {"id": "int", "pixels": "ndarray:float32:64", "label": "int"}
    with MDSWriter(out=f"{folder}/data", columns=columns, size_limit="32kb") as writer:
        for number, (pixels, label) in enumerate(zip(digits.data, digits.target, strict=True)):
            sample = {"id": number, "pixels": (pixels / 16).astype(np.float32)}
            writer.write({**sample, "label": int(label)})


def open_dataset(folder: str, workers: int) -> StreamingDataset:
    size = GLOBAL_BATCH // workers
    return StreamingDataset(local=f"{folder}/data", shuffle=True, batch_size=size)


def train_loop_per_worker(config: dict[str, Any]) -> None:
    """What each of Ray's workers does."""
    from ray import train
    from ray.train.torch import prepare_model

    torch.manual_seed(0)
    model = prepare_model(nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    dataset = config["dataset"]
    loader = StreamingDataLoader(dataset, batch_size=dataset.batch_size)

    # After a failure in this very run, Ray's own; else the one that the run was given.
    checkpoint = train.get_checkpoint() or config["checkpoint"]
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = torch.load(f"{folder}/state.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])

    for step, batch in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(batch["pixels"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note(config["steps"], batch["id"])
        if step == config["stop_after"]:
            break
    report(model, optimizer, loader)


def report(model: nn.Module, optimizer: torch.optim.Optimizer, loader: StreamingDataLoader) -> None:
    """Hand Ray a checkpoint: that of one worker will do, every rank's state is the same."""
    from ray import train

    if dist.get_rank():
        train.report({})
        return
    with tempfile.TemporaryDirectory() as folder:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "loader": loader.state_dict()}, f"{folder}/state.pt")
        train.report({}, checkpoint=train.Checkpoint.from_directory(folder))


def note(file: str, ids: torch.Tensor) -> None:
    """Write down which samples all the workers together have used in a step."""
    parts = [torch.empty_like(ids) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, ids)
    if dist.get_rank() == 0:
        with open(file, "a") as steps:
            steps.write(json.dumps(sorted(torch.cat(parts).tolist())) + "\n")


def fit(folder: str, workers: int, stop_after: int | None = None, checkpoint: Any = None) -> Any:
    """Train with so many workers; the checkpoint that they leave."""
    from ray import train
    from ray.train.torch import TorchConfig, TorchTrainer

    trainer = TorchTrainer(
        train_loop_per_worker,
        train_loop_config={
            "dataset": open_dataset(folder, workers),
            "steps": f"{folder}/steps.jsonl",
            "stop_after": stop_after,
            "checkpoint": checkpoint,
        },
        scaling_config=train.ScalingConfig(
            num_workers=workers, resources_per_worker={"CPU": 1 / workers}
        ),
        run_config=train.RunConfig(storage_path=f"{folder}/ray", name=f"on {workers}"),
        torch_config=TorchConfig(backend="gloo"),
    )
    return trainer.fit().checkpoint


def main() -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    with tempfile.TemporaryDirectory() as folder:
        write_digits(folder)
        with ray.init(
            num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1"
        ):
            checkpoint = fit(folder, 2, STOP_AFTER)
            fit(folder, 4, checkpoint=checkpoint)
        steps = [json.loads(line) for line in Path(folder, "steps.jsonl").read_text().splitlines()]
        alone = StreamingDataLoader(open_dataset(folder, 1), batch_size=GLOBAL_BATCH)
        expected = [sorted(batch["id"].tolist()) for batch in alone]

    whole = len(load_digits().target) // GLOBAL_BATCH  # the last batch is filled up by repeats
    same = steps[:whole] == expected[:whole]
    print(f"\n  2 workers   {STOP_AFTER} steps, then stopped")
    print(f"  4 workers   {len(steps) - STOP_AFTER} steps, from Ray's checkpoint")
    print(f"  1 process   {'the same' if same else 'OTHER'} {whole} global batches")
    if not same:
        sys.exit("The batches differ from those of a run that was never interrupted.")


if __name__ == "__main__":
    main()
