"""See what runs do: where their time goes, who waits for what, and what to do about it."""

from typing import TYPE_CHECKING

from streaming._lazy import lazy_names

if TYPE_CHECKING:
    from streaming.watch.prometheus import PrometheusCollector
    from streaming.watch.report import Report, Reporter
    from streaming.watch.spans import trace
    from streaming.watch.tensorboard import TensorBoardReports

__all__ = ["PrometheusCollector", "Report", "Reporter", "TensorBoardReports", "trace"]

if not TYPE_CHECKING:  # or a type checker would take any name for granted
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "streaming.watch.prometheus": ["PrometheusCollector"],
            "streaming.watch.report": ["Report", "Reporter"],
            "streaming.watch.spans": ["trace"],
            "streaming.watch.tensorboard": ["TensorBoardReports"],
        },
    )
