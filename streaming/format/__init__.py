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
    from streaming.format.merge import merge_index
    from streaming.format.writer import JointWriter, SplitWriter, WriteError, Writer
    from streaming.format.writer_checks import ColumnError
    from streaming.format.writer_json import JSONWriter
    from streaming.format.writer_mds import MDSWriter
    from streaming.format.writer_xsv import CSVWriter, TSVWriter, XSVWriter

__all__ = [
    "CSVWriter",
    "ColumnError",
    "CorruptShardError",
    "EncodeError",
    "EncodeRangeError",
    "EncodeTypeError",
    "FileInfo",
    "FormatError",
    "JSONWriter",
    "JointWriter",
    "MDSWriter",
    "MissingExtraError",
    "SplitWriter",
    "TSVWriter",
    "WriteError",
    "Writer",
    "XSVWriter",
    "merge_index",
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
        "streaming.format.merge": ["merge_index"],
        "streaming.format.writer": ["JointWriter", "SplitWriter", "WriteError", "Writer"],
        "streaming.format.writer_checks": ["ColumnError"],
        "streaming.format.writer_json": ["JSONWriter"],
        "streaming.format.writer_mds": ["MDSWriter"],
        "streaming.format.writer_xsv": ["CSVWriter", "TSVWriter", "XSVWriter"],
    },
)
