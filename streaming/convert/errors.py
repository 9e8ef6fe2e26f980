"""What can go wrong in a conversion besides the errors of formats and stores."""

__all__ = ["ConvertError", "SchemaError"]


class ConvertError(RuntimeError):
    """A conversion can't go on; what it has finished stays, and nothing has been published."""


class SchemaError(ConvertError, ValueError):
    """A source's columns can't be inferred, or have no faithful encoding."""
