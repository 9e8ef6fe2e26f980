"""The writers of delimited text: CSV, TSV, and with any separator, XSV."""

from __future__ import annotations

from typing import Any

from streaming.format.destination import Out
from streaming.format.encodings.xsv import _encodings, is_xsv_encoding, xsv_encode
from streaming.format.errors import EncodeRangeError
from streaming.format.layout import header, offset_table
from streaming.format.writer_checks import check_columns, explain_columns, located
from streaming.format.writer_kinds import SplitWriter

__all__ = ["CSVWriter", "TSVWriter", "XSVWriter"]


class XSVWriter(SplitWriter):
    """Writes a data set as delimited text: a line of column names, then a line for each sample.

    Nothing is quoted or escaped, so that a text with the separator or the newline in it is refused.

    Args:
        columns: Column name to encoding: `"str"`, `"int"`, or `"float"`.
        separator: What stands between two columns.
        newline: What ends a line.
        out: A folder; a URL; or a pair of both, (local, remote).
        keep_local: Whether local files stay when they have been uploaded.
        compression: A compression, with a level if you like: `"zstd"`, `"zstd:7"`.
        hashes: Names of hashes to be kept for each file, in alphabetical order.
        size_limit: Most bytes of samples in a shard before compression (its first line and the
            offsets not counted), as a number or as `"64mb"`; None for one shard.
        **kwargs: `progress_bar`, `max_workers`, `retry`, `exist_ok`, `storage_options`: see
            `Writer`, which lists the errors as well.

    Example:
        >>> import pathlib, tempfile
        >>> columns = {"word": "str", "count": "int"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with XSVWriter(columns=columns, separator=" | ", out=folder) as writer:
        ...         writer.write({"word": "tea", "count": 2})
        ...     print(pathlib.Path(folder, "shard.00000.xsv").read_text(), end="")
        count | word
        2 | tea
    """

    format = "xsv"

    def __init__(
        self,
        *,
        columns: dict[str, str],
        separator: str,
        newline: str = "\n",
        out: Out,
        keep_local: bool = False,
        compression: str | None = None,
        hashes: list[str] | None = None,
        size_limit: int | str | None = 1 << 26,
        **kwargs: Any,
    ) -> None:
        self.columns = check_columns(columns, is_xsv_encoding, _encodings)
        self.column_names = sorted(self.columns)
        self.column_encodings = [self.columns[name] for name in self.column_names]
        self.separator = separator
        self.newline = newline
        self._check_marks()
        self._coders = [
            (name, _encodings[encoding]().encode)
            for name, encoding in zip(self.column_names, self.column_encodings, strict=True)
        ]
        self._first_line = (separator.join(self.column_names) + newline).encode()
        super().__init__(
            out=out,
            keep_local=keep_local,
            compression=compression,
            hashes=hashes,
            size_limit=size_limit,
            **kwargs,
        )

    def get_config(self) -> dict[str, Any]:
        """What the header of each shard, and its entry in the index, say of the data set."""
        return {
            **super().get_config(),
            "column_names": self.column_names,
            "column_encodings": self.column_encodings,
            "separator": self.separator,
            "newline": self.newline,
        }

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        """Turn a sample into its line.

        Args:
            sample: The values by column.

        Returns:
            The line in UTF-8, with its newline.

        Raises:
            FormatError: If a column is missing or one too many, or a value can't be encoded or
                holds the separator or the newline.
        """
        try:
            fields = [encode(sample[name]) for name, encode in self._coders]
            if len(sample) != len(fields):
                raise ValueError
            line = self.separator.join(fields)
            if line.split(self.separator) != fields or not self._ends_once(line):
                raise ValueError
            return (line + self.newline).encode()
        except Exception:
            return self._encode_with_care(sample)

    def encode_split_shard(self) -> tuple[bytes, bytes]:
        """Put the samples at hand together.

        Returns:
            The lines, that of the column names first; and number of samples, offsets and header.
        """
        table = offset_table(self.new_samples, len(self._first_line))
        data = b"".join([self._first_line, *self.new_samples])
        return data, table + header(self.get_config())

    @property
    def _unlisted_bytes(self) -> int:
        return len(self._first_line)

    def _ends_once(self, line: str) -> bool:
        """Whether a line's newline is where it ends, and nowhere before."""
        return (line + self.newline).index(self.newline) == len(line)

    def _check_marks(self) -> None:
        for what, mark in (("separator", self.separator), ("newline", self.newline)):
            if not isinstance(mark, str):
                raise TypeError(f"{what} is {mark!r}; it must be a string")
            if not mark:
                raise ValueError(f"{what} is empty")
        if self.separator in self.newline or self.newline in self.separator:
            raise ValueError(
                f"separator {self.separator!r} and newline {self.newline!r} can't be told apart"
            )
        names = self.separator.join(self.column_names)
        if names.split(self.separator) != self.column_names or not self._ends_once(names):
            raise ValueError(
                f"the column names {self.column_names} can't be written with separator "
                f"{self.separator!r} and newline {self.newline!r}: one of them holds it"
            )

    def _encode_with_care(self, sample: Any) -> bytes:
        number = self._next_sample
        explain_columns(sample, self.column_names, number)
        fields = []
        for name, encoding in zip(self.column_names, self.column_encodings, strict=True):
            try:
                field = xsv_encode(encoding, sample[name])
                self._check_field(field)
            except Exception as exc:
                raise located(exc, name, number) from exc
            fields.append(field)
        line = self.separator.join(fields)
        if line.split(self.separator) != fields or not self._ends_once(line):
            raise EncodeRangeError(
                f"sample {number}: a column ends in a part of the separator {self.separator!r} or "
                f"the newline {self.newline!r}, so that the line could not be read: {line!r}"
            )
        return (line + self.newline).encode()

    def _check_field(self, field: str) -> None:
        for what, mark in (("separator", self.separator), ("newline", self.newline)):
            if mark in field:
                raise EncodeRangeError(
                    f"the text holds the {what} {mark!r}, and {self.format.upper()} has no quotes: "
                    f"{field[:60]!r}"
                )
        try:
            field.encode()
        except UnicodeEncodeError as exc:
            raise EncodeRangeError(f"the text can't be written as UTF-8: {exc}") from None


class _FixedWriter(XSVWriter):
    """A format whose separator is fixed, and not told."""

    separator = ""

    def __init__(
        self,
        *,
        columns: dict[str, str],
        newline: str = "\n",
        out: Out,
        keep_local: bool = False,
        compression: str | None = None,
        hashes: list[str] | None = None,
        size_limit: int | str | None = 1 << 26,
        **kwargs: Any,
    ) -> None:
        # Else it would be taken for XSVWriter's own argument.
        if "separator" in kwargs:
            raise TypeError(f"{type(self).__name__} has no argument 'separator'; use XSVWriter")
        super().__init__(
            columns=columns,
            separator=type(self).separator,
            newline=newline,
            out=out,
            keep_local=keep_local,
            compression=compression,
            hashes=hashes,
            size_limit=size_limit,
            **kwargs,
        )

    def get_config(self) -> dict[str, Any]:
        """What the header of each shard, and its entry in the index, say of the data set."""
        config = super().get_config()
        del config["separator"]
        return config


class CSVWriter(_FixedWriter):
    """Writes a data set as comma-separated text.

    The arguments are those of `XSVWriter`, without a separator. Nothing is quoted: a text with a
    comma in it is refused.
    """

    format = "csv"
    separator = ","


class TSVWriter(_FixedWriter):
    """Writes a data set as tab-separated text.

    The arguments are those of `XSVWriter`, without a separator. Nothing is quoted: a text with a
    tab in it is refused.
    """

    format = "tsv"
    separator = "\t"
