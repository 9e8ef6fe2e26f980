"""Stop on two processes, go on on four: ``python examples/elastic.py``.

A network is trained with ``DistributedDataParallel`` under torchrun. The first job runs on 2
processes with 32 samples each and stops in the middle of an epoch; the second goes on from its
checkpoint on 4 processes with 16 samples each. The global batch stays 64, and so the samples of
every step are those that one process alone, never interrupted, is given. The example compares them.
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
from torch.nn.parallel import DistributedDataParallel

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


def open_loader(folder: str, processes: int) -> StreamingDataLoader:
    size = GLOBAL_BATCH // processes
    dataset = StreamingDataset(local=f"{folder}/data", shuffle=True, batch_size=size)
    return StreamingDataLoader(dataset, batch_size=size, num_workers=1)


def train(folder: str, stop_after: int | None) -> None:
    """What each process of a job does. Rank and world are found by the dataset itself."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = open_loader(folder, dist.get_world_size())

    checkpoint = Path(folder, "checkpoint.pt")
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])

    for step, batch in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(batch["pixels"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note(folder, batch["id"])
        if step == stop_after:
            break
    if dist.get_rank() == 0:  # every rank's state is the same
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "loader": loader.state_dict()}, checkpoint)
    dist.barrier()
    dist.destroy_process_group()


def note(folder: str, ids: torch.Tensor) -> None:
    """Write down which samples all the processes together have used in a step."""
    parts = [torch.empty_like(ids) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, ids)
    if dist.get_rank() == 0:
        with open(f"{folder}/steps.jsonl", "a") as file:
            file.write(json.dumps(sorted(torch.cat(parts).tolist())) + "\n")


def run_job(folder: str, processes: int, *arguments: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={processes}", __file__, "--folder", folder, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--stop-after", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        train(args.folder, args.stop_after)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_digits(folder)
        run_job(folder, 2, "--stop-after", str(STOP_AFTER))
        run_job(folder, 4)
        steps = [json.loads(line) for line in Path(folder, "steps.jsonl").read_text().splitlines()]
        alone = [sorted(batch["id"].tolist()) for batch in open_loader(folder, 1)]

    whole = len(load_digits().target) // GLOBAL_BATCH  # the last batch is filled up by repeats
    same = steps[:whole] == alone[:whole]
    print(f"\n  2 processes   {STOP_AFTER} steps, then stopped")
    print(f"  4 processes   {len(steps) - STOP_AFTER} steps, from the checkpoint")
    print(f"  1 process     {'the same' if same else 'OTHER'} {whole} global batches")
    if not same:
        sys.exit("The batches differ from those of a run that was never interrupted.")


if __name__ == "__main__":
    main()
