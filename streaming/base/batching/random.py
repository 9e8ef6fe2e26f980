"""Batching `random`, under its old import path."""

from streaming.order.work import (
    generate_work_random_batching,
)

__all__ = [
    "generate_work_random_batching",
]
