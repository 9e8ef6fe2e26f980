"""Streams."""

from pathlib import Path
from typing import Any

import numpy as np

from .codec import names, outcome
from .formats import written
from .scenario import public, scenario


def _weights(streams: list[Any]) -> Any:
    keys = ("proportion", "repeat", "choose")
    values = [[getattr(stream, key, None) for key in keys] for stream in streams]
    return [[None if value is None else float(value) for value in row] for row in values]


@scenario("Stream")
def stream(cls: Any, folder: Path) -> Any:
    remote = written(folder / "remote")
    local = folder / "local"
    world = public("base.world.World").detect()
    made = cls(remote=str(remote.parent), local=str(local), split=remote.name, repeat=2)
    bare = cls(local=str(remote))
    before = [made.remote, made.local, made.split, made.repeat, bare.split, bare.remote]
    bare.apply_default(
        {"remote": None, "local": None, "split": None, "download_retry": 5, "download_timeout": 9}
        | {"validate_hash": "sha1", "keep_zip": True}
    )
    made.apply_default(
        {"remote": None, "local": None, "split": None, "download_retry": 3, "download_timeout": 7}
        | {"validate_hash": None, "keep_zip": False}
    )
    defaults = [
        [s.download_retry, s.download_timeout, s.validate_hash, s.keep_zip] for s in (bare, made)
    ]
    shards = made.get_shards(world, False)
    present = np.zeros(len(shards), np.int64)
    made.set_up_local(shards, present)
    empty = present.tolist()
    fetched = made.prepare_shard(shards[1])
    made.set_up_local(shards, present)
    return [
        [str(x).replace(str(folder), "") for x in before],
        defaults,
        made.get_index_size(),
        [len(shard) for shard in shards],
        [empty, present.tolist(), fetched, names(local)],
        [outcome(cls.validate_weights, streams) for streams in _mixtures(cls)],
        *(_applied(cls, epoch) for epoch in (None, 20)),
    ]


def _mixtures(cls: Any) -> list[list[Any]]:
    return [
        [cls(local="a"), cls(local="b")],
        [cls(local="a", proportion=1), cls(local="b", proportion=3)],
        [cls(local="a", repeat=1.5), cls(local="b", choose=4)],
        [cls(local="a", proportion=1), cls(local="b")],
    ]


def _applied(cls: Any, epoch: int | None) -> Any:
    sizes = np.array([10, 6])
    return [
        [outcome(cls.apply_weights, streams, sizes, epoch, 9), _weights(streams)]
        for streams in _mixtures(cls)
    ]
