"""The writer of JSON lines."""

from __future__ import annotations

import json
from typing import Any

from streaming.format.destination import Out
from streaming.format.encodings.json import _encodings, is_json_encoded, is_json_encoding
from streaming.format.layout import header, offset_table
from streaming.format.writer_checks import check_columns, explain_columns, located
from streaming.format.writer_kinds import SplitWriter

__all__ = ["JSONWriter"]


class JSONWriter(SplitWriter):
    """Writes a data set as JSON lines: one object for each sample.

    Args:
        columns: Column name to encoding: `"str"`, `"int"`, or `"float"` (finite: JSON has neither
            NaN nor infinities).
        newline: What ends a line: white space that JSON knows.
        out: A folder; a URL; or a pair of both, (local, remote).
        keep_local: Whether local files stay when they have been uploaded.
        compression: A compression, with a level if you like: `"zstd"`, `"zstd:7"`.
        hashes: Names of hashes to be kept for each file, in alphabetical order.
        size_limit: Most bytes of samples in a shard before compression (the offsets not counted),
            as a number or as `"64mb"`; None for one shard.
        **kwargs: `progress_bar`, `max_workers`, `retry`, `exist_ok`, `storage_options`: see
            `Writer`, which lists the errors as well.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with JSONWriter(columns={"word": "str"}, out=folder) as writer:
        ...         writer.write({"word": "tea"})
        ...     print(pathlib.Path(folder, "shard.00000.json").read_text(), end="")
        {"word": "tea"}
    """

    format = "json"

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
        self.columns = check_columns(columns, is_json_encoding, _encodings)
        if not isinstance(newline, str):
            raise TypeError(f"newline is {newline!r}; it must be a string")
        if not newline or newline.strip(" \t\r\n"):
            raise ValueError(f"newline is {newline!r}; it has to be white space, as in '\\n'")
        self.newline = newline
        self._checks = [
            (name, _encodings[self.columns[name]]().is_encoded) for name in sorted(self.columns)
        ]
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
        return {**super().get_config(), "columns": self.columns, "newline": self.newline}

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        """Turn a sample into its line.

        Args:
            sample: The values by column.

        Returns:
            A JSON object with the columns by name, in ASCII, with its newline.

        Raises:
            FormatError: If a column is missing or one too many, or a value is not its column's.
        """
        try:
            whole = {}
            for name, check in self._checks:
                whole[name] = value = sample[name]
                check(value)
            if len(sample) != len(whole):
                raise ValueError
            return (json.dumps(whole, allow_nan=False) + self.newline).encode()
        except Exception as exc:
            self._explain(sample)
            raise exc

    def encode_split_shard(self) -> tuple[bytes, bytes]:
        """Put the samples at hand together.

        Returns:
            The lines; and number of samples, offsets and header.
        """
        meta = offset_table(self.new_samples, 0) + header(self.get_config())
        return b"".join(self.new_samples), meta

    def _explain(self, sample: Any) -> None:
        """Raise the error that says what is wrong with a sample, and where."""
        number = self._next_sample
        explain_columns(sample, self.columns, number)
        for name, encoding in self.columns.items():
            try:
                is_json_encoded(encoding, sample[name])
            except Exception as exc:
                raise located(exc, name, number) from exc
