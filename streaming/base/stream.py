"""`Stream` and the registry of its kinds, under their old import path."""

from streaming.stream import Stream, streams_registry

__all__ = ["Stream", "streams_registry"]
