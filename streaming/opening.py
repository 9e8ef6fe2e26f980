"""From a dataset's arguments to its streams, opened."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streaming.cache import Directory
from streaming.registry import construct_from_registry
from streaming.stream import Stream, streams_registry


def make_streams(
    streams: Sequence[Stream] | None,
    stream_name: str,
    stream_config: dict[str, Any],
    default: dict[str, Any],
) -> list[Stream]:
    """The streams that a dataset's arguments stand for, with its defaults applied.

    Raises:
        ValueError: If the arguments contradict one another.
    """
    place = {name: default[name] for name in ("remote", "local", "split")}
    if streams is None:
        arguments = {**place, **stream_config}
        made = [
            construct_from_registry(
                stream_name, streams_registry, partial_function=False, kwargs=arguments
            )
        ]
    else:
        if place["remote"] or place["local"]:
            raise ValueError("Give `streams`, or `remote` and `local`, not both.")
        made = list(streams)
        if not made:
            raise ValueError("`streams` is empty: give at least one stream.")
    for stream in made:
        stream.apply_default(default)
    _check_distinct(made)
    return made


def _check_distinct(streams: list[Stream]) -> None:
    """Refuse two remotes in one directory: the one's shards would be taken for the other's."""
    remotes: dict[str, tuple[str | None, str]] = {}
    for stream in streams:
        path = os.path.realpath(stream.path)
        remote = (stream.remote, stream.split)
        if remotes.setdefault(path, remote) != remote:
            raise ValueError(
                f"Two streams keep different data in {path}: {remotes[path][0]} and "
                f"{stream.remote}. Give each a `local` of its own."
            )


def open_stream(stream: Stream, allow_unsafe_types: bool) -> Directory:
    """A stream's directory and index; a class that prepares shards in its own way does so."""
    directory = stream.open()
    directory.index.validate_safe(allow_unsafe_types)
    if type(stream).prepare_shard is Stream.prepare_shard:
        return directory
    return replace(directory, bring=partial(_bring, stream, directory))


def _bring(stream: Stream, directory: Directory, shard: int) -> None:
    stream.prepare_shard(directory.index.reader(shard, directory.path, None))
