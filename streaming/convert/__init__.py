"""Data of any kind into shards: in parallel, restartable, published in one step.

`convert(source, out)` does it; `streaming.convert.open` says what can be a source.
"""

from typing import TYPE_CHECKING

from streaming._lazy import lazy_names

if TYPE_CHECKING:
    from streaming.convert.commit import Report, commit, prepare
    from streaming.convert.engines import Engine, get_engine
    from streaming.convert.errors import ConvertError, SchemaError
    from streaming.convert.job import Job, PartReport, Skipped, write_part, write_samples
    from streaming.convert.open import open_source
    from streaming.convert.run import convert
    from streaming.convert.source import Part, Source, Unreadable

__all__ = [
    "ConvertError",
    "Engine",
    "Job",
    "Part",
    "PartReport",
    "Report",
    "SchemaError",
    "Skipped",
    "Source",
    "Unreadable",
    "commit",
    "convert",
    "get_engine",
    "open_source",
    "prepare",
    "write_part",
    "write_samples",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "streaming.convert.commit": ["Report", "commit", "prepare"],
        "streaming.convert.engines": ["Engine", "get_engine"],
        "streaming.convert.errors": ["ConvertError", "SchemaError"],
        "streaming.convert.job": ["Job", "PartReport", "Skipped", "write_part", "write_samples"],
        "streaming.convert.open": ["open_source"],
        "streaming.convert.run": ["convert"],
        "streaming.convert.source": ["Part", "Source", "Unreadable"],
    },
)
