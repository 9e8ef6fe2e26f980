"""Shards on disk: the index, readers, writers, encodings, compression, hashes."""

from typing import TYPE_CHECKING

from streaming._lazy import lazy_names

if TYPE_CHECKING:
    from streaming.format.encodings.mds import register_encoding
    from streaming.format.errors import (
        CorruptShardError,
        EncodeError,
        EncodeRangeError,
        EncodeTypeError,
        FormatError,
        MissingExtraError,
    )
    from streaming.format.index import Index, get_index_basename
    from streaming.format.info import FileInfo
    from streaming.format.merge import merge_index
    from streaming.format.read_json import JSONReader
    from streaming.format.read_mds import MDSReader
    from streaming.format.read_xsv import CSVReader, TSVReader, XSVReader
    from streaming.format.reader import Reader
    from streaming.format.readers import reader_from_json
    from streaming.format.shards import ShardList
    from streaming.format.writer import WriteError, Writer
    from streaming.format.writer_checks import ColumnError
    from streaming.format.writer_json import JSONWriter
    from streaming.format.writer_kinds import JointWriter, SplitWriter
    from streaming.format.writer_mds import MDSWriter
    from streaming.format.writer_xsv import CSVWriter, TSVWriter, XSVWriter

__all__ = [
    "CSVReader",
    "CSVWriter",
    "ColumnError",
    "CorruptShardError",
    "EncodeError",
    "EncodeRangeError",
    "EncodeTypeError",
    "FileInfo",
    "FormatError",
    "Index",
    "JSONReader",
    "JSONWriter",
    "JointWriter",
    "MDSReader",
    "MDSWriter",
    "MissingExtraError",
    "Reader",
    "ShardList",
    "SplitWriter",
    "TSVReader",
    "TSVWriter",
    "WriteError",
    "Writer",
    "XSVReader",
    "XSVWriter",
    "get_index_basename",
    "merge_index",
    "reader_from_json",
    "register_encoding",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "streaming.format.encodings.mds": ["register_encoding"],
        "streaming.format.errors": [
            "CorruptShardError",
            "EncodeError",
            "EncodeRangeError",
            "EncodeTypeError",
            "FormatError",
            "MissingExtraError",
        ],
        "streaming.format.index": ["Index", "get_index_basename"],
        "streaming.format.info": ["FileInfo"],
        "streaming.format.merge": ["merge_index"],
        "streaming.format.read_json": ["JSONReader"],
        "streaming.format.read_mds": ["MDSReader"],
        "streaming.format.read_xsv": ["CSVReader", "TSVReader", "XSVReader"],
        "streaming.format.reader": ["Reader"],
        "streaming.format.readers": ["reader_from_json"],
        "streaming.format.shards": ["ShardList"],
        "streaming.format.writer": ["WriteError", "Writer"],
        "streaming.format.writer_checks": ["ColumnError"],
        "streaming.format.writer_json": ["JSONWriter"],
        "streaming.format.writer_kinds": ["JointWriter", "SplitWriter"],
        "streaming.format.writer_mds": ["MDSWriter"],
        "streaming.format.writer_xsv": ["CSVWriter", "TSVWriter", "XSVWriter"],
    },
)
