"""What runs the parts of a conversion: processes of this machine, Spark, Ray."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

from streaming.convert.job import Job, PartReport
from streaming.convert.progress import Watch
from streaming.convert.source import Part

__all__ = ["Engine", "get_engine"]

_ENGINES = {
    "processes": "streaming.convert.engines.processes:ProcessesEngine",
    "ray": "streaming.convert.engines.ray:RayEngine",
    "spark": "streaming.convert.engines.spark:SparkEngine",
}


class Engine(ABC):
    """Runs `write_part` for each part, somewhere, in any order."""

    @abstractmethod
    def run(self, job: Job, parts: Sequence[Part], watch: Watch) -> list[PartReport]:
        """Convert the parts.

        Args:
            job: The conversion.
            parts: Its source's parts.
            watch: To be told of progress, in this process.

        Returns:
            A report of each part, in any order.

        Raises:
            ConvertError: If a part can't be converted.
        """


def get_engine(engine: str | Engine, workers: int | None = None) -> Engine:
    """An engine by its name.

    Args:
        engine: "processes", "spark" or "ray"; or an engine, which is returned.
        workers: How many parts are converted at once; the engine decides if it is None.

    Raises:
        ValueError: If there is no such engine.
    """
    if isinstance(engine, Engine):
        return engine
    if engine not in _ENGINES:
        raise ValueError(f"engine is {engine!r}; it must be one of {', '.join(_ENGINES)}")
    module, _, name = _ENGINES[engine].partition(":")
    made: Engine = getattr(importlib.import_module(module), name)(workers=workers)
    return made
