"""Reports on how a run goes, as curves of TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from streaming.format.errors import MissingExtraError
from streaming.watch.report import Report


class TensorBoardReports:
    """Writes each of a ``Reporter``'s reports as points of TensorBoard's curves.

    Args:
        writer: A ``torch.utils.tensorboard.SummaryWriter``, or whatever else has its
            ``add_scalar`` and ``add_text``; or the folder to make one for.
        step: Gives the place on the horizontal axis, such as the trainer's step; the rank's samples
            so far if it is not given.
        prefix: What the curves' names begin with.

    Raises:
        MissingExtraError: If a writer is to be made, and the package tensorboard is missing.

    Example:
        >>> import tempfile
        >>> from streaming import MDSWriter, StreamingDataset
        >>> from streaming.watch import Reporter, TensorBoardReports
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "int"}) as writer:
        ...     for x in range(8):
        ...         writer.write({"x": x})
        >>> dataset = StreamingDataset(local=folder, batch_size=2)
        >>> with Reporter(dataset, TensorBoardReports(f"{folder}/runs")):
        ...     samples = list(dataset)
    """

    def __init__(
        self, writer: Any, step: Callable[[], int] | None = None, prefix: str = "data"
    ) -> None:
        is_folder = isinstance(writer, (str, os.PathLike))
        self._writer = _writer_to(writer) if is_folder else writer
        self._step, self._prefix = step, prefix

    def __call__(self, report: Report) -> None:
        """Write a report."""
        step = int(report.totals["samples"]) if self._step is None else self._step()
        values = {
            "samples_per_s": report.samples_per_s,
            "fetched_MB_per_s": report.fetched_bytes_per_s / 1e6,
            "trainer_waits": report.starved,
            **{f"workers/{stage}": share for stage, share in report.stages.items()},
        }
        for name, value in values.items():
            self._writer.add_scalar(f"{self._prefix}/{name}", value, step)
        if report.diagnosis is not None:
            self._writer.add_text(f"{self._prefix}/diagnosis", report.diagnosis, step)
        if hasattr(self._writer, "flush"):
            self._writer.flush()


def _writer_to(folder: str | os.PathLike[str]) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "Curves need the package tensorboard: pip install 'shardstream[tensorboard]'"
        ) from error
    return SummaryWriter(os.fspath(folder))
