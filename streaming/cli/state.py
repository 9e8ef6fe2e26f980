"""`shardstream state`: what is in a checkpoint."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming.cli.place import Access
from streaming.storage import is_local, local_path
from streaming.storage.urls import split_url
from streaming.validation import check_state

__all__ = ["DatasetState", "Entry", "State", "state"]

_MARKS = {"epoch", "sample_in_epoch"}


@dataclass(frozen=True, slots=True)
class DatasetState:
    """Where a data set was."""

    where: str
    """The way to it in the checkpoint, such as `state.train_loader`."""
    values: dict[str, Any]
    """The state, as a data set takes it."""
    problem: str | None = None
    """Why a data set would refuse it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What else a checkpoint holds at its top."""

    name: str
    what: str


@dataclass(frozen=True, slots=True)
class State:
    """What is in a checkpoint."""

    url: str
    kind: str
    """json or torch."""
    datasets: list[DatasetState] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there is a data set's state in it, and all of them can be loaded."""
        return bool(self.datasets) and not any(one.problem for one in self.datasets)


def state(url: str, access: Access | None = None) -> State:
    """Look for data sets' states in a checkpoint.

    Args:
        url: The file: JSON, or what `torch.save` wrote. Of the latter, weights and plain values are
            read alone (`weights_only`), so that no code of whoever wrote it runs.
        access: How its store is reached.

    Returns:
        What is in it.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is neither kind of file, or holds other objects.
        StoreError: If it can't be read.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "state.json")
        >>> place = {"epoch": 1, "sample_in_epoch": 64, "num_canonical_nodes": 2, "shuffle_seed": 7}
        >>> _ = path.write_text(json.dumps({"step": 9, "loader": place}))
        >>> found = state(str(path))
        >>> found.datasets[0].where, found.datasets[0].values["sample_in_epoch"]
        ('loader', 64)
    """
    if is_local(url):
        return _read(url, local_path(url))
    access = access or Access()
    root, key = split_url(url)
    store = access.store(root)
    with tempfile.TemporaryDirectory(prefix="shardstream-") as folder:
        path = os.path.join(folder, "checkpoint")

        def fetch() -> None:
            with open(path, "wb") as file:
                store.get(key, file)

        access.retry.call(fetch, f"fetching {url}")
        return _read(url, path)


def _read(url: str, path: str) -> State:
    kind, content = _load(url, path)
    entries = content.items() if isinstance(content, Mapping) else []
    return State(
        url=url,
        kind=kind,
        datasets=[_judge(where, values) for where, values in _find(content, "")],
        entries=[Entry(str(name), _what(value)) for name, value in entries],
    )


def _load(url: str, path: str) -> tuple[str, Any]:
    with open(path, "rb") as file:
        begin = file.read(64).lstrip()
    if begin[:1] in (b"{", b"["):
        try:
            with open(path, encoding="utf-8") as file:
                return "json", json.load(file)
        except ValueError as exc:
            raise ValueError(f"{url} is not JSON: {exc}") from exc
    import torch

    try:
        return "torch", torch.load(path, map_location="cpu", weights_only=True)
    except Exception as exc:  # pickle's, zipfile's and torch's own, by what is wrong
        reason = str(exc).strip().split("\n")[0]
        raise ValueError(
            f"{url} is neither JSON nor a file of torch.save with nothing but tensors and plain "
            f"values: {reason}"
        ) from exc


def _find(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The data sets' states in a value, at any depth."""
    if isinstance(value, Mapping):
        if value.keys() >= _MARKS:
            yield where or ".", {str(k): v for k, v in value.items()}
            return
        for name, one in value.items():
            yield from _find(one, f"{where}.{name}" if where else str(name))
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _find(one, f"{where}[{number}]")


def _judge(where: str, values: dict[str, Any]) -> DatasetState:
    try:
        check_state(values)
    except ValueError as exc:
        return DatasetState(where, {k: _plain(v) for k, v in values.items()}, str(exc))
    return DatasetState(where, {k: _plain(v) for k, v in values.items()})


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if getattr(value, "numel", lambda: 0)() == 1:
        return value.item()
    return _what(value)


def _what(value: Any) -> str:
    """A value in a few words."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{value.dtype} of shape {tuple(shape)}"
    if isinstance(value, (Mapping, list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__}: {text[:50]}…"
