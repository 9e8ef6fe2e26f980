"""Uploading one file in parts, side by side."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from streaming.storage.errors import StoreError
from streaming.storage.retry import RetryPolicy

__all__ = ["PART_THREADS", "send_parts"]

T = TypeVar("T")

PART_THREADS = 4
"""Parts of a file under way at once; several files are uploaded side by side besides."""


def send_parts(
    path: Path,
    size: int,
    part_bytes: int,
    send: Callable[[int, bytes], T],
    *,
    policy: RetryPolicy,
    what: str,
) -> list[T]:
    """Upload a file's parts, each retried on its own.

    Args:
        path: The file.
        size: Its size in bytes.
        part_bytes: Size of each part but the last.
        send: Uploads a part: called with its number, from 1, and its bytes.
        policy: When to send a part again.
        what: What is uploaded, for messages: "oci://bucket/shard.00003.mds".

    Returns:
        What `send` returned, in the parts' order.

    Raises:
        StoreError: Of the first part that could not be sent. It is not retryable: that has been
            done, and the whole upload need not begin again.
    """

    def one(number: int, start: int) -> T:
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read(min(part_bytes, size - start))
        try:
            return policy.call(lambda: send(number, data), f"uploading part {number} of {what}")
        except StoreError as error:
            error.retryable = False
            raise

    with ThreadPoolExecutor(PART_THREADS, "streaming-upload") as pool:
        jobs = [
            pool.submit(one, number, start)
            for number, start in enumerate(range(0, size, part_bytes), 1)
        ]
        try:
            return [job.result() for job in jobs]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
