"""Spark: runs the parts of any source on a cluster, and converts a DataFrame's partitions.

See docs/distributed-conversion.md for how it is used on a cluster.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streaming.convert.engines import Engine
from streaming.convert.engines.given import Given, filled
from streaming.convert.engines.spark_frame import SparkFrame
from streaming.convert.errors import ConvertError
from streaming.convert.job import Job, PartReport, check_failures, write_part
from streaming.convert.progress import Watch
from streaming.convert.source import Part, Source
from streaming.format.errors import FormatError, MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkEngine", "active_session", "collect", "spark_source"]

_REPORT = "report binary"
_POLL_S = 0.2


def spark_source(frame: Any, part_bytes: int = 0) -> Source:
    """A source of a DataFrame. Its parts are the DataFrame's partitions.

    Args:
        frame: The DataFrame of Spark.
        part_bytes: Has no meaning here: use `DataFrame.repartition`.

    Raises:
        ConvertError: If it is something else of Spark.
    """
    if not hasattr(frame, "mapInArrow"):
        raise ConvertError(
            f"a {type(frame).__module__}.{type(frame).__qualname__} can't be converted; give a "
            "DataFrame"
        )
    return SparkFrame(frame)


class SparkEngine(Engine):
    """Converts parts in tasks of Spark: each part is a task, the largest first.

    Every machine needs this library, and has to reach the source and `out`. A task that fails for
    reasons of its machine or a store is tried again, as Spark is configured; one whose data can't
    be converted ends the conversion at once.

    Args:
        workers: Has no meaning here: how many tasks run at once is for the cluster to decide.
        session: The Spark session; the active one unless given, or a new one.

    Raises:
        MissingExtraError: If pyspark is not installed.
    """

    def __init__(self, workers: int | None = None, *, session: SparkSession | None = None) -> None:
        self.workers = workers
        self._session = session

    def run(self, job: Job, parts: Sequence[Part], watch: Watch) -> list[PartReport]:
        """Convert the parts; see `Engine.run`."""
        if isinstance(job.source, SparkFrame):
            frame = job.source.frame
            return filled(job, collect(frame, _frame_task(job), job, watch))
        if not parts:
            return []
        session = self._session or active_session()
        tasks = sorted(parts, key=lambda part: (-part.bytes, part.number))
        numbers = session.range(0, len(tasks), 1, numPartitions=len(tasks))
        return collect(numbers, _parts_task(job, tasks), job, watch)


def active_session() -> SparkSession:
    """The active Spark session, or a new one.

    Raises:
        MissingExtraError: If pyspark is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != "pyspark":
            raise
        raise MissingExtraError(
            "Spark needs the package pyspark: pip install 'shardstream[spark]'"
        ) from exc
    builder: Any = SparkSession.builder
    session: SparkSession = SparkSession.getActiveSession() or builder.getOrCreate()
    return session


Task = Callable[["Iterator[pa.RecordBatch]"], "Iterator[PartReport]"]


def _parts_task(job: Job, tasks: list[Part]) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[PartReport]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                yield write_part(job, tasks[at])

    return run


def _frame_task(job: Job) -> Task:
    frame: Any = job.source
    columns = frame.encodings()
    # The DataFrame itself can't go to where its rows are.
    job = replace(job, source=Given(frame.describe(), job.columns), resume=False)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[PartReport]:
        from pyspark import TaskContext

        from streaming.convert.engines.spark_types import spark_values

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        source = Given(job.source.describe(), job.columns, spark_values(batches, columns))
        yield write_part(replace(job, source=source), Part(number, f"partition {number}"))

    return run


def collect(
    frame: DataFrame,
    task: Callable[[Iterator[Any]], Iterator[Any]],
    job: Job | None,
    watch: Watch,
    *,
    pandas: bool = False,
) -> list[Any]:
    """Run a task on each partition of a DataFrame.

    Args:
        frame: The DataFrame.
        task: Given a partition's record batches, it yields results that pickle.
        job: The conversion, for how many failures it suffers.
        watch: To be told of the results that are reports.
        pandas: Whether the task wants pandas DataFrames, not record batches.

    Returns:
        All results, in any order.

    Raises:
        ConvertError: If Spark has given up.
        FormatError: And whatever else a task found wrong with its data.
    """
    return _Run(frame, task, watch, None if job is None else job.max_errors, pandas).results()


class _Run:
    """A job of Spark in a thread of its own, so that progress can be shown, and it can be ended."""

    def __init__(
        self, frame: DataFrame, task: Any, watch: Watch, most: int | None, pandas: bool
    ) -> None:
        self._watch, self._most = watch, most
        self._context: Any = None
        with suppress(Exception):  # Spark Connect has none, and then no progress is known
            self._context = frame.sparkSession.sparkContext
        self._told: Any = None
        if self._context is not None:
            self._told = self._context.accumulator([], _lists())
        self._seen = 0
        self._done: set[int] = set()
        self._group = f"shardstream-{uuid.uuid4()}"
        self._rows: list[Any] = []
        self._error: BaseException | None = None
        over = frame.mapInPandas if pandas else frame.mapInArrow
        self._frame = over(_guarded(task, self._told, pandas), _REPORT)

    def results(self) -> list[Any]:
        thread = threading.Thread(target=self._collect, name="streaming-spark", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_POLL_S)
                self._listen()
        finally:
            if thread.is_alive() and self._context is not None:
                self._context.cancelJobGroup(self._group)
                thread.join()
        if self._error is not None:
            told = str(self._error).strip().splitlines() or [type(self._error).__name__]
            cause = told[-1] if "Traceback" in "".join(told[:2]) else told[0]
            raise ConvertError(f"Spark could not finish the conversion: {cause}") from self._error
        return [self._result(row[0]) for row in self._rows]

    def _collect(self) -> None:
        try:
            if self._context is not None:
                self._context.setJobGroup(self._group, "Converting into shards", True)
            self._rows = self._frame.collect()
        except BaseException as exc:
            self._error = exc

    def _listen(self) -> None:
        """Tell of the tasks that have finished since the last time; raise what one has found."""
        if self._told is None:
            return
        told = self._told.value
        for payload in told[self._seen :]:
            self._seen += 1
            self._result(payload, news=True)

    def _result(self, payload: bytes, news: bool = False) -> Any:
        failed, result = pickle.loads(payload)
        if failed:
            raise result
        counts = isinstance(result, PartReport) and (news or self._told is None)
        if counts and result.number not in self._done:  # a task may have been run twice
            self._done.add(result.number)
            self._watch.done(result)
            check_failures(self._watch.failures, self._most, None)
        return result


def _guarded(task: Any, told: Any, pandas: bool) -> Callable[[Any], Any]:
    """A task that returns what is wrong with its data: to try that again would not help."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        payloads: list[bytes] = []
        try:
            payloads.extend(pickle.dumps((False, result)) for result in task(batches))
        except (ConvertError, FormatError) as exc:
            payloads.append(pickle.dumps((True, exc)))
        if told is not None:
            told.add(payloads)
        if pandas:
            from pandas import DataFrame

            yield DataFrame({"report": payloads})
        else:
            from pyarrow import RecordBatch, array, binary

            yield RecordBatch.from_pydict({"report": array(payloads, binary())})

    return run


def _lists() -> Any:
    from pyspark.accumulators import AccumulatorParam

    class Lists(AccumulatorParam[Any]):
        """Lists, added up by putting them one after the other."""

        def zero(self, value: Any) -> Any:
            return []

        def addInPlace(self, value1: Any, value2: Any) -> Any:  # noqa: N802
            value1.extend(value2)
            return value1

    return Lists()
