"""The CSV, TSV and XSV readers, under their old import path."""

from streaming.format.read_xsv import CSVReader, TSVReader, XSVReader

__all__ = ["CSVReader", "TSVReader", "XSVReader"]
