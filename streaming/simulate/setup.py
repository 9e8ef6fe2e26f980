"""What is to be planned: the data, the machines, the loader, the network and the training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from streaming.order.batching import BATCHING_METHODS
from streaming.order.partition import PARTITION_ALGOS
from streaming.order.shuffle import SHUFFLE_ALGOS
from streaming.units import bytes_to_int, number_abbrev_to_int

__all__ = ["Setup", "StreamSetup"]


@dataclass(frozen=True)
class StreamSetup:
    """One stream: a data set that is there, or so many shards of so many samples of so many bytes.

    Sizes may be written as in ``"64mb"``, numbers as in ``"10k"``.

    Raises:
        ValueError: If it is neither, or a number makes no sense; the message names the field.

    Example:
        >>> StreamSetup(shards=100, samples="8k", sample_bytes="8kb").samples
        8000
    """

    remote: str | None = None
    """A directory or URL with an ``index.json``, of which shards and sizes are read."""
    split: str | None = None
    """A subdirectory of it."""
    shards: int | str | None = None
    """How many shards there are, where there is no ``remote``."""
    samples: int | str | None = None
    """Samples of each shard."""
    sample_bytes: int | str | None = None
    """Bytes of a sample."""
    compression: float = 1.0
    """How many times smaller shards are while they travel; 1 for shards that are not compressed."""
    fixed_size: bool = False
    """Whether all samples have one size, so that a range of a shard is known without asking."""
    proportion: float | None = None
    repeat: float | None = None
    choose: int | str | None = None

    def __post_init__(self) -> None:
        numbers = {"shards": 1, "samples": 1, "choose": 0}
        for name, least in numbers.items():
            _set(self, name, _whole(name, getattr(self, name), least))
        _set(self, "sample_bytes", _size("sample_bytes", self.sample_bytes, 1))
        described = [self.shards, self.samples, self.sample_bytes]
        if self.remote is not None:
            if any(value is not None for value in described):
                raise ValueError(
                    "Give `remote`, whose index says it, or `shards`, `samples` and "
                    "`sample_bytes`, not both."
                )
        elif any(value is None for value in described):
            raise ValueError(
                "Give a data set by its `remote`, or describe it by `shards`, `samples` (of each "
                "shard) and `sample_bytes`."
            )
        _check_number("compression", self.compression, least=1.0)
        for name in ("proportion", "repeat"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), least=0.0)


@dataclass(frozen=True)
class Setup:
    """A run to be planned.

    Parameters that :class:`~streaming.StreamingDataset` or a ``DataLoader`` has are called as they
    are there, and mean the same. Sizes may be written as in ``"64mb"``, numbers as in ``"10k"``.

    Raises:
        ValueError: If a value makes no sense; the message names the field.

    Example:
        >>> stream = StreamSetup(shards=100, samples=8192, sample_bytes="8kb")
        >>> setup = Setup(streams=[stream], nodes=2, ranks=8, cache_limit="2gb", bandwidth="1gb")
        >>> setup.cache_limit, setup.workers_of_node
        (2147483648, 64)
    """

    streams: Sequence[StreamSetup]

    # Where it runs.
    nodes: int = 1
    """Machines."""
    ranks: int = 8
    """Ranks (usually GPUs) of each node."""
    workers: int = 8
    """Loader workers of each rank; 0 to load in the rank's own process."""
    cpus: int | None = None
    """Cores of a node, which the workers share; None for as many as they need."""

    # What is read, and in which order.
    batch_size: int = 32
    """Samples in a rank's batch."""
    epochs: int = 2
    epoch_size: int | str | None = None
    shuffle: bool = True
    shuffle_algo: str = "py1e"
    shuffle_seed: int = 9176
    shuffle_block_size: int | str | None = None
    num_canonical_nodes: int | None = None
    batching_method: str = "random"
    partition_algo: str = "relaxed"
    sampling_method: str = "balanced"
    sampling_granularity: int = 1

    # How it is brought here.
    cache_limit: int | str | None = None
    """Bytes that fetched shards may take on a node; None for no limit."""
    predownload: int | str | None = None
    """Samples of each worker to fetch ahead; None to go by bytes."""
    max_connections: int = 32
    validate_hash: bool = False
    """Whether shards are checked by a hash, which rules out reading parts of them."""
    keep_zip: bool = False
    prefetch_factor: int = 2
    """Batches that each worker makes ahead of the training loop."""
    by_column: bool = False
    """Whether the loader makes batches by column, several at once: a
    :class:`~streaming.StreamingDataLoader` with torch's own collate function, over a dataset whose
    ``__getitem__`` is not overridden."""

    # The network.
    bandwidth: int | str = "1gb"
    """Bytes a second that a node can receive."""
    connection_bandwidth: int | str | None = "50mb"
    """Bytes a second that one connection to the store gives; None for all of the node's."""
    latency_s: float = 0.03
    """Seconds from a request to the first byte of its answer."""

    # The training.
    step_s: float = 0.1
    """Seconds that a training step takes when its batches are there."""
    decode_s: float = 0.0
    """Seconds of one core for reading, decoding and collating a sample."""
    startup_s: float = 0.0
    """Seconds until the workers begin, at the start of every epoch."""
    price_per_gb: float = 0.0
    """What the store asks for each GB (a thousand million bytes) that leaves it."""

    def __post_init__(self) -> None:
        streams = tuple(self.streams)
        if not streams:
            raise ValueError("`streams` is empty: give at least one stream.")
        _set(self, "streams", streams)
        for name in ("nodes", "ranks", "batch_size", "epochs", "prefetch_factor"):
            _set(self, name, _whole(name, getattr(self, name), 1, needed=True))
        for name in ("max_connections", "sampling_granularity"):
            _set(self, name, _whole(name, getattr(self, name), 1, needed=True))
        for name in ("workers", "shuffle_seed"):
            _set(self, name, _whole(name, getattr(self, name), 0, needed=True))
        for name in ("cpus", "epoch_size", "shuffle_block_size", "num_canonical_nodes"):
            _set(self, name, _whole(name, getattr(self, name), 1))
        _set(self, "predownload", _whole("predownload", self.predownload, 0))
        for name in ("cache_limit", "connection_bandwidth"):
            _set(self, name, _size(name, getattr(self, name), 1))
        _set(self, "bandwidth", _size("bandwidth", self.bandwidth, 1, needed=True))
        for name in ("latency_s", "step_s", "decode_s", "startup_s", "price_per_gb"):
            _set(self, name, _check_number(name, getattr(self, name), least=0.0))
        for name in ("shuffle", "validate_hash", "keep_zip", "by_column"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"`{name}` is {getattr(self, name)!r}: give true or false.")
        _check_name("shuffle_algo", self.shuffle_algo, SHUFFLE_ALGOS)
        _check_name("batching_method", self.batching_method, BATCHING_METHODS)
        _check_name("partition_algo", self.partition_algo, PARTITION_ALGOS)
        _check_name("sampling_method", self.sampling_method, ("balanced", "fixed"))

    @property
    def workers_of_node(self) -> int:
        """Processes of a node that read the data."""
        return self.ranks * max(1, self.workers)

    @property
    def global_batch(self) -> int:
        """Samples of a training step, over all ranks."""
        return self.nodes * self.ranks * self.batch_size

    def but(self, **changes: Any) -> Setup:
        """The same with some values changed.

        Example:
            >>> setup = Setup(streams=[StreamSetup(shards=9, samples=9, sample_bytes=9)])
            >>> setup.but(workers=2).workers
            2
        """
        return replace(self, **changes)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Setup:
        """Make one of plain values, such as a YAML file holds.

        A ``remote``, or a description of shards, may stand beside the others in place of
        ``streams``.

        Args:
            values: The fields by their names; ``streams`` is a list of such mappings.

        Raises:
            ValueError: If a name is not known, or a value makes no sense.

        Example:
            >>> Setup.of({"shards": 10, "samples": 100, "sample_bytes": "1mb", "ranks": 1}).ranks
            1
            >>> Setup.of({"shards": 10, "samples": 100, "sample_bytes": "1mb", "rank": 1})
            Traceback (most recent call last):
                ...
            ValueError: There is no setting `rank`. Did you mean `ranks`?
        """
        if not isinstance(values, Mapping):
            raise ValueError("Settings have to be names with values, such as `ranks: 8`.")
        of_stream = {each.name for each in fields(StreamSetup)}
        own = {each.name for each in fields(cls)}
        _check_names(values, own | of_stream, "")
        alone = {name: value for name, value in values.items() if name in of_stream}
        given = {name: value for name, value in values.items() if name in own}
        if "streams" in given:
            if alone:
                raise ValueError(
                    f"`{next(iter(alone))}` belongs to a stream: put it under `streams`."
                )
            if not isinstance(given["streams"], Sequence) or isinstance(given["streams"], str):
                raise ValueError("`streams` has to be a list.")
            streams = [
                _stream(values, f"Stream {number}: ")
                for number, values in enumerate(given["streams"])
            ]
        else:
            streams = [_stream(alone, "")]
        return cls(**{**given, "streams": streams})


def _stream(values: Any, where: str) -> StreamSetup:
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}give names with values, such as `remote: s3://bucket/data`.")
    _check_names(values, {each.name for each in fields(StreamSetup)}, where)
    try:
        return StreamSetup(**values)
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None


def _check_names(values: Mapping[str, Any], known: set[str], where: str) -> None:
    from difflib import get_close_matches

    for name in values:
        if name not in known:
            close = get_close_matches(str(name), sorted(known), 1)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            raise ValueError(f"{where}There is no setting `{name}`.{hint}")


def _set(of: Any, name: str, value: Any) -> None:
    object.__setattr__(of, name, value)


def _whole(name: str, value: Any, least: int, needed: bool = False) -> int | None:
    if value is None and not needed:
        return None
    try:
        if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
            raise ValueError
        number = number_abbrev_to_int(int(value) if isinstance(value, float) else value)
    except (TypeError, ValueError):
        raise ValueError(
            f"`{name}` is {value!r}: give a whole number, such as 8 or '10k'."
        ) from None
    if number < least:
        raise ValueError(f"`{name}` is {value!r}: give {least} or more.")
    return number


def _size(name: str, value: Any, least: int, needed: bool = False) -> int | None:
    if value is None and not needed:
        return None
    try:
        if isinstance(value, bool):
            raise ValueError
        number = bytes_to_int(int(value) if isinstance(value, float) else value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"`{name}` is {value!r}: give a number of bytes, such as 65536 or '64mb'."
        ) from None
    if number < least:
        raise ValueError(f"`{name}` is {value!r}: give {least} byte or more.")
    return number


def _check_number(name: str, value: Any, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"`{name}` is {value!r}: give a number.")
    if value < least:
        raise ValueError(f"`{name}` is {value!r}: give {least:g} or more.")
    return float(value)


def _check_name(name: str, value: Any, known: Any) -> None:
    if value not in known:
        raise ValueError(f"`{name}` is {value!r}: give one of {', '.join(known)}.")
