"""Packages that only some sources need."""

from __future__ import annotations

import importlib

from streaming.format.errors import MissingExtraError

__all__ = ["needed"]


def needed(module: str) -> None:
    """See that a module can be imported.

    Raises:
        MissingExtraError: If its package is not installed; the message says how to install it.
    """
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as exc:
        package = module.partition(".")[0]
        if (exc.name or "").partition(".")[0] != package:
            raise
        raise MissingExtraError(
            f"this source needs the package {package}: pip install 'shardstream[convert]'"
        ) from exc
