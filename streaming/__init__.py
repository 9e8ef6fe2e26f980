"""Stream sharded data sets from object stores into PyTorch training loops."""

from typing import TYPE_CHECKING

from streaming._lazy import lazy_names

if TYPE_CHECKING:
    import streaming.base as base
    import streaming.multimodal as multimodal
    import streaming.text as text
    import streaming.vision as vision
    from streaming.dataloader import StreamingDataLoader
    from streaming.dataset import StreamingDataset
    from streaming.format import CSVWriter, JSONWriter, MDSWriter, TSVWriter, XSVWriter
    from streaming.local import LocalDataset
    from streaming.stream import Stream
    from streaming.thread_workers import thread_worker_info

__version__ = "0.1.0"

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
    "__version__",
    "base",
    "multimodal",
    "text",
    "thread_worker_info",
    "vision",
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
            "streaming.thread_workers": ["thread_worker_info"],
        },
        submodules=["base", "multimodal", "text", "vision"],
    )
