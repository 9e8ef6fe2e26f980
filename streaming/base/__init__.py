"""The import paths that code written against mosaicml-streaming uses.

Nothing here but names: what they stand for lives in the rooms of the package itself.
"""

from typing import TYPE_CHECKING

from streaming._lazy import lazy_names

if TYPE_CHECKING:
    from streaming.dataloader import StreamingDataLoader
    from streaming.dataset import StreamingDataset
    from streaming.format import CSVWriter, JSONWriter, MDSWriter, TSVWriter, XSVWriter
    from streaming.local import LocalDataset
    from streaming.stream import Stream

__all__ = [
    "CSVWriter",
    "JSONWriter",
    "LocalDataset",
    "MDSWriter",
    "Stream",
    "StreamingDataLoader",
    "StreamingDataset",
    "TSVWriter",
    "XSVWriter",
]

if not TYPE_CHECKING:  # or a type checker would take any name for granted
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "streaming.dataloader": ["StreamingDataLoader"],
            "streaming.dataset": ["StreamingDataset"],
            "streaming.format": ["CSVWriter", "JSONWriter", "MDSWriter", "TSVWriter", "XSVWriter"],
            "streaming.local": ["LocalDataset"],
            "streaming.stream": ["Stream"],
        },
        submodules=[
            "array",
            "batching",
            "compression",
            "constant",
            "converters",
            "dataloader",
            "dataset",
            "distributed",
            "format",
            "hashing",
            "local",
            "partition",
            "registry_utils",
            "sampling",
            "shuffle",
            "spanner",
            "storage",
            "stream",
            "util",
            "world",
        ],
    )
