"""Registries of classes and functions, under their old import path."""

from streaming.registry import (
    TypedRegistry,
    construct_from_registry,
    create_registry,
    import_file,
    save_registry,
)

__all__ = [
    "TypedRegistry",
    "construct_from_registry",
    "create_registry",
    "import_file",
    "save_registry",
]
