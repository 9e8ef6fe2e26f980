"""Shards on disk: the index, readers, writers, encodings, compression, hashes."""

from typing import TYPE_CHECKING

from streaming._lazy import lazy_names

if TYPE_CHECKING:
    from streaming.format.errors import (
        CorruptShardError,
        EncodeError,
        EncodeRangeError,
        EncodeTypeError,
        FormatError,
        MissingExtraError,
    )
    from streaming.format.info import FileInfo

__all__ = [
    "CorruptShardError",
    "EncodeError",
    "EncodeRangeError",
    "EncodeTypeError",
    "FileInfo",
    "FormatError",
    "MissingExtraError",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "streaming.format.errors": [
            "CorruptShardError",
            "EncodeError",
            "EncodeRangeError",
            "EncodeTypeError",
            "FormatError",
            "MissingExtraError",
        ],
        "streaming.format.info": ["FileInfo"],
    },
)
