"""Partition, under its old import path."""

from streaming.order.partition import (
    get_partitions,
    get_partitions_orig,
    get_partitions_relaxed,
)

__all__ = [
    "get_partitions",
    "get_partitions_orig",
    "get_partitions_relaxed",
]
