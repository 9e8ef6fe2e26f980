"""The JSONL reader, under its old import path."""

from streaming.format.read_json import JSONReader

__all__ = ["JSONReader"]
