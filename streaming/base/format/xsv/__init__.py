"""The CSV, TSV and XSV formats, under their old import paths."""

from streaming.format.read_xsv import CSVReader, TSVReader, XSVReader
from streaming.format.writer_xsv import CSVWriter, TSVWriter, XSVWriter

__all__ = ["CSVReader", "CSVWriter", "TSVReader", "TSVWriter", "XSVReader", "XSVWriter"]
