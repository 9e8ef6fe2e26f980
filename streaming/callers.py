"""What can only be known by looking at who calls: habits of training libraries.

Accelerate's ``prepare``, and with it the Trainer of transformers, puts iterable datasets behind
loaders of its own, in which either process 0 reads everything and sends every process its part, or
every process reads everything and keeps its part. A dataset that dealt itself out as well would
lose most samples without a sign of it. Nothing tells a dataset that it is read so, except who reads
it.
"""

import logging
import sys
from collections.abc import Iterator
from functools import cache
from types import FrameType

from streaming.world import World

log = logging.getLogger("streaming")

_DEALERS = {
    ("accelerate.data_loader", "DataLoaderDispatcher"): "process 0 reads all samples for all",
    ("accelerate.data_loader", "IterableDatasetShard"): "every process reads all samples",
    ("transformers.trainer_pt_utils", "IterableDatasetShard"): "every process reads all samples",
}


def dealt_out_elsewhere() -> bool:
    """Whether what reads the dataset, here and now, deals its samples out by itself.

    A forked worker still sees the calls that led to its start; for a spawned one, the process that
    starts it has to look. Where no such library is loaded it costs nothing, otherwise a
    microsecond or two.
    """
    if "accelerate" not in sys.modules and "transformers" not in sys.modules:
        return False
    for frame, module in _callers():
        if module in _MODULES and (module, type(frame.f_locals.get("self")).__name__) in _DEALERS:
            if World.detect().num_ranks > 1:
                _advise(module, type(frame.f_locals["self"]).__name__)
            return True
    return False


def loads_for_lightning() -> bool:
    """Whether Lightning's Trainer is loading a loader's state.

    Where an epoch was finished when the state was saved, it goes through what is left of that
    epoch, nothing, before it begins the next one.
    """
    return any(module in _LIGHTNING for _, module in _callers())


_LIGHTNING = (
    "lightning.pytorch.utilities.combined_loader",
    "pytorch_lightning.utilities.combined_loader",
)


def _callers() -> Iterator[tuple[FrameType, str]]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame, frame.f_globals.get("__name__", "")
        frame = frame.f_back


_MODULES = {module for module, _ in _DEALERS}


@cache
def _advise(module: str, name: str) -> None:
    log.warning(
        "%s.%s deals out the samples: %s. Each rank reads only its own part through a "
        "StreamingDataLoader, which Accelerate leaves as it is.",
        module,
        name,
        _DEALERS[module, name],
    )
