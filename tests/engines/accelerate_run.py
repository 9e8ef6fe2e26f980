"""One process of a training by Accelerate: `LOCAL OUT LOADER STEPS [RESUME]`."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader
from tests.engines.training import BATCH, loss_of, make_model, open_dataset, weights

LOADERS: dict[str, tuple[type[DataLoader[Any]], int, bool | None]] = {
    "streaming": (StreamingDataLoader, 0, None),
    "streaming with workers": (StreamingDataLoader, 2, None),
    "dispatched": (DataLoader, 0, None),
    "dispatched with workers": (DataLoader, 1, None),
    "sharded": (DataLoader, 0, False),
    "sharded with workers": (DataLoader, 1, False),
}


def numbers(samples: list[Any]) -> dict[str, torch.Tensor]:
    return {"id": torch.tensor([sample["id"] for sample in samples])}


def main(local: str, out: str, name: str, steps: str, resume: str = "") -> None:
    kind, workers, dispatch = LOADERS[name]
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch)
    )
    torch.set_num_threads(1)
    spawn = {"multiprocessing_context": "spawn"} if workers and "sharded" not in name else {}
    # What is sent from process to process has to be tensors.
    collate = {"collate_fn": numbers} if "dispatched" in name else {}
    loader = kind(open_dataset(local), batch_size=BATCH, num_workers=workers, **spawn, **collate)
    model, optimizer = make_model()
    model, optimizer, prepared = accelerator.prepare(model, optimizer, loader)
    if resume:
        accelerator.load_state(resume)
    seen: list[list[int]] = []
    while len(seen) < int(steps):
        for batch in prepared:
            optimizer.zero_grad()
            accelerator.backward(loss_of(model, batch["id"].to(accelerator.device)))
            optimizer.step()
            seen.append(batch["id"].tolist())
            if len(seen) == int(steps):
                break
    accelerator.save_state(str(Path(out) / "state"))
    result = {"seen": seen, "weights": weights(model), "length": len(prepared)}
    (Path(out) / f"{accelerator.process_index}.json").write_text(json.dumps(result))
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
