"""Shuffles, under its old import path."""

from streaming.order.shuffle import (
    get_shuffle,
    get_shuffle_naive,
    get_shuffle_py1br,
    get_shuffle_py1e,
    get_shuffle_py1s,
    get_shuffle_py2s,
)

__all__ = [
    "get_shuffle",
    "get_shuffle_naive",
    "get_shuffle_py1br",
    "get_shuffle_py1e",
    "get_shuffle_py1s",
    "get_shuffle_py2s",
]
