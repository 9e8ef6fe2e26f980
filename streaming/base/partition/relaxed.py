"""The partition `relaxed`, under its old import path."""

from streaming.order.partition import (
    get_partitions_relaxed,
)

__all__ = [
    "get_partitions_relaxed",
]
