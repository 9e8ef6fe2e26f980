"""The shuffle `py1e`, under its old import path."""

from streaming.order.shuffle import (
    get_shuffle_py1e,
)

__all__ = [
    "get_shuffle_py1e",
]
