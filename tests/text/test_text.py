import sys

import numpy as np
import pytest

from streaming import MDSWriter
from streaming.text import StreamingC4, StreamingEnWiki, StreamingPile
from tests.conformance.calls.ready import tokenizer

ARGUMENTS = {"max_seq_len": 4, "group_method": "truncate", "batch_size": 1}


@pytest.fixture
def texts(tmp_path):
    with MDSWriter(out=str(tmp_path / "t"), columns={"text": "str"}) as out:
        for text in ("the fox", "the quick brown fox jumps"):
            out.write({"text": text})
    return str(tmp_path / "t")


@pytest.mark.parametrize("cls", [StreamingC4, StreamingPile])
def test_tokens(cls, texts, tmp_path):
    name = tokenizer(tmp_path / "tk", pad_token="[PAD]")
    dataset = cls(local=texts, tokenizer_name=name, **ARGUMENTS)
    assert dataset[0]["input_ids"] == [3, 6, 1, 1]
    assert dataset[0]["attention_mask"] == [1, 1, 0, 0]
    assert dataset[1]["input_ids"] == [3, 4, 5, 6]


def test_tokenize_can_be_overridden(texts, tmp_path):
    class Words(StreamingC4):
        def _tokenize(self, text_sample):
            return text_sample["text"].split()

    name = tokenizer(tmp_path / "tk", pad_token="[PAD]")
    assert Words(local=texts, tokenizer_name=name, **ARGUMENTS)[0] == ["the", "fox"]


def test_tokenizer_without_padding_is_refused(texts, tmp_path):
    with pytest.raises(ValueError, match="neither a token to pad with"):
        StreamingC4(local=texts, tokenizer_name=tokenizer(tmp_path / "tk"), **ARGUMENTS)


def test_group_method(texts):
    arguments = {**ARGUMENTS, "group_method": "concat"}
    with pytest.raises(ValueError, match="group_method has to be 'truncate', not 'concat'"):
        StreamingC4(local=texts, tokenizer_name="any", **arguments)


def test_missing_package_is_named(texts, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install 'shardstream\[text\]'"):
        StreamingC4(local=texts, tokenizer_name="any", **ARGUMENTS)


def test_enwiki_arrays_are_the_callers(tmp_path):
    numbers = {
        "input_ids": [5, 6, 7],
        "segment_ids": [0, 1, 1],
        "input_mask": [1, 1, 0],
        "masked_lm_positions": [1],
        "masked_lm_ids": [9],
    }
    with MDSWriter(out=str(tmp_path), columns=dict.fromkeys(numbers, "bytes")) as out:
        out.write({name: np.array(v, "<i4").tobytes() for name, v in numbers.items()})
    dataset = StreamingEnWiki(local=str(tmp_path))
    sample = dataset[0]
    assert {name: array.tolist() for name, array in sample.items()} == {
        "input_ids": [5, 6, 7],
        "token_type_ids": [0, 1, 1],
        "attention_mask": [1, 1, 0],
        "labels": [-100, 9, -100],
    }
    for array in sample.values():
        array += 1
    assert dataset[0]["input_ids"].tolist() == [5, 6, 7]
