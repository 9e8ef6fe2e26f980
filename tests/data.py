"""Small data sets that tests write for themselves."""

from pathlib import Path
from typing import Any

from streaming import MDSWriter


def write_numbers(
    out: str | Path, count: int, per_shard: int = 10, start: int = 0, **kwargs: Any
) -> Path:
    """Write samples ``{"id": number, "text": …}`` into shards of a known number of samples.

    Returns:
        Where they are.
    """
    columns = {"id": "int", "text": "str"}
    # Each sample takes 4 bytes of offset, 4 of size, 8 of number, 100 of text.
    with MDSWriter(out=str(out), columns=columns, size_limit=_size(per_shard), **kwargs) as writer:
        for number in range(start, start + count):
            writer.write({"id": number, "text": text_of(number)})
    return Path(out)


def text_of(number: int) -> str:
    """The text of a sample: 100 characters that say which it is."""
    return f"sample {number} ".ljust(100, ".")


def _size(per_shard: int) -> int:
    header = (
        4 + 4 + 250
    )  # samples, first offset, and less than the length of the configuration's JSON
    return header + per_shard * 116
