"""Whether a training library deals a dataset's samples out to the ranks by itself.

Accelerate's ``prepare``, and with it the Trainer of transformers, puts iterable datasets behind
loaders of its own, in which either process 0 reads everything and sends every process its part, or
every process reads everything and keeps its part. A dataset that dealt itself out as well would
lose most samples without a sign of it. Nothing tells a dataset that it is read so, except who reads
it.
"""

import logging
import sys
from functools import cache
from types import FrameType

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
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if module in _MODULES and (module, type(frame.f_locals.get("self")).__name__) in _DEALERS:
            _advise(module, type(frame.f_locals["self"]).__name__)
            return True
        frame = frame.f_back
    return False


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
