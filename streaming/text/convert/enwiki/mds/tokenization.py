"""WordPiece tokens by a vocabulary file, as BERT's."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from streaming.format.errors import MissingExtraError

__all__ = ["Vocabulary"]

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Vocabulary:
    """A vocabulary, and the tokenizer that splits text into its words' pieces. It pickles.

    Args:
        path: A file of one token a line.
        lower_case: Whether text is lowered, and stripped of accents, first.

    Raises:
        FileNotFoundError: If there is no such file.
        MissingExtraError: If the package tokenizers is missing.
        ValueError: If the vocabulary lacks a special token.
    """

    def __init__(self, path: str, lower_case: bool = True) -> None:
        self.path, self.lower_case = path, lower_case
        with open(path, encoding="utf-8") as file:
            tokens = [line.rstrip("\n") for line in file]
        self.size = len(tokens)
        places = {token: at for at, token in enumerate(tokens)}
        missing = [token for token in _SPECIAL if token not in places]
        if missing:
            raise ValueError(f"{path} lacks {', '.join(missing)}: it is not a vocabulary of BERT")
        self.pad, _, self.cls, self.sep, self.mask = (places[token] for token in _SPECIAL)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without special ones."""
        ids: list[int] = (
            _tokenizer(self.path, self.lower_case).encode(text, add_special_tokens=False).ids
        )
        return ids


@lru_cache(maxsize=2)
def _tokenizer(path: str, lower_case: bool) -> Any:
    try:
        from tokenizers import BertWordPieceTokenizer
    except ModuleNotFoundError as exc:
        raise MissingExtraError(
            "tokens need the package tokenizers: pip install 'shardstream[text]'"
        ) from exc
    return BertWordPieceTokenizer(path, lowercase=lower_case)
