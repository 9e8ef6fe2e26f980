"""Train a small language model on streamed text, and resume it: ``python examples/text.py``.

The text is that of the Python standard library's own sources, as bytes, packed into samples of
1,024 tokens. They are written as fixed-size columns (``ndarray:uint16:1024``), which read back as
arrays without any parsing, and streamed, shuffled, into a causal model whose loss falls. In the
middle of the epoch the loader's state is saved; a new loader that takes it up sees the batches
that the first one sees.
"""

import argparse
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

CONTEXT = 1024
BATCH_SIZE = 4
NEWLINE = 256  # one token more than the bytes: where a file ends


def samples(limit: int) -> Iterator[np.ndarray]:
    """Tokens of the standard library's sources, ``CONTEXT`` at a time."""
    left = np.empty(0, np.uint16)
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        tokens = np.frombuffer(path.read_bytes(), np.uint8).astype(np.uint16)
        left = np.concatenate([left, tokens, np.array([NEWLINE], np.uint16)])
        while len(left) >= CONTEXT and limit:
            yield left[:CONTEXT]
            left = left[CONTEXT:]
            limit -= 1


def write_text(remote: str, limit: int) -> None:
    columns = {"tokens": f"ndarray:uint16:{CONTEXT}"}
    with MDSWriter(out=remote, columns=columns, compression="zstd", size_limit="256kb") as writer:
        for tokens in tqdm(samples(limit), desc="Writing", unit=" samples", total=limit):
            writer.write({"tokens": tokens})


def open_loader(remote: str, local: str) -> StreamingDataLoader:
    dataset = StreamingDataset(remote=remote, local=local, batch_size=BATCH_SIZE, shuffle=True)
    return StreamingDataLoader(dataset, batch_size=BATCH_SIZE, num_workers=2)


class LanguageModel(nn.Module):
    """Predicts each byte from those before it: causal convolutions, wider and wider."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(NEWLINE + 1, width)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, kernel_size=3, dilation=2**depth) for depth in range(5)
        )
        self.out = nn.Linear(width, NEWLINE + 1)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed(tokens).transpose(1, 2)
        for layer in self.layers:
            # Padding on the left alone: no position sees what comes after it.
            padded = nn.functional.pad(hidden, (2 * layer.dilation[0], 0))
            hidden = hidden + nn.functional.gelu(layer(padded))
        return self.out(hidden.transpose(1, 2))


def train(loader: StreamingDataLoader) -> tuple[list[float], dict, list[list[int]]]:
    """One epoch: the losses, a checkpoint from its middle, and what came after that.

    The last are the sums of the samples' tokens, batch by batch: enough to tell them apart.
    """
    torch.manual_seed(0)
    model = LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    checkpoint: dict = {}
    after: list[list[int]] = []
    progress = tqdm(loader, desc="Training", unit=" batches")
    for batch in progress:
        tokens = batch["tokens"].long()
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        progress.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
        if checkpoint:
            after.append(tokens.sum(1).tolist())
        elif len(losses) == len(loader) // 2:
            checkpoint = loader.state_dict() or {}
    return losses, checkpoint, after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=400, help="how many samples to write")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        remote = f"{folder}/remote"
        write_text(remote, args.samples)
        losses, checkpoint, after = train(open_loader(remote, f"{folder}/cache"))
        resumed = open_loader(remote, f"{folder}/cache")
        resumed.load_state_dict(checkpoint)
        again = [batch["tokens"].sum(1).tolist() for batch in resumed]

    first, last = sum(losses[:10]) / 10, sum(losses[-10:]) / 10
    print(f"\n  loss         {first:.2f} nats a byte at first, {last:.2f} at the end")
    print(f"  checkpoint   {checkpoint}")
    print(f"  resumed      {'the same' if again == after else 'OTHER'} {len(again)} batches")
    if again != after or not last < first:
        raise SystemExit("The loss did not fall, or the resumed loader went another way.")


if __name__ == "__main__":
    main()
