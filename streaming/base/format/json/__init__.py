"""The JSONL format, under its old import paths."""

from streaming.format.read_json import JSONReader
from streaming.format.writer_json import JSONWriter

__all__ = ["JSONReader", "JSONWriter"]
