"""`World`, under its old import path."""

from streaming.world import (
    World,
)

__all__ = [
    "World",
]
