"""The JSONL writer, under its old import path."""

from streaming.format.writer_json import JSONWriter

__all__ = ["JSONWriter"]
