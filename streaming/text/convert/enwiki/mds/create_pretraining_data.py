"""Masked pairs of sentences out of documents, for the pre-training of BERT.

The procedure is that of Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding" (2019), section 3.1 and appendix A: two spans of text, of which the second
follows the first or, in half the cases, is from another document; 15 % of the tokens to be
predicted, of which 80 % are masked, 10 % replaced by others, 10 % left.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streaming.text.convert.enwiki.mds.tokenization import Vocabulary

__all__ = ["COLUMNS", "Masking", "pretraining_samples", "read_documents"]

COLUMNS = dict.fromkeys(
    (
        *("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids"),
        *("masked_lm_weights", "next_sentence_labels"),
    ),
    "bytes",
)
"""Little-endian int32 numbers; `masked_lm_weights` float32."""

Document = list[list[int]]
"""The tokens of its sentences."""


@dataclass(frozen=True, slots=True)
class Masking:
    """How samples are made.

    Raises:
        ValueError: If a number makes no sense.
    """

    max_seq_length: int = 512
    """Tokens in a sample, three special ones included."""
    max_predictions_per_seq: int = 20
    dupe_factor: int = 10
    """How often each document is gone through, with other spans and other masks."""
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    """The share of samples that aim at a random, shorter length."""

    def __post_init__(self) -> None:
        if self.max_seq_length < 5:
            raise ValueError(f"max_seq_length is {self.max_seq_length}; it must be 5 or more")
        for name in ("max_predictions_per_seq", "dupe_factor"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        for name in ("masked_lm_prob", "short_seq_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be from 0 to 1")


def read_documents(lines: Iterable[str], vocabulary: Vocabulary) -> list[Document]:
    """The tokens of documents: a sentence a line, a blank line between two documents.

    Args:
        lines: The lines.
        vocabulary: What tokenizes them.
    """
    documents: list[Document] = [[]]
    for line in lines:
        text = line.strip()
        if not text:
            documents.append([])
            continue
        tokens = vocabulary.encode(text)
        if tokens:
            documents[-1].append(tokens)
    return [document for document in documents if document]


def pretraining_samples(
    documents: Sequence[Document], vocabulary: Vocabulary, masking: Masking, seed: Any
) -> Iterator[dict[str, bytes]]:
    """The samples of some documents.

    Args:
        documents: Second spans that don't follow are taken from these, too.
        vocabulary: What tokenized them.
        masking: How samples are made.
        seed: An integer or a string; the same one makes the same samples.

    Yields:
        Samples of `COLUMNS`.
    """
    rng = random.Random(seed)
    for _ in range(masking.dupe_factor):
        for at in range(len(documents)):
            for first, second, follows in _pairs(documents, at, masking, rng):
                yield _sample(first, second, follows, vocabulary, masking, rng)


def _pairs(
    documents: Sequence[Document], at: int, masking: Masking, rng: random.Random
) -> Iterator[tuple[list[int], list[int], bool]]:
    """Two spans of tokens that fit in a sample, and whether the second follows the first."""
    most = masking.max_seq_length - 3
    document = documents[at]
    begin = 0
    while begin < len(document):
        target = rng.randint(2, most) if rng.random() < masking.short_seq_prob else most
        end = _reach(document, begin, target)
        split = begin + 1 if end - begin < 2 else begin + rng.randint(1, end - begin - 1)
        first = _joined(document[begin:split])
        follows = split < end and rng.random() >= 0.5
        if follows or (split < end and len(documents) < 2):
            second, follows, begin = _joined(document[split:end]), True, end
        else:
            if len(documents) < 2:
                return  # nothing to pair its last sentence with
            second = _elsewhere(documents, at, target - len(first), rng)
            follows, begin = False, split  # what was not used is gone through again
        first, second = _cut(first, second, most, rng)
        yield first, second, follows


def _reach(document: Document, begin: int, target: int) -> int:
    """Where sentences from `begin` on have `target` tokens, or the document ends."""
    length = 0
    for end in range(begin, len(document)):
        length += len(document[end])
        if length >= target:
            return end + 1
    return len(document)


def _elsewhere(
    documents: Sequence[Document], at: int, target: int, rng: random.Random
) -> list[int]:
    """Sentences of another document, about `target` tokens."""
    other = rng.randrange(len(documents) - 1)
    document = documents[other + (other >= at)]
    begin = rng.randrange(len(document))
    return _joined(document[begin : _reach(document, begin, max(target, 1))])


def _joined(sentences: Document) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def _cut(
    first: list[int], second: list[int], most: int, rng: random.Random
) -> tuple[list[int], list[int]]:
    """Take tokens off the longer one, at a random end, until both fit."""
    one, other = [0, len(first)], [0, len(second)]
    while (one[1] - one[0]) + (other[1] - other[0]) > most:
        longer = one if one[1] - one[0] > other[1] - other[0] else other
        if rng.random() < 0.5:
            longer[0] += 1
        else:
            longer[1] -= 1
    return first[slice(*one)], second[slice(*other)]


def _sample(
    first: list[int],
    second: list[int],
    follows: bool,
    vocabulary: Vocabulary,
    masking: Masking,
    rng: random.Random,
) -> dict[str, bytes]:
    tokens = [vocabulary.cls, *first, vocabulary.sep, *second, vocabulary.sep]
    special = {0, len(first) + 1, len(tokens) - 1}
    candidates = [at for at in range(len(tokens)) if at not in special]
    wanted = max(1, round(len(tokens) * masking.masked_lm_prob))
    count = min(masking.max_predictions_per_seq, wanted, len(candidates))
    positions = sorted(rng.sample(candidates, count))
    answers = [tokens[at] for at in positions]
    for at in positions:
        chance = rng.random()
        if chance < 0.8:
            tokens[at] = vocabulary.mask
        elif chance < 0.9:
            tokens[at] = rng.randrange(vocabulary.size)
    segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    length, most = masking.max_seq_length, masking.max_predictions_per_seq
    return {
        "input_ids": _padded(tokens, length, vocabulary.pad),
        "input_mask": _padded([1] * len(tokens), length),
        "segment_ids": _padded(segments, length),
        "masked_lm_positions": _padded(positions, most),
        "masked_lm_ids": _padded(answers, most),
        "masked_lm_weights": _padded([1] * count, most, dtype="<f4"),
        "next_sentence_labels": _padded([int(not follows)], 1),
    }


def _padded(values: list[int], length: int, filler: int = 0, dtype: str = "<i4") -> bytes:
    out = np.full(length, filler, dtype)
    out[: len(values)] = values
    return out.tobytes()
