"""Calls of every public name, each giving a value that can be compared between implementations.

A scenario is a function of what it exercises (the class or function) and an empty folder. It makes
its inputs itself, from literals, so that the inputs are what the code says; what it returns is
encoded as JSON by `encode`.
"""

# Importing these fills the table.
from . import batching, datasets, formats, functions, readers, ready, storage, streams
from .codec import encode, outcome
from .scenario import SCENARIOS, Scenario, scenario_of

__all__ = [
    "SCENARIOS",
    "Scenario",
    "batching",
    "datasets",
    "encode",
    "formats",
    "functions",
    "outcome",
    "readers",
    "ready",
    "scenario_of",
    "storage",
    "streams",
]
