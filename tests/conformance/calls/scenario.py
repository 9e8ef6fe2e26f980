"""The table of scenarios."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

Scenario = Callable[[Any, Path], Any]

SCENARIOS: dict[str, Scenario] = {}
"""By the name that they exercise: dotted, or, where all paths lead to one thing, its last part."""


def scenario(*names: str) -> Callable[[Scenario], Scenario]:
    """Enter a scenario for some names."""

    def enter(function: Scenario) -> Scenario:
        for name in names:
            assert name not in SCENARIOS
            SCENARIOS[name] = function
        return function

    return enter


def scenario_of(name: str) -> str | None:
    """The key of a dotted name's scenario."""
    short = name.rpartition(".")[2]
    return name if name in SCENARIOS else short if short in SCENARIOS else None


def public(name: str) -> Any:
    """What a dotted name below `streaming` stands for."""
    module, _, attribute = f"streaming.{name}".rpartition(".")
    return getattr(importlib.import_module(module), attribute)
