"""Ready data sets of text."""

from typing import TYPE_CHECKING

from streaming._lazy import lazy_names

if TYPE_CHECKING:
    from streaming.text.c4 import StreamingC4
    from streaming.text.enwiki import StreamingEnWiki
    from streaming.text.pile import StreamingPile

__all__ = ["StreamingC4", "StreamingEnWiki", "StreamingPile"]

if not TYPE_CHECKING:  # or a type checker would take any name for granted
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "streaming.text.c4": ["StreamingC4"],
            "streaming.text.enwiki": ["StreamingEnWiki"],
            "streaming.text.pile": ["StreamingPile"],
        },
        submodules=["c4", "enwiki", "pile"],
    )
