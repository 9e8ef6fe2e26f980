"""Predict how a run will stream its data, before it is run.

:func:`simulate` plans the epochs of a :class:`Setup` as the library does, and lets the same
windows, turns and evictions go on over a simulated clock and network.
"""

from typing import TYPE_CHECKING

from streaming._lazy import lazy_names

if TYPE_CHECKING:
    from streaming.simulate.predict import simulate
    from streaming.simulate.report import EpochReport, NodeReport, Report, Timeline
    from streaming.simulate.setup import Setup, StreamSetup
    from streaming.simulate.suggest import Suggestion

__all__ = [
    "EpochReport",
    "NodeReport",
    "Report",
    "Setup",
    "StreamSetup",
    "Suggestion",
    "Timeline",
    "simulate",
]

if not TYPE_CHECKING:  # or a type checker would take any name for granted
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "streaming.simulate.predict": ["simulate"],
            "streaming.simulate.report": ["EpochReport", "NodeReport", "Report", "Timeline"],
            "streaming.simulate.setup": ["Setup", "StreamSetup"],
            "streaming.simulate.suggest": ["Suggestion"],
        },
    )
