"""Columns that hold files, images above all, as Hugging Face's libraries write them.

Such a column is a struct of `bytes`, the file, and `path`, its name (or, without bytes, where it
is).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from streaming.convert.sources.images import image_encoding
from streaming.convert.sources.values import batch_values

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["embedded_files"]

_LOOK_AT = 100


def embedded_files(
    schema: pa.Schema,
    known: Collection[str],
    first: Callable[[list[str]], pa.Table | pa.RecordBatch | None],
) -> dict[str, str]:
    """The encodings of columns that hold files, by the first files.

    Args:
        schema: The table's.
        known: Columns that need not be looked at.
        first: Gives the first rows of some columns; None if there are none.

    Returns:
        "jpeg" or "png" if all of a column are that, else "bytes".
    """
    names = [
        name
        for name, kind in zip(schema.names, schema.types, strict=True)
        if name not in known and _is_file(kind)
    ]
    rows = first(names) if names else None
    if rows is None:
        return dict.fromkeys(names, "bytes")
    values = batch_values(rows.slice(0, _LOOK_AT), dict.fromkeys(names, "bytes"))
    return {name: image_encoding({_ending(data or b"") for data in values[name]}) for name in names}


def _is_file(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if not pa.types.is_struct(kind) or kind.num_fields != 2:
        return False
    fields = {kind.field(at).name: kind.field(at).type for at in range(2)}
    return fields.keys() == {"bytes", "path"} and "binary" in str(fields["bytes"])


def _ending(data: bytes) -> str:
    if data.startswith(b"\xff\xd8\xff"):
        return ".jpg"
    return ".png" if data.startswith(b"\x89PNG\r\n\x1a\n") else ""
