"""Checks of what users pass to the dataset, made before anything is fetched."""

from collections.abc import Sequence
from typing import Any, Protocol

from streaming.cache import Directory

_CHOICES = {
    "sampling_method": ("balanced", "fixed"),
    "partition_algo": ("relaxed", "orig"),
    "shuffle_algo": ("py1e", "py1br", "py1s", "py2s", "naive", "blockwise"),
    "pad": ("repeat", "none"),
    "batching_method": ("random", "stratified", "per_stream", "device_per_stream"),
}
# Arguments that count something, with the least that makes sense. None is left to the default.
_LEAST = {
    "predownload": 0,
    "sampling_granularity": 1,
    "num_canonical_nodes": 1,
    "batch_size": 1,
    "shuffle_seed": 0,
    "shuffle_block_size": 1,
    "replication": 1,
    "cache_limit": 1,
    "max_connections": 1,
}


class Arguments(Protocol):
    """Whatever has the dataset's arguments as attributes."""

    batching_method: str
    pad: str


def check_arguments(arguments: Arguments) -> None:
    """Check the arguments that stand for themselves.

    Raises:
        ValueError: Naming the argument, its value, and what it may be.
        TypeError: If a number is none.
    """
    for name, choices in _CHOICES.items():
        value = getattr(arguments, name)
        if value not in choices:
            raise ValueError(f"`{name}` is {value!r}: give one of {', '.join(choices)}.")
    method = arguments.batching_method
    if arguments.pad == "none" and method != "random":
        raise ValueError(
            f'`pad="none"` needs `batching_method="random"`: {method!r} leaves out what fills no '
            "batch, so that it can't give every sample once."
        )
    for name, least in _LEAST.items():
        value = getattr(arguments, name)
        if value is None:
            continue
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"`{name}` is {value!r}: give a whole number.")
        if value < least:
            raise ValueError(f"`{name}` is {value}: give at least {least}.")


def check_limit(limit: int | None, directories: Sequence[Directory]) -> None:
    """Check that a cache limit holds at least the largest shard, beside the indexes.

    Raises:
        ValueError: With the smallest limit that works.
    """
    if limit is None:
        return
    import os

    fetched = {os.path.realpath(d.path): d for d in directories if d.is_cache}.values()
    if not fetched:
        return
    indexes = sum(os.stat(d.index_path).st_size for d in fetched)
    shard = max(int((d.index.raw_bytes + d.index.zip_bytes).max(initial=0)) for d in fetched)
    if limit < indexes + shard:
        raise ValueError(
            f"`cache_limit` is {limit:,} bytes, but the indexes ({indexes:,}) and the largest "
            f"shard, raw and compressed ({shard:,}), take {indexes + shard:,} bytes. Give at least "
            f"that; several times as much to fetch ahead."
        )


def check_state(obj: Any) -> dict[str, Any]:
    """Check a checkpoint, and fill in what older versions left out.

    Raises:
        ValueError: If it is none, naming what is wrong.
    """
    if not isinstance(obj, dict):
        raise ValueError(f"A checkpoint of a dataset is a dictionary, not {type(obj).__name__}.")
    state = {
        "initial_physical_nodes": None,
        "fingerprint": None,
        "process": None,
        "epoch_finished": False,
        **obj,
    }
    for name in ("epoch", "sample_in_epoch", "num_canonical_nodes", "shuffle_seed"):
        if name not in state:
            raise ValueError(
                f"The checkpoint lacks {name!r}; it has {', '.join(map(str, obj)) or 'nothing'}."
            )
    for name in (
        "epoch",
        "sample_in_epoch",
        "num_canonical_nodes",
        "shuffle_seed",
        "initial_physical_nodes",
    ):
        value = state[name]
        least = {"epoch": -1, "sample_in_epoch": 0, "shuffle_seed": 0}.get(name, 1)
        if name == "initial_physical_nodes" and value is None:
            continue
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
            raise ValueError(
                f"The checkpoint's {name!r} is {value!r}: it should be {least} or more."
            )
        state[name] = int(value)
    for name in ("fingerprint", "process"):
        if state[name] is not None and not isinstance(state[name], dict):
            raise ValueError(f"The checkpoint's {name!r} is no dictionary: {state[name]!r}.")
    return state


def is_finished(state: dict[str, Any], epoch_size: int) -> bool:
    """Whether a loader's checkpoint was made after the last batch of an epoch.

    Ours say so: a count does not, since an epoch with repeats goes on past its size. Those of
    mosaicml-streaming are judged by their count.
    """
    if "fingerprint" in state:
        return bool(state.get("epoch_finished", False))
    return bool(state["sample_in_epoch"] >= epoch_size)
