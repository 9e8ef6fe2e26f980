"""The shuffle `naive`, under its old import path."""

from streaming.order.shuffle import (
    get_shuffle_naive,
)

__all__ = [
    "get_shuffle_naive",
]
