"""Sampling within a stream, under its old import path."""

from streaming.order.sampling import (
    get_sampling,
)

__all__ = [
    "get_sampling",
]
