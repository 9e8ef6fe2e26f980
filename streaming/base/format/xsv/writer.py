"""The CSV, TSV and XSV writers, under their old import path."""

from streaming.format.writer_xsv import CSVWriter, TSVWriter, XSVWriter

__all__ = ["CSVWriter", "TSVWriter", "XSVWriter"]
