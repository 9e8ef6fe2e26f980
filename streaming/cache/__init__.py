"""The shards on this node: which are here, who fetches, who is evicted, what is fetched ahead.

The directory of shards is its own database (see :mod:`streaming.cache.directory`,
:mod:`streaming.cache.claims` and :mod:`streaming.cache.space`): nothing else is kept that could
get stale.
"""

from streaming.cache.cache import MissingShardError, ShardCache
from streaming.cache.connections import MAX_CONNECTIONS
from streaming.cache.directory import Directory
from streaming.cache.prefetch import Needs, Prefetcher
from streaming.cache.space import CacheFullError

__all__ = [
    "MAX_CONNECTIONS",
    "CacheFullError",
    "Directory",
    "MissingShardError",
    "Needs",
    "Prefetcher",
    "ShardCache",
]
