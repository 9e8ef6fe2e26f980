"""Lightning's Trainer saves and restores a StreamingDataLoader by itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from streaming import StreamingDataLoader
from tests.engines.training import (
    BATCH,
    SAMPLES,
    loss_of,
    make_model,
    open_dataset,
    weights,
    write,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class Module(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.model, self.optimizer = make_model()
        self.seen: list[list[int]] = []

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        self.seen.append(batch["id"].tolist())
        return loss_of(self.model, batch["id"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer


def fit(
    local: str,
    out: Path,
    steps: int,
    workers: int,
    ckpt: Path | None = None,
    callbacks: Sequence[Any] = (),
) -> Module:
    module = Module()
    loader = StreamingDataLoader(open_dataset(local), batch_size=BATCH, num_workers=workers)
    trainer = lightning.Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=bool(callbacks),
        callbacks=list(callbacks),
        default_root_dir=str(out),
    )
    trainer.fit(module, loader, ckpt_path=None if ckpt is None else str(ckpt), weights_only=False)
    trainer.save_checkpoint(out / f"{steps}.ckpt")
    return module


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [5, 13, 17])
def test_training_goes_on(tmp_path: Path, workers: int, stop: int) -> None:
    local = write(tmp_path)
    unbroken = fit(local, tmp_path, 30, workers)
    first = fit(local, tmp_path, stop, workers)
    rest = fit(local, tmp_path, 30, workers, tmp_path / f"{stop}.ckpt")
    assert first.seen + rest.seen == unbroken.seen
    assert weights(rest.model) == weights(unbroken.model)


def test_another_number_of_workers(tmp_path: Path) -> None:
    local = write(tmp_path)
    first = fit(local, tmp_path, 5, 2)
    rest = fit(local, tmp_path, 13, 0, tmp_path / "5.ckpt")
    assert sorted(i for batch in first.seen + rest.seen for i in batch) == list(range(SAMPLES))


@pytest.mark.parametrize(
    "when", [{"every_n_train_steps": 13}, {"every_n_epochs": 1, "save_on_train_epoch_end": True}]
)
def test_checkpoints_at_the_end_of_an_epoch(tmp_path: Path, when: dict[str, Any]) -> None:
    local = write(tmp_path)
    callback = ModelCheckpoint(dirpath=tmp_path, save_top_k=-1, filename="{step}", **when)
    unbroken = fit(local, tmp_path, 30, 0, callbacks=[callback])
    (saved,) = tmp_path.glob("step=13*.ckpt")
    rest = fit(local, tmp_path, 30, 0, saved)
    assert rest.seen == unbroken.seen[13:]
    assert weights(rest.model) == weights(unbroken.model)
