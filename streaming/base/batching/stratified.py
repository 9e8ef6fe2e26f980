"""Batching `stratified`, under its old import path."""

from streaming.order.work import (
    generate_work_stratified_batching,
)

__all__ = [
    "generate_work_stratified_batching",
]
