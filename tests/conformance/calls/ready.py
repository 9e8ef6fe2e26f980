"""The ready data sets."""

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from .codec import encode, outcome
from .formats import _image
from .scenario import public, scenario


def _write(out: Path, columns: dict[str, str], samples: list[dict[str, Any]]) -> str:
    with public("MDSWriter")(out=str(out), columns=columns) as writer:
        for sample in samples:
            writer.write(sample)
    return str(out)


def _tag(tag: str) -> Callable[..., Any]:
    def transform(*values: Any) -> Any:
        tagged = tuple((tag, encode(value)) for value in values)
        return tagged if len(values) > 1 else tagged[0]

    return transform


def _methods(dataset: Any) -> Any:
    """The inherited methods, which a ready data set must not break."""
    state = dataset.state_dict(0, True)
    dataset.load_state_dict(state)
    done: Future[int] = Future()
    done.set_result(1)
    facts = [
        state,
        len(dataset),
        dataset.size,
        dataset.next_epoch,
        dataset.cache_usage >= 0,
        dataset.prepare_shard(0),
        [np.asarray(part).tolist() for part in dataset.resample_streams(0)],
        [dataset.partition_algo, dataset.shuffle_algo, dataset.shuffle_block_size],
        outcome(dataset.on_exception, done),
    ]
    # There these delete the user's own files; what they give is no fact to hold to.
    outcome(dataset.evict_coldest_shard)
    outcome(dataset.evict_shard, 0)
    return facts


@scenario("StreamingVisionDataset", "StreamingCIFAR10", "StreamingImageNet")
def vision(cls: Any, folder: Path) -> Any:
    modes = ("RGB", "L", "RGBA", "CMYK", "1", "P", "LA", "I", "F")
    samples = [{"x": _image(mode), "y": at} for at, mode in enumerate(modes)]
    images = _write(folder / "images", {"x": "pil", "y": "int"}, samples)
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    arrays = [pixels, pixels[:, :, 0], pixels / 7]
    array_samples = [{"x": array, "y": 0} for array in arrays]
    plain = _write(folder / "arrays", {"x": "ndarray", "y": "int"}, array_samples)

    def made(local: str = images, **kwargs: Any) -> Any:
        return cls(local=local, batch_size=1, **kwargs)

    x, y, xy = _tag("x"), _tag("y"), _tag("xy")
    return [
        [made()[i] for i in range(len(modes))],
        [made(plain)[i] for i in range(len(arrays))],
        made(transform=x)[0],
        made(target_transform=y).get_item(1),
        made(transform=x, target_transform=y)[1:3],
        made(transforms=xy)[-1],
        outcome(made, transforms=xy, transform=x),
        outcome(cls, local=images),
        [int(y) for _, y in made()],
        _methods(made()),
    ]


@scenario("StreamingADE20K")
def ade20k(cls: Any, folder: Path) -> Any:
    sample = {"x": _image("RGB"), "y": _image("L")}
    local = _write(folder / "data", {"x": "pil", "y": "png"}, [sample] * 2)
    x, y = _tag("x"), _tag("y")
    swap = lambda pair: (pair[1], pair[0])  # noqa: E731
    return [
        cls(local=local)[0],
        cls(local=local, transform=x, target_transform=y)[0],
        cls(local=local, transform=x, target_transform=y, joint_transform=swap).get_item(1),
        _methods(cls(local=local, batch_size=1)),
    ]


@scenario("StreamingCOCO")
def coco(cls: Any, folder: Path) -> Any:
    columns = {"img": "pil", "img_id": "int", "htot": "int", "wtot": "int"}
    columns |= {"bbox_sizes": "ndarray:float32", "bbox_labels": "ndarray:int64"}
    boxes = np.array([[0, 0.1, 0.5, 0.5]], np.float32)
    numbers = {"img_id": 7, "htot": 40, "wtot": 50}
    arrays = {"bbox_sizes": boxes, "bbox_labels": np.array([3])}
    samples = [{"img": _image(mode), **numbers, **arrays} for mode in ("RGB", "L")]
    local = _write(folder / "data", columns, samples)
    return [
        cls(local=local)[1],
        cls(local=local, transform=_tag("all")).get_item(0),
        _methods(cls(local=local, batch_size=1)),
    ]


@scenario("StreamingEnWiki")
def enwiki(cls: Any, folder: Path) -> Any:
    values = {
        "input_ids": [10, 11, 12, 13, 14, 15, 0, 0],
        "input_mask": [1, 1, 1, 1, 1, 1, 0, 0],
        "segment_ids": [0, 0, 0, 1, 1, 1, 0, 0],
        "masked_lm_positions": [2, 4, 0],
        "masked_lm_ids": [70, 71, 0],
    }
    sample = {name: np.array(v, "<i4").tobytes() for name, v in values.items()}
    sample["masked_lm_weights"] = np.array([1, 1, 0], "<f4").tobytes()
    sample["next_sentence_labels"] = np.array([1], "<i4").tobytes()
    local = _write(folder / "data", dict.fromkeys(sample, "bytes"), [sample] * 2)
    dataset = cls(local=local, batch_size=1)
    return [dataset[0], dataset.get_item(1), _methods(dataset)]


VOCABULARY = ("[UNK]", "[PAD]", "[EOS]", "the", "quick", "brown", "fox", "jumps", "dog")


def tokenizer(folder: Path, **special: str) -> str:
    """Save a word-level tokenizer, as transformers reads it."""
    model = {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(VOCABULARY)}}
    special_tokens = [
        {"id": at, "content": VOCABULARY[at], "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for at in range(3)
    ]
    blank = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    text = {
        "version": "1.0",
        **dict.fromkeys(blank),
        "added_tokens": special_tokens,
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {**model, "unk_token": "[UNK]"},
    }
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(text))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


@scenario("StreamingC4", "StreamingPile")
def tokenized(cls: Any, folder: Path) -> Any:
    texts = ("the quick fox", "the quick brown fox jumps the dog", "", "zebra")
    local = _write(folder / "data", {"text": "str"}, [{"text": text} for text in texts])
    padding = tokenizer(folder / "padding", pad_token="[PAD]", eos_token="[EOS]")
    ending = tokenizer(folder / "ending", eos_token="[EOS]")

    def made(name: str, **kwargs: Any) -> Any:
        arguments = {"max_seq_len": 5, "group_method": "truncate", **kwargs}
        return cls(local=local, tokenizer_name=name, batch_size=1, **arguments)

    def tokens(dataset: Any, at: int) -> Any:
        # Which further keys a tokenizer gives depends on its version.
        sample = dataset[at]
        return [sample["input_ids"], sample["attention_mask"]]

    dataset = made(padding)
    return [
        [tokens(dataset, at) for at in range(len(texts))],
        [tokens(made(ending), at) for at in range(len(texts))],
        dataset.get_item(0)["input_ids"],
        [dataset.max_seq_len, dataset.group_method, dataset.tokenizer.pad_token],
        outcome(made, padding, group_method="concat"),
        outcome(cls, local=local),
        _methods(dataset),
    ]


def _videos(folder: Path) -> dict[str, Any]:
    videos = folder / "videos" / "clips"
    videos.mkdir(parents=True)
    samples = []
    for at in range(3):
        (videos / f"{at}.mp4").write_bytes(b"video%d" % at)
        samples.append({"content_path": f"clips/{at}.mp4", "caption": str(at)})
    columns = {"content_path": "str", "caption": "str"}
    return {"local": _write(folder / "data", columns, samples), "batch_size": 1}


@scenario("StreamingInsideWebVid")
def inside(cls: Any, folder: Path) -> Any:
    dataset = cls(**_videos(folder))
    return [dataset[0], dataset.get_item(2), _methods(dataset)]


@scenario("StreamingOutsideGIWebVid", "StreamingOutsideDTWebVid")
def outside(cls: Any, folder: Path) -> Any:
    arguments = _videos(folder)
    both = {"extra_local": str(folder / "kept"), "extra_remote": str(folder / "videos")}
    dataset = cls(**arguments, **both, num_canonical_nodes=1)
    kept = folder / "kept" / "clips"
    return [
        dataset[0],
        sorted(path.name for path in kept.iterdir()),
        [(s["caption"], s["content"]) for s in dataset],
        sorted(path.name for path in kept.iterdir()),
        cls(**arguments)[0],
        cls(**arguments, extra_local=both["extra_local"])[0],
        cls(**arguments, extra_remote=both["extra_remote"]).get_item(0),
        _methods(dataset),
    ]
