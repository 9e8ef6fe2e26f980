"""The Trainer of transformers goes on from its checkpoints by itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader
from tests.engines.training import BATCH, loss_of, make_model, open_dataset, weights, write

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, _ = make_model()
        self.seen: list[list[int]] = []

    def forward(self, id: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen.append(id.tolist())
        return {"loss": loss_of(self.inner, id)}


class Trainer(transformers.Trainer):  # type: ignore[misc]
    """A Trainer that reads through a StreamingDataLoader."""

    def get_train_dataloader(self) -> DataLoader[Any]:
        return StreamingDataLoader(
            self.train_dataset, batch_size=BATCH, collate_fn=self.data_collator
        )


class SetEpoch(transformers.TrainerCallback):  # type: ignore[misc]
    """Tells the loader the epoch before the Trainer wraps it to skip what was trained on."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        kwargs["train_dataloader"].set_epoch(int(state.epoch or 0))


def collate(samples: list[Any]) -> dict[str, torch.Tensor]:
    return {"id": torch.tensor([sample["id"] for sample in samples])}


def train(local: str, out: Path, kind: Any, stop: int, resume: bool = False) -> Model:
    arguments = transformers.TrainingArguments(
        output_dir=str(out),
        per_device_train_batch_size=BATCH,
        max_steps=30,
        save_steps=stop,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_steps=1000,
        learning_rate=0.1,
        remove_unused_columns=False,
    )
    model = Model()
    trainer = kind(
        model=model,
        args=arguments,
        train_dataset=open_dataset(local),
        data_collator=collate,
        callbacks=[SetEpoch()],
    )
    trainer.train(resume_from_checkpoint=str(out / f"checkpoint-{stop}") if resume else None)
    return model


@pytest.mark.parametrize("kind", [transformers.Trainer, Trainer])
@pytest.mark.parametrize("stop", [5, 13, 17])
def test_training_goes_on(tmp_path: Path, kind: Any, stop: int) -> None:
    """In the middle of the first epoch, at its end, and in the middle of the second."""
    local = write(tmp_path)
    unbroken = train(local, tmp_path, kind, stop)
    rest = train(local, tmp_path, kind, stop, resume=True)
    assert rest.seen == unbroken.seen[stop:]
    assert weights(rest.inner) == weights(unbroken.inner)
