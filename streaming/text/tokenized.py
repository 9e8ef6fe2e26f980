"""Text that is tokenized as it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming._ready import ReadyDataset, passes_on

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from streaming._ready import DatasetArguments

__all__ = ["TokenizedText"]


class TokenizedText(ReadyDataset):
    """Text in a column `text`, tokenized by a tokenizer of Hugging Face's transformers.

    A sample is what the tokenizer gives: `input_ids`, `attention_mask` and, from some tokenizers,
    `token_type_ids`, each a list of `max_seq_len` integers. Longer texts are cut off, shorter ones
    padded (with the token that ends a text where the tokenizer has none for padding).

    Args:
        tokenizer_name: The tokenizer's name on the hub, or a directory that it was saved to.
        max_seq_len: Tokens in a sample.
        group_method: How texts become samples: `truncate`, one sample from each text.
        arguments: Those of `StreamingDataset`.

    Raises:
        ImportError: The package transformers is missing.
        ValueError: `group_method` is another, or the tokenizer has no token to pad with.
    """

    @passes_on(ReadyDataset.__init__)
    def __init__(
        self,
        *,
        tokenizer_name: str,
        max_seq_len: int,
        group_method: str,
        **arguments: Unpack[DatasetArguments],
    ) -> None:
        if group_method != "truncate":
            raise ValueError(f"group_method has to be 'truncate', not {group_method!r}")
        super().__init__(**arguments)
        self.tokenizer_name = tokenizer_name
        self.max_seq_len = max_seq_len
        self.group_method = group_method
        self.tokenizer = _tokenizer(tokenizer_name)

    def _tokenize(self, text_sample: dict[str, Any]) -> Any:
        """The tokens of a sample; subclasses may override it."""
        return self.tokenizer(
            text_sample["text"],
            truncation=True,
            padding="max_length",
            max_length=self.max_seq_len,
        )

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """The sample's tokens.

        Args:
            idx: The sample's number.
            retry: Attempts to open the shard again if it is evicted meanwhile.
        """
        return self._tokenize(super().get_item(idx, retry))


def _tokenizer(name: str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as e:
        raise ImportError(
            "tokenizing needs the package transformers: pip install 'shardstream[text]'"
        ) from e
    tokenizer = AutoTokenizer.from_pretrained(name)
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ValueError(f"tokenizer {name} has neither a token to pad with nor one that ends")
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
