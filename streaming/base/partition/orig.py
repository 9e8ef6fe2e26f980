"""The partition `orig`, under its old import path."""

from streaming.order.partition import (
    get_partitions_orig,
)

__all__ = [
    "get_partitions_orig",
]
