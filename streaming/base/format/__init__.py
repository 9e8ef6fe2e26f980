"""Readers, writers and the index, under their old import paths."""

from streaming.format.index import get_index_basename
from streaming.format.info import FileInfo
from streaming.format.read_json import JSONReader
from streaming.format.read_mds import MDSReader
from streaming.format.read_xsv import CSVReader, TSVReader, XSVReader
from streaming.format.reader import Reader
from streaming.format.readers import reader_from_json
from streaming.format.writer import Writer
from streaming.format.writer_json import JSONWriter
from streaming.format.writer_mds import MDSWriter
from streaming.format.writer_xsv import CSVWriter, TSVWriter, XSVWriter

__all__ = [
    "CSVReader",
    "CSVWriter",
    "FileInfo",
    "JSONReader",
    "JSONWriter",
    "MDSReader",
    "MDSWriter",
    "Reader",
    "TSVReader",
    "TSVWriter",
    "Writer",
    "XSVReader",
    "XSVWriter",
    "get_index_basename",
    "reader_from_json",
]
