"""The Pile, text from 22 sources."""

from streaming.text.tokenized import TokenizedText

__all__ = ["StreamingPile"]


class StreamingPile(TokenizedText):
    """The Pile, text from 22 sources.

    See `TokenizedText` for its columns, samples and arguments.
    """
