"""What the ready data sets of `vision`, `text` and `multimodal` have in common: their arguments.

Each of them takes every argument of `StreamingDataset`, with a few of their own. The arguments are
written down once, here for type checkers and there for Python; `passes_on` shows them in each
class's signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from streaming.dataset import StreamingDataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from streaming.stream import Stream

__all__ = ["CLASSIC_DEFAULTS", "DatasetArguments", "ReadyDataset", "passes_on"]

F = TypeVar("F", bound=Callable[..., None])

CLASSIC_DEFAULTS: dict[str, Any] = {
    "partition_algo": "orig",
    "shuffle_algo": "py1s",
    "shuffle_block_size": 1 << 18,
}
"""Where the ready data sets differ from `StreamingDataset`: they keep the defaults of the time when
they were first published, so that runs over them see the samples in the order they always have."""


class ArgumentsButBatchSize(TypedDict, total=False):
    """The arguments of `StreamingDataset` that every ready data set passes on."""

    streams: Sequence[Stream] | None
    remote: str | None
    local: str | None
    split: str | None
    download_retry: int
    download_timeout: float
    validate_hash: str | None
    keep_zip: bool
    epoch_size: int | str | None
    predownload: int | None
    cache_limit: int | str | None
    sampling_method: str
    sampling_granularity: int
    partition_algo: str
    num_canonical_nodes: int | None
    shuffle: bool
    shuffle_algo: str
    shuffle_seed: int
    shuffle_block_size: int | None
    batching_method: str
    allow_unsafe_types: bool
    replication: int | None
    stream_name: str
    stream_config: dict[str, Any] | None
    rank: int | None
    world_size: int | None
    local_world_size: int | None
    device_mesh: Any
    replicate_dims: str | Sequence[str] | None
    pad: str
    max_connections: int


class DatasetArguments(ArgumentsButBatchSize, total=False):
    """All arguments of `StreamingDataset`."""

    batch_size: int | None


def passes_on(target: Callable[..., None], **defaults: Any) -> Callable[[F], F]:
    """Show, in the signature of a constructor that ends in `**arguments`, what these can be.

    Args:
        target: The constructor that gets them; its keyword-only parameters are shown, save those
            that the decorated one has itself.
        defaults: Defaults that differ from the target's.

    Example:
        >>> def base(self, *, a=1, b=2): ...
        >>> @passes_on(base, b=3)
        ... def derived(self, *, c, **arguments): ...
        >>> inspect.signature(derived)
        <Signature (self, *, a=1, b=3, c)>
    """

    def decorate(constructor: F) -> F:
        signature = inspect.signature(constructor)
        own = {n: p for n, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD}
        passed = [
            p.replace(default=defaults.get(name, p.default))
            for name, p in inspect.signature(target).parameters.items()
            if p.kind is p.KEYWORD_ONLY and name not in own
        ]
        me, *rest = own.values()
        shown = signature.replace(parameters=[me, *passed, *rest])
        constructor.__signature__ = shown  # type: ignore[attr-defined]
        return constructor

    return decorate


class ReadyDataset(StreamingDataset):
    """A `StreamingDataset` with the ready data sets' defaults.

    Args:
        arguments: Those of `StreamingDataset`.
    """

    @passes_on(StreamingDataset.__init__, **CLASSIC_DEFAULTS)
    def __init__(self, **arguments: Unpack[DatasetArguments]) -> None:
        with_defaults: Any = {**CLASSIC_DEFAULTS, **arguments}
        super().__init__(**with_defaults)
