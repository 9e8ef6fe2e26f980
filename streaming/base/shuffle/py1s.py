"""The shuffle `py1s`, under its old import path."""

from streaming.order.shuffle import (
    get_shuffle_py1s,
)
from streaming.order.shuffle.spans import (
    divide_spans,
)

__all__ = [
    "divide_spans",
    "get_shuffle_py1s",
]
