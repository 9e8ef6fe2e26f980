"""The videos that WebVid's lists name, fetched where they are converted."""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from streaming.convert.items import Items
from streaming.convert.source import Sample, Unreadable
from streaming.storage import RetryPolicy, StoreError, store_for

__all__ = ["read_rows", "seconds", "videos"]

logger = logging.getLogger(__name__)

COLUMNS = ("videoid", "contentUrl", "duration", "page_dir", "name")
"""What a list has to have; it may have `page_idx` as well."""
_TIMEOUT_S = 60.0
_VIDEOS_A_PART = 1000
_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?")


def seconds(duration: str) -> int:
    """A duration in seconds.

    Args:
        duration: As ISO 8601 writes it.

    Raises:
        ValueError: If it is something else.

    Example:
        >>> seconds("PT00H01M10S")
        70
    """
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise ValueError(f"{duration!r} is no duration such as 'PT00H01M10S'")
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + rest


def read_rows(path: str, limit: int = -1) -> list[dict[str, str]]:
    """The rows of a list.

    Args:
        path: A CSV file.
        limit: How many to read; all if it is negative.

    Raises:
        ValueError: If it lacks a column.
    """
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path} has no column {', '.join(missing)}: it is no list of WebVid")
        rows: list[dict[str, str]] = []
        for row in reader:
            if 0 <= limit <= len(rows):
                break
            rows.append(row)
    return rows


def videos(name: str, rows: Iterable[dict[str, str]]) -> Items:
    """A source of the videos of a list.

    Args:
        name: What it is, for messages.
        rows: The list's rows. All its columns become the sample's, and `content`, the video.

    Raises:
        ValueError: If there are none.
    """
    items = [tuple(row.items()) for row in rows]
    if not items:
        raise ValueError(f"there are no videos in {name}")
    columns = {column: "int" if column == "duration" else "str" for column, _ in items[0]}
    return Items(name, {**columns, "content": "bytes"}, items, load, part_bytes=_VIDEOS_A_PART)


def load(item: tuple[tuple[str, str], ...]) -> Iterator[Sample | Unreadable]:
    """The sample of a row, with the video's bytes; unreadable if it can't be fetched."""
    row: dict[str, Any] = dict(item)
    try:
        row["duration"] = seconds(row["duration"])
        row["content"] = _fetch(row["contentUrl"])
    except (StoreError, ValueError) as exc:
        logger.warning("Leaving out video %s: %s", row["videoid"], exc)
        yield Unreadable(f"video {row['videoid']}: {exc}")
        return
    yield row


def _fetch(url: str) -> bytes:
    root, _, name = urlsplit(url).geturl().rpartition("/")
    store = store_for(root, timeout_s=_TIMEOUT_S)

    def get() -> bytes:
        file = BytesIO()
        store.get(name, file)
        return file.getvalue()

    return RetryPolicy().call(get, f"fetching {url}")
