"""The settings that the page shows, and what is wrong with those that were put in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streaming.order.batching import BATCHING_METHODS
from streaming.order.shuffle import SHUFFLE_ALGOS
from streaming.simulate.setup import Setup, StreamSetup

__all__ = ["SECTIONS", "START", "Field", "check", "plain_values"]

Values = Mapping[str, Any]

STREAMS = "streams"
"""Where there are several streams: a list of mappings, written as YAML."""


@dataclass(frozen=True)
class Field:
    """A setting that can be changed."""

    name: str
    label: str
    help: str
    least: float = 0
    most: float | None = None
    """Up to where its slider goes; None for a field to write into."""
    step: float = 1
    choices: Sequence[Any] = ()
    is_flag: bool = False


DESCRIBED = (
    Field("shards", "Shards", "How many there are, such as 1000 or 10k."),
    Field("samples", "Samples of each shard", "Such as 8192 or 8k."),
    Field("sample_bytes", "Bytes of a sample", "Such as 110000 or 16kb."),
    Field(
        "compression",
        "Compression",
        "How many times smaller shards are while they travel.",
        least=1.0,
        most=10.0,
        step=0.1,
    ),
)
"""Where the data set is described and not there."""

REMOTE = Field("remote", "Directory or URL", "Of a data set with an index.json: s3://bucket/data")

SECTIONS: dict[str, tuple[Field, ...]] = {
    "Machines": (
        Field("nodes", "Nodes", "Machines.", 1, 64),
        Field("ranks", "Ranks of each node", "Usually GPUs.", 1, 16),
        Field("workers", "Workers of each rank", "num_workers of the DataLoader.", 0, 32),
        Field("cpus", "Cores of a node", "Which its workers share; empty for enough."),
    ),
    "Training": (
        Field("batch_size", "Batch size of a rank", "Samples.", choices=[2**n for n in range(15)]),
        Field("epochs", "Epochs", "How many to simulate.", 1, 5),
        Field("step_s", "Step, seconds", "With its data there.", 0.0, 2.0, 0.005),
        Field(
            "decode_s",
            "Decoding, seconds of a core",
            "Reading, decoding and collating a sample.",
            0.0,
            0.05,
            0.0005,
        ),
        Field("startup_s", "Start of the workers, seconds", "Each epoch.", 0.0, 30.0, 0.1),
    ),
    "Network": (
        Field("bandwidth", "Bytes a second of a node", "Such as 1gb."),
        Field("connection_bandwidth", "… of a connection", "Such as 50mb; empty for all of it."),
        Field("latency_s", "Latency, seconds", "To the first byte.", 0.0, 0.3, 0.005),
        Field("max_connections", "Connections at most", "Of a node.", 1, 128),
        Field("price_per_gb", "Price of a GB", "That leaves the store.", 0.0, 0.2, 0.005),
    ),
    "Cache": (
        Field("cache_limit", "Cache limit", "Of a node, such as 100gb; empty for none."),
        Field("predownload", "Samples ahead", "Of each worker; empty to go by bytes."),
        Field("prefetch_factor", "Batches ahead", "That each worker makes.", 1, 16),
        Field("validate_hash", "Check hashes", "Rules out reading parts.", is_flag=True),
        Field("by_column", "By column", "StreamingDataLoader, no __getitem__.", is_flag=True),
    ),
    "Order": (
        Field("shuffle", "Shuffle", "Each epoch.", is_flag=True),
        Field("shuffle_algo", "Algorithm", "See the docs.", choices=list(SHUFFLE_ALGOS)),
        Field("shuffle_block_size", "Shuffle block", "Samples, such as 250k; empty for its own."),
        Field("num_canonical_nodes", "Canonical nodes", "Empty for its own."),
        Field("epoch_size", "Samples of an epoch", "Such as 10m; empty for all."),
        Field("batching_method", "Batching", "Of streams.", choices=list(BATCHING_METHODS)),
    ),
}

START: dict[str, Any] = {
    "shards": "1000",
    "samples": "8000",
    "sample_bytes": "64kb",
    "compression": 1.0,
    "nodes": 2,
    "ranks": 8,
    "workers": 8,
    "step_s": 0.25,
    "decode_s": 0.001,
    "shuffle_block_size": "250k",
}
"""The plan that the page begins with, where none is given."""

_ANY: dict[str, Any] = {"shards": 1, "samples": 1, "sample_bytes": 1}
_OF_RUN = {field.name for fields in SECTIONS.values() for field in fields}
_OF_STREAM = {field.name for field in DESCRIBED}
_NAMED = re.compile(r"`(\w+)`")


def plain_values(values: Values) -> dict[str, Any]:
    """What was put in, less what was left empty.

    Example:
        >>> plain_values({"cache_limit": " ", "remote": " s3://bucket ", "ranks": 8})
        {'remote': 's3://bucket', 'ranks': 8}
    """
    stripped = {
        name: value.strip() if isinstance(value, str) else value for name, value in values.items()
    }
    return {name: value for name, value in stripped.items() if value not in ("", None)}


def check(values: Values) -> tuple[Setup | None, dict[str, str]]:
    """Make a plan of what was put in.

    Args:
        values: The settings by their names; texts may be empty.

    Returns:
        The plan, or None; and what is wrong, by the settings' names. What is wrong with several
        together is at the empty name.

    Example:
        >>> setup, wrong = check({**START, "cache_limit": "lots", "shards": "0"})
        >>> setup is None, wrong["shards"]
        (True, "'0': give 1 or more.")
        >>> wrong["cache_limit"]
        "'lots': give a number of bytes, such as 65536 or '64mb'."
        >>> check(START)[0].streams[0].samples
        8000
    """
    given = plain_values(values)
    streams = given.get(STREAMS)
    wrong: dict[str, str] = {}
    if isinstance(streams, str):
        try:
            given[STREAMS] = _yaml(streams)
        except ValueError as error:
            wrong[STREAMS] = str(error)
    for name, value in given.items():
        try:
            if name in _OF_RUN:
                Setup(streams=[StreamSetup(**_ANY)], **{name: value})
            elif name in _OF_STREAM:
                StreamSetup(**{**_ANY, name: value})
        except ValueError as error:
            wrong[name] = _without_name(str(error), name)
    if wrong:
        return None, wrong
    try:
        return Setup.of(given), {}
    except ValueError as error:
        return None, explained(error, given)


def explained(error: Exception, values: Values) -> dict[str, str]:
    """An error by the setting that it is about, if that was put in; else at the empty name.

    Example:
        >>> explained(ValueError("`cache_limit` is 9 bytes, too little."), {"cache_limit": "9"})
        {'cache_limit': '9 bytes, too little.'}
    """
    text = str(error)
    named = _NAMED.search(text)
    shown = {*_OF_RUN, *_OF_STREAM, REMOTE.name, STREAMS}
    name = named[1] if named is not None and named[1] in shown & values.keys() else ""
    return {name: _without_name(text, name)}


def _without_name(text: str, name: str) -> str:
    return text.removeprefix(f"`{name}` is ")


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"That is no YAML: {error}") from error
