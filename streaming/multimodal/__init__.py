"""Ready data sets of more than one kind of data: text with videos."""

from typing import TYPE_CHECKING

from streaming._lazy import lazy_names

if TYPE_CHECKING:
    from streaming.multimodal.webvid import (
        StreamingInsideWebVid,
        StreamingOutsideDTWebVid,
        StreamingOutsideGIWebVid,
    )

__all__ = ["StreamingInsideWebVid", "StreamingOutsideDTWebVid", "StreamingOutsideGIWebVid"]

if not TYPE_CHECKING:  # or a type checker would take any name for granted
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "streaming.multimodal.webvid": [
                "StreamingInsideWebVid",
                "StreamingOutsideDTWebVid",
                "StreamingOutsideGIWebVid",
            ]
        },
        submodules=["webvid"],
    )
