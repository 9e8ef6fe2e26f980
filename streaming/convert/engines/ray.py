"""Ray: runs the parts of any source on a cluster, and converts a data set of Ray Data.

See docs/distributed-conversion.md for how it is used on a cluster.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from streaming.convert.engines import Engine
from streaming.convert.engines.given import filled
from streaming.convert.errors import ConvertError, SchemaError
from streaming.convert.job import Job, PartReport, check_failures, write_part
from streaming.convert.progress import Watch
from streaming.convert.source import Part, Sample, Source, Unreadable
from streaming.format.errors import MissingExtraError
from streaming.storage import StoreError

__all__ = ["RayEngine", "RayRows", "ray_source"]

_PEEK_ROWS = 1000
_AHEAD = 4
"""Tasks for each core that Ray is given beforehand."""


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != "ray":
            raise
        raise MissingExtraError(
            "Ray needs the package ray: pip install 'shardstream[ray]'"
        ) from exc
    return ray


class RayEngine(Engine):
    """Converts parts in tasks of Ray: each part is a task, the largest first.

    Every machine needs this library, and has to reach the source and `out`. A task whose machine or
    store has failed is tried again; one whose data can't be converted ends the conversion at once.
    Where Ray has not been started, it is: at the cluster that `RAY_ADDRESS` names, or on this
    machine, without its dashboard.

    Args:
        workers: How many parts are converted at once; as many as the cluster has cores unless
            given.
        retries: How often a part is begun anew after its machine or a store has failed.

    Raises:
        MissingExtraError: If ray is not installed.
        ValueError: If an argument makes no sense.
    """

    def __init__(self, workers: int | None = None, *, retries: int = 3) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers is {workers}; it must be 1 or more")
        if retries < 0:
            raise ValueError(f"retries is {retries}; it must not be negative")
        self.workers, self.retries = workers, retries

    def run(self, job: Job, parts: Sequence[Part], watch: Watch) -> list[PartReport]:
        """Convert the parts; see `Engine.run`."""
        ray = _ray()
        if not ray.is_initialized():
            self._start(ray)
        if isinstance(job.source, RayRows):
            return _convert_rows(job, job.source.dataset, watch)
        return self._convert_parts(ray, job, parts, watch)

    def _start(self, ray: Any) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if os.environ.get("RAY_ADDRESS"):
            ray.init(logging_level="WARNING")
        else:
            ray.init(
                num_cpus=self.workers,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="WARNING",
            )

    def _convert_parts(
        self, ray: Any, job: Job, parts: Sequence[Part], watch: Watch
    ) -> list[PartReport]:
        task = ray.remote(write_part).options(
            max_retries=self.retries, retry_exceptions=[StoreError]
        )
        cores = int(ray.cluster_resources().get("CPU", 1))
        most = self.workers or _AHEAD * max(cores, 1)
        pending = deque(sorted(parts, key=lambda part: (-part.bytes, part.number)))
        shared = ray.put(job)
        running: list[Any] = []
        reports: list[PartReport] = []
        try:
            while pending or running:
                while pending and len(running) < most:
                    running.append(task.remote(shared, pending.popleft()))
                done, running = ray.wait(running, num_returns=1)
                for report in _results(ray, done):
                    reports.append(report)
                    watch.done(report)
                    check_failures(watch.failures, job.max_errors, None)
        finally:
            for one in running:  # only after an error
                with suppress(Exception):
                    ray.cancel(one, force=True)
        return reports


def _results(ray: Any, done: Sequence[Any]) -> list[PartReport]:
    """What tasks have returned; what one has raised is raised as it was."""
    try:
        return list(ray.get(done))
    except ray.exceptions.RayError as exc:
        raise _cause(exc) from exc


def _cause(error: BaseException) -> BaseException:
    """What was raised in a task, or that Ray has given up."""
    cause: Any = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return cause
    told = str(error).strip().splitlines() or [type(error).__name__]
    return ConvertError(
        f"Ray could not finish the conversion: {told[0]}. What is finished stays; run it again to "
        "go on"
    )


def _convert_rows(job: Job, dataset: Any, watch: Watch) -> list[PartReport]:
    from ray.exceptions import RayError

    from streaming.ray import JobSink

    # In the order that they are in: the same input gives the same bytes.
    dataset.context.execution_options.preserve_order = True
    sink = JobSink(job)
    try:
        dataset.write_datasink(sink)
    except RayError as exc:
        raise _cause(exc) from exc
    reports = filled(job, sink.reports)
    for report in reports:
        watch.done(report)
    return reports


def ray_source(dataset: Any, part_bytes: int = 0) -> Source:
    """A source of a data set of Ray Data. Its parts are the tasks that Ray makes of it.

    Args:
        dataset: A `ray.data.Dataset`.
        part_bytes: Has no meaning here: use `Dataset.repartition`.

    Raises:
        ConvertError: If it is something else of Ray.
    """
    if not hasattr(dataset, "write_datasink"):
        raise ConvertError(
            f"a {type(dataset).__module__}.{type(dataset).__qualname__} can't be converted; give "
            "a ray.data.Dataset"
        )
    return RayRows(dataset)


class RayRows(Source):
    """The rows of a data set of Ray.

    A conversion that is taken up again writes all of it again; give the files under it instead,
    with `engine="ray"`, for one that goes on where it was.

    Args:
        dataset: The data set.
    """

    engine = "ray"

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._given: dict[str, str] = {}
        self._dropped: frozenset[str] = frozenset()

    def __reduce__(self) -> Any:  # what a task needs: not the data set, whose rows it is given
        from streaming.convert.engines.given import Given

        return Given, (self.describe(), {})

    def describe(self) -> str:
        """What it is."""
        return f"Ray data set of {len(self._schema())} columns"

    def with_columns(self, columns: Mapping[str, str], dropped: Collection[str] = ()) -> Source:
        """The same data set, read for other encodings."""
        other = RayRows(self.dataset)
        other._given, other._dropped = {**self._given, **columns}, frozenset(dropped)
        return other

    def columns(self) -> dict[str, str]:
        """The columns, by their types. Any column may have nulls; only JSON ones hold them."""
        import pyarrow as pa

        from streaming.convert.schema import columns_of_arrow

        names = self._schema()
        told = {*self._given, *self._dropped}
        kinds = {
            name: pa.null() if name in told else _arrow(name, kind) for name, kind in names.items()
        }
        schema = pa.schema(list(kinds.items()))
        return columns_of_arrow(schema, self.describe(), self._given, self._dropped)

    def parts(self) -> Sequence[Part]:
        """One: how many tasks there are is known when Ray has run them."""
        return [Part(0, "all rows")]

    def read(self, part: Part) -> Iterator[Sample | Unreadable]:
        """All rows, one by one, for looking at the first ones."""
        return iter(self.dataset.limit(_PEEK_ROWS).iter_rows())

    def fingerprint(self) -> str:
        """What tells it from others of other columns; no part of it is ever taken as done."""
        told = repr(sorted((name, str(kind)) for name, kind in self._schema().items()))
        return hashlib.sha256(told.encode()).hexdigest()

    def _schema(self) -> dict[str, Any]:
        schema = self.dataset.schema()
        if schema is None:
            raise SchemaError("the data set of Ray has no rows, and so no columns")
        return dict(zip(schema.names, schema.types, strict=True))


def _arrow(name: str, kind: Any) -> Any:
    """A column's type as Arrow's; those of pandas are told by NumPy's."""
    import pyarrow as pa

    if isinstance(kind, pa.DataType):
        return kind
    try:
        return pa.from_numpy_dtype(kind)
    except (pa.ArrowException, TypeError, AttributeError):
        raise SchemaError(
            f"the data set of Ray: column {name!r} is of type {kind}, which no encoding holds "
            f'faithfully. Name one by columns={{{name!r}: "…"}}'
        ) from None
