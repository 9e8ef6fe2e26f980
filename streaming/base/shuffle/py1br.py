"""The shuffle `py1br`, under its old import path."""

from streaming.order.shuffle import (
    get_shuffle_py1br,
)

__all__ = [
    "get_shuffle_py1br",
]
