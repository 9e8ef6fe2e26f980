"""`Spanner`, under its old import path."""

from streaming.order.spanner import (
    Spanner,
)

__all__ = [
    "Spanner",
]
