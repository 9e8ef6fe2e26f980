"""C4, cleaned text of the Common Crawl."""

from streaming.text.tokenized import TokenizedText

__all__ = ["StreamingC4"]


class StreamingC4(TokenizedText):
    """C4, cleaned text of the Common Crawl.

    See `TokenizedText` for its columns, samples and arguments.
    """
