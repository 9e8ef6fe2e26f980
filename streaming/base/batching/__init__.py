"""Batching, under its old import path."""

from streaming.order.work import (
    generate_work,
    generate_work_device_per_stream_batching,
    generate_work_per_stream_batching,
    generate_work_random_batching,
    generate_work_stratified_batching,
)

__all__ = [
    "generate_work",
    "generate_work_device_per_stream_batching",
    "generate_work_per_stream_batching",
    "generate_work_random_batching",
    "generate_work_stratified_batching",
]
