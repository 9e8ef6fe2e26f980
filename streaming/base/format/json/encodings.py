"""The encodings of JSONL columns, under their old import path."""

from streaming.format.encodings.json import (
    Encoding,
    Float,
    Int,
    Str,
    is_json_encoded,
    is_json_encoding,
)

__all__ = ["Encoding", "Float", "Int", "Str", "is_json_encoded", "is_json_encoding"]
