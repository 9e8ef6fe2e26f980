"""From a dataset's arguments to its streams, opened."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streaming.cache import Directory
from streaming.cache.in_use import in_use
from streaming.keep import user_keep
from streaming.registry import construct_from_registry
from streaming.stream import Stream, streams_registry

if TYPE_CHECKING:
    from tqdm import tqdm

OPENED_AT_ONCE = 32
"""Streams that are opened side by side."""
SHOWN_AFTER_S = 3.0
"""How long opening takes before a bar shows how far it is."""


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


def open_streams(streams: Sequence[Stream], allow_unsafe_types: bool) -> list[Directory]:
    """The streams' directories and indexes; those with remotes side by side.

    Raises:
        Exception: The first stream's that can't be opened; it names the directory or URL.
    """
    if sum(stream.remote is not None for stream in streams) < 2:
        return [open_stream(stream, allow_unsafe_types) for stream in streams]
    with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(streams)), "streaming-open") as pool:
        opened = [pool.submit(open_stream, stream, allow_unsafe_types) for stream in streams]
        try:
            with _showing(len(streams)) as advance:
                for future in as_completed(opened):
                    future.result()
                    advance()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in opened]


@contextmanager
def _showing(total: int) -> Iterator[Callable[[], None]]:
    """A bar on the terminal of the node's first process, if opening takes a while."""
    began_s, done = time.monotonic(), 0
    bar: tqdm[Any] | None = None
    is_first = os.environ.get("LOCAL_RANK", "0") == "0"

    def advance() -> None:
        nonlocal bar, done
        done += 1
        if bar is not None:
            bar.update()
        elif is_first and time.monotonic() - began_s > SHOWN_AFTER_S:
            from tqdm import tqdm

            # Only where there is a terminal: lines in a log file would be of no use.
            bar = tqdm(desc="Opening streams", total=total, initial=done, unit="", disable=None)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.close()


def open_stream(stream: Stream, allow_unsafe_types: bool) -> Directory:
    """A stream's directory and index; a class that prepares shards in its own way does so."""
    directory = stream.open(anew=True)
    directory.index.validate_safe(allow_unsafe_types)
    if type(stream).prepare_shard is Stream.prepare_shard:
        return directory
    return replace(directory, bring=partial(_bring, stream, directory))


def _bring(stream: Stream, directory: Directory, shard: int) -> None:
    stream.prepare_shard(directory.index.reader(shard, directory.path, None))


@contextmanager
def reading(directories: Sequence[Directory]) -> Iterator[None]:
    """Read directories for as long as the block lasts: nobody replaces their data sets.

    Raises:
        ObjectChanged: If somebody has since they were opened.
    """
    caches = [directory for directory in directories if directory.origin is not None]
    keep = user_keep() if caches else None
    locks = None if keep is None else keep.locks_path
    with in_use(locks, [directory.path for directory in caches]):
        for directory in caches:
            directory.check_here()
        yield
