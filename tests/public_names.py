"""The public names that were recorded, and how to look one up."""

import importlib
import json
from typing import Any

from tests.conformance_data import CONFORMANCE

RECORDED: dict[str, dict[str, Any]] = json.loads((CONFORMANCE / "signatures.json").read_text())


def resolve(name: str) -> Any:
    """What a dotted name stands for: module, then attribute."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)
