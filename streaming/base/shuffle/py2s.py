"""The shuffle `py2s`, under its old import path."""

from streaming.order.shuffle import (
    get_shuffle_py2s,
)

__all__ = [
    "get_shuffle_py2s",
]
