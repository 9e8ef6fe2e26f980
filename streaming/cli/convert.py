"""`shardstream convert` and `shardstream append`: data of any kind into shards."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from streaming.cli.place import Access, root_of
from streaming.convert.commit import Report
from streaming.convert.run import convert as run
from streaming.convert.transforms import Transform
from streaming.storage import is_local

__all__ = ["convert", "load_transform", "parse_columns"]


def convert(
    source: Sequence[str],
    out: str,
    access: Access | None = None,
    out_access: Access | None = None,
    *,
    mode: str = "create",
    columns: Sequence[str] = (),
    transform: str | None = None,
    **arguments: Any,
) -> Report:
    r"""Convert files into shards.

    Args:
        source: The files: a path, URL, folder or pattern; or several.
        out: The data set's place.
        access: How the source's store is reached.
        out_access: How the other one is reached.
        mode: "create", "append" or "overwrite".
        columns: Each `name=encoding`; `name=none` leaves a column out.
        transform: `module:function`, called with each row.
        **arguments: Of `streaming.convert.convert`.

    Returns:
        What was done.

    Raises:
        ConvertError: If something can't be converted.
        ImportError: If there is no such transform.
        ValueError: If an argument makes no sense. The others are those of
            `streaming.convert.convert`.

    Example:
        >>> import pathlib, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> _ = pathlib.Path(folder, "x.csv").write_text("id,name\n1,a\n2,b\n")
        >>> convert([f"{folder}/x.csv"], f"{folder}/shards", columns=["id=int32"]).samples
        2
    """
    access, out = access or Access(), root_of(out)
    out_access = out_access or Access()
    return run(
        source[0] if len(source) == 1 else list(source),
        out,
        mode=mode,
        columns=parse_columns(columns),
        transform=None if transform is None else load_transform(transform),
        progress=sys.stderr is not None and sys.stderr.isatty(),
        storage_options=dict(access.options),
        out_options={} if is_local(out) else dict(out_access.options),
        **arguments,
    )


def parse_columns(pairs: Sequence[str]) -> dict[str, str | None]:
    """Read encodings as they are written on a command line.

    Example:
        >>> parse_columns(["id=int32", "text=none", "points=ndarray:float32:16,2"])
        {'id': 'int32', 'text': None, 'points': 'ndarray:float32:16,2'}
    """
    columns: dict[str, str | None] = {}
    for pair in pairs:
        name, _, encoding = pair.partition("=")
        if not name or not encoding:
            raise ValueError(f"{pair!r} is not a column: write name=encoding, or name=none")
        columns[name] = None if encoding == "none" else encoding
    return columns


def load_transform(name: str) -> Transform:
    """Import a transform; modules of the working folder are found as well.

    Example:
        >>> load_transform("math:sqrt")
        <built-in function sqrt>
    """
    module, colon, function = name.partition(":")
    if not module or not colon or not function:
        raise ValueError(f"{name!r} is not a transform: write module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except AttributeError as exc:
        raise ImportError(f"there is no transform {name}: {exc}") from exc
    except ModuleNotFoundError as exc:
        raise ImportError(f"there is no transform {name}: {exc}") from exc
    # A class is made once; what it remembers is copied for each part.
    made: Transform = found() if isinstance(found, type) else found
    return made
