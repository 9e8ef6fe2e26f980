"""Uploading files: their checksums, their parts side by side, a look at what has arrived."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from streaming.storage.base import CHUNK_BYTES, Store
from streaming.storage.errors import AccessDenied, StoreError
from streaming.storage.retry import RetryPolicy

__all__ = ["PART_THREADS", "content_md5", "send_parts", "verify_size"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

PART_THREADS = 4
"""Parts of a file under way at once; several files are uploaded side by side besides."""


def content_md5(source: bytes | Path) -> str:
    """The value of a `Content-MD5` header, by which a store sees that all has arrived as it was.

    Args:
        source: The bytes, or the file, to be sent.

    Returns:
        The digest, base64.

    Example:
        >>> content_md5(b"hello")
        'XUFAKrxLKna5cZ2REBfFkg=='
    """
    digest = hashlib.md5(usedforsecurity=False)
    if isinstance(source, bytes):
        digest.update(source)
    else:
        with open(source, "rb") as file:
            while piece := file.read(CHUNK_BYTES):
                digest.update(piece)
    return base64.b64encode(digest.digest()).decode()


def verify_size(store: Store, key: str, size: int) -> None:
    """See that a store has all bytes of an upload, unless we may write there and not read.

    Args:
        store: The store.
        key: The uploaded object's key.
        size: How many bytes it should have.

    Raises:
        StoreError: If it has another number of bytes; worth another upload.
    """
    try:
        stored = store.size(key)
    except AccessDenied:
        logger.debug("%s: may be written but not read: size not verified", store.url_of(key))
        return
    if stored != size:
        url = store.url_of(key)
        raise StoreError(
            f"{url}: {size} bytes were uploaded, but the store has {stored}",
            url=url,
            retryable=True,
        )


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
