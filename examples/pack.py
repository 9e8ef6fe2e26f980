"""Tokenise and pack documents into samples of one length: ``python examples/pack.py``.

The documents are the standard library's own sources, as JSON lines. A tokenizer (byte-pair
encoding, of the package ``tokenizers``) is trained on them; then ``streaming.convert`` tokenises
them in several processes and packs the tokens into samples of 512, documents one after another with
an end mark between them. The samples are streamed, and decoded again to see that nothing is lost.
"""

import argparse
import json
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from streaming import StreamingDataset
from streaming.convert import convert

LENGTH = 512
END = "<|end|>"


class Pack:
    """Makes samples of ``LENGTH`` tokens of documents of any length.

    It is copied for each part of the source, so that what is left of one part's last document does
    not depend on which part the same process had before; ``flush`` is called at a part's end.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.end = tokenizer.token_to_id(END)
        self.left: list[int] = []

    def __call__(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.left += [*self.tokenizer.encode(row["text"]).ids, self.end]
        while len(self.left) >= LENGTH:
            tokens, self.left = self.left[:LENGTH], self.left[LENGTH:]
            yield {"tokens": np.array(tokens, np.uint16)}

    def flush(self) -> Iterator[dict[str, Any]]:
        if self.left:
            padded = self.left + [self.end] * (LENGTH - len(self.left))
            self.left = []
            yield {"tokens": np.array(padded, np.uint16)}


def write_documents(path: Path, files: int) -> list[str]:
    """Write sources of the standard library as JSON lines; return their texts."""
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:files]
    texts = [source.read_text(encoding="utf-8", errors="replace") for source in sources]
    with open(path, "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
    return texts


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """A tokenizer of 4,096 tokens that loses nothing of a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=4096, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def read_back(out: str, cache: str, tokenizer: Tokenizer) -> list[str]:
    """The documents, from the streamed samples, in order."""
    dataset = StreamingDataset(remote=out, local=cache, batch_size=1)
    samples = [sample["tokens"] for sample in dataset]
    end = tokenizer.token_to_id(END)
    tokens = np.concatenate(samples)
    pieces = np.split(tokens, np.flatnonzero(tokens == end) + 1)
    # Between parts there is padding: ends after which no document begins.
    return [tokenizer.decode(piece[:-1].tolist()) for piece in pieces if len(piece) > 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=60, help="how many documents")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        texts = write_documents(Path(folder, "documents.jsonl"), args.files)
        tokenizer = train_tokenizer(texts)
        report = convert(
            f"{folder}/documents.jsonl",
            f"{folder}/tokens",
            transform=Pack(tokenizer),
            columns={"tokens": f"ndarray:uint16:{LENGTH}"},
            workers=args.workers,
            part_size="256kb",
        )
        found = read_back(f"{folder}/tokens", f"{folder}/cache", tokenizer)
    print(f"{report.rows:,} documents, {report.samples:,} samples of {LENGTH} tokens")
    print("decoded:", "the same" if found == texts else "DIFFERENT")


if __name__ == "__main__":
    main()
