"""Constants that code written against mosaicml-streaming imports.

`DEFAULT_TIMEOUT` and `TICK` are times in seconds. The others name shared memory and lock files
that mosaicml-streaming makes. Nothing here makes or reads anything of those names; they are kept so
that scripts which import them, to clean up after that library, run unchanged.
"""

__all__ = [
    "BARRIER",
    "BARRIER_FILELOCK",
    "CACHE_FILELOCK",
    "CACHE_USAGE",
    "DEFAULT_TIMEOUT",
    "EPOCH_DATA",
    "EPOCH_SHAPE",
    "LOCALS",
    "NEXT_EPOCH",
    "RESUME",
    "SHARD_ACCESS_TIMES",
    "SHARD_STATES",
    "SHM_TO_CLEAN",
    "TICK",
]

DEFAULT_TIMEOUT = 60.0
TICK = 0.007

LOCALS = "locals"
BARRIER = "barrier"
NEXT_EPOCH = "next_epoch"
CACHE_USAGE = "cache_usage"
SHARD_STATES = "shard_states"
SHARD_ACCESS_TIMES = "shard_access_times"
RESUME = "resume"
EPOCH_SHAPE = "epoch_shape"
EPOCH_DATA = "epoch_data"
SHM_TO_CLEAN = [
    *(LOCALS, BARRIER, NEXT_EPOCH, CACHE_USAGE, SHARD_STATES),
    *(SHARD_ACCESS_TIMES, RESUME, EPOCH_SHAPE, EPOCH_DATA),
]

BARRIER_FILELOCK = "barrier_filelock"
CACHE_FILELOCK = "cache_filelock"
