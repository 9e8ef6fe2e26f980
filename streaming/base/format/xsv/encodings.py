"""The encodings of CSV, TSV and XSV columns, under their old import path."""

from streaming.format.encodings.xsv import (
    Encoding,
    Float,
    Int,
    Str,
    is_xsv_encoding,
    xsv_decode,
    xsv_encode,
)

__all__ = ["Encoding", "Float", "Int", "Str", "is_xsv_encoding", "xsv_decode", "xsv_encode"]
