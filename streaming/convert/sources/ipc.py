"""Arrow and Feather files: parts are record batches of files, or streams as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streaming.convert.source import Part
from streaming.convert.sources.arrow_files import ArrowFiles
from streaming.convert.sources.files import Piece
from streaming.convert.sources.lookup import FileRef

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowSource"]

_FILE_MAGIC = b"ARROW1"


class ArrowSource(ArrowFiles):
    """Rows of Arrow files (Feather among them) and streams that have the same columns."""

    kind = "Arrow"
    unit = "record batches"
    module = "pyarrow.ipc"

    def _raw(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for number, first, stop in part.spec:
            with self._batches(self.files[number], first, stop) as found:
                yield from found

    def _footer(self, number: int, ref: FileRef) -> tuple[pa.Schema, list[Piece]]:
        import pyarrow as pa

        with self.open(ref) as stream:
            if stream.read(len(_FILE_MAGIC)) != _FILE_MAGIC:
                stream.seek(0)
                with pa.ipc.open_stream(stream) as reader:
                    return reader.schema, [Piece(number, 0, 1, ref.size)]
            stream.seek(0)
            with pa.ipc.open_file(stream) as reader:
                count = reader.num_record_batches
                pieces = [Piece(number, at, at + 1, ref.size // count) for at in range(count)]
                return reader.schema, pieces

    @contextmanager
    def _batches(self, ref: FileRef, first: int, stop: int) -> Iterator[Iterator[pa.RecordBatch]]:
        import pyarrow as pa

        with self.open(ref) as stream:
            whole = stream.read(len(_FILE_MAGIC)) == _FILE_MAGIC
            stream.seek(0)
            if whole:
                with pa.ipc.open_file(stream) as reader:
                    yield (reader.get_batch(at) for at in range(first, stop))
            else:
                with pa.ipc.open_stream(stream) as reader:
                    yield iter(reader)
