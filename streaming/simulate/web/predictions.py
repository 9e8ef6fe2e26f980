"""Predictions that the page has shown are kept, and so are the data sets that they are of."""

from __future__ import annotations

from functools import lru_cache

from streaming.simulate.data import Data
from streaming.simulate.predict import predict
from streaming.simulate.report import Report
from streaming.simulate.setup import Setup, StreamSetup
from streaming.simulate.suggest import Suggestion, suggest

__all__ = ["predicted", "suggested"]


@lru_cache(maxsize=8)
def _data(streams: tuple[StreamSetup, ...]) -> Data:
    return Data(Setup(streams=streams))


def _data_of(setup: Setup) -> Data:
    return _data(tuple(setup.streams)).ordered_by(setup)


@lru_cache(maxsize=64)
def predicted(setup: Setup) -> Report:
    """What a run will be like.

    Raises:
        ValueError: If settings don't go together.
        StoreError: If an index can't be had.
    """
    return predict(_data_of(setup))


@lru_cache(maxsize=64)
def suggested(setup: Setup) -> list[Suggestion]:
    """Better settings of a run."""
    return suggest(_data_of(setup), predicted(setup))
