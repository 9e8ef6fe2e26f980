"""English Wikipedia, masked for the pre-training of BERT."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming._ready import ReadyDataset

__all__ = ["IGNORED", "StreamingEnWiki"]

IGNORED = -100
"""The label of a token that isn't to be predicted: what torch's cross entropy leaves out."""


class StreamingEnWiki(ReadyDataset):
    """English Wikipedia with masked tokens.

    Columns, each the bytes of little-endian int32 numbers: `input_ids`, `segment_ids` and
    `input_mask`, one number for each token; `masked_lm_positions` and `masked_lm_ids`, which tokens
    were masked and what they were. Others are not read.

    A sample is a dictionary of arrays, each with one element a token: `input_ids`,
    `token_type_ids` and `attention_mask` (int32), and `labels` (int64), the masked tokens, and -100
    elsewhere.

    Args:
        arguments: Those of `StreamingDataset`.
    """

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """The sample's arrays.

        Args:
            idx: The sample's number.
            retry: Attempts to open the shard again if it is evicted meanwhile.
        """
        sample = super().get_item(idx, retry)
        tokens = _int32(sample["input_ids"])
        labels = np.full(len(tokens), IGNORED, np.int64)
        labels[_int32(sample["masked_lm_positions"])] = _int32(sample["masked_lm_ids"])
        return {
            "input_ids": tokens,
            "token_type_ids": _int32(sample["segment_ids"]),
            "attention_mask": _int32(sample["input_mask"]),
            "labels": labels,
        }


def _int32(data: bytes) -> NDArray[np.int32]:
    return np.frombuffer(data, "<i4").astype(np.int32)
