"""Batching `device_per_stream`, under its old import path."""

from streaming.order.work import (
    generate_work_device_per_stream_batching,
)

__all__ = [
    "generate_work_device_per_stream_batching",
]
