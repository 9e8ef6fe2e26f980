"""Processes that tests start as ranks of a job, kill, stop and start again.

They come from a fork server that has imported torch, so that a start costs little, and that has no
threads, so that it is safe.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import logging
import multiprocessing
import multiprocessing.popen_fork
import multiprocessing.queues
import multiprocessing.resource_sharer
import multiprocessing.synchronize
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import psutil
from torch.utils.data import DataLoader

from streaming import StreamingDataset
from streaming.cache import transfer
from tests.data import text_of
from tests.servers.proxy import FaultProxy

LIMIT_S = 60.0
"""How long a test waits for something that should come soon."""

# What a loader imports when it begins is imported here, for users who may not read where it lies.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload([__name__])


class Patient(StreamingDataset):
    """It gives no connection up that brings nothing for a while: for tests that count requests."""

    def __init__(self, **kwargs: Any) -> None:
        transfer.FLOOR_S = LIMIT_S
        super().__init__(**kwargs)


@dataclass(frozen=True)
class Job:
    """What a rank does: iterate a dataset, and look at each sample."""

    remote: str | None
    local: str
    rank: int = 0
    ranks: int = 1
    epochs: int | None = 1
    """How many epochs to read; None to go on forever."""
    workers: int = 0
    loader: dict[str, Any] = field(default_factory=dict)
    dataset: dict[str, Any] = field(default_factory=dict)
    kind: Callable[..., StreamingDataset] = StreamingDataset
    log: str | None = None
    """A file for what it writes to its standard error, and for what is logged at INFO."""
    user: int | None = None
    """The user to become first; takes root."""
    stays: bool = False
    """Whether to stay when all is told, until it is killed: what a process fetches for others when
    it ends is fetched once more by one of them."""

    def open(self) -> StreamingDataset:
        """The rank's dataset."""
        arguments = {"batch_size": 4, "download_retry": 1, **self.dataset}
        return self.kind(remote=self.remote, local=self.local, **arguments)

    def loader_of(self, dataset: StreamingDataset) -> DataLoader[Any]:
        """The rank's loader."""
        # As a rank that was started in the usual way would have it; this one's default would be to
        # start them like itself.
        fork = {"multiprocessing_context": "fork"} if self.workers else {}
        loader = {"batch_size": dataset.batch_size, **fork, **self.loader}
        return DataLoader(dataset, num_workers=self.workers, **loader)


def _run(job: Job, pipe: Any) -> None:
    # Tests that run in the background of a shell have it ignored, and hand that on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(
        RANK=str(job.rank),
        WORLD_SIZE=str(job.ranks),
        LOCAL_RANK=str(job.rank),
        LOCAL_WORLD_SIZE=str(job.ranks),
    )
    if job.user is not None:
        os.setgroups([])
        os.setgid(job.user)
        os.setuid(job.user)
        # The parent's, for sockets; another user can't go in there.
        multiprocessing.current_process()._config["tempdir"] = None  # type: ignore[attr-defined]
    if job.log is not None:
        os.dup2(os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        logging.basicConfig(level=logging.INFO, force=True)
    try:
        dataset = job.open()
        loader = job.loader_of(dataset)
        epoch = 0
        while job.epochs is None or epoch < job.epochs:
            seen = []
            for batch in loader:
                for number, text in zip(batch["id"].tolist(), batch["text"], strict=True):
                    if text != text_of(number):
                        raise AssertionError(f"sample {number} is {text!r}")
                    seen.append(number)
                pipe.send(("batch", len(seen)))
            pipe.send(("epoch", seen))
            epoch += 1
        pipe.send(("stats", dataset.stats()))
        while job.stays:
            signal.pause()
    except Exception as error:
        pipe.send(("error", error))
        raise SystemExit(1) from None


class Rank:
    """A process that does a job, and what it tells."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_run, args=(job, theirs))
        self.process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def wait_for(self, kind: str, limit_s: float = LIMIT_S) -> Any:
        """The next thing of a kind that it tells.

        Raises:
            The error that it ended with, if it tells of one.
        """
        deadline = time.monotonic() + limit_s
        while self._pipe.poll(max(0.0, deadline - time.monotonic())):
            told, what = self._pipe.recv()
            if told == kind:
                return what
            if told == "error":
                raise what
        raise TimeoutError(f"rank {self.job.rank} has told of no {kind} for {limit_s} s")

    def has_told(self) -> list[tuple[str, Any]]:
        """What it has told and was not read yet."""
        told = []
        with contextlib.suppress(EOFError):
            while self._pipe.poll():
                told.append(self._pipe.recv())
        return told

    def kill(self) -> None:
        """End it as the system would, at once."""
        self.process.kill()
        self.process.join(LIMIT_S)

    def join(self, limit_s: float = LIMIT_S) -> int | None:
        """Wait for its end; its exit status."""
        self.process.join(limit_s)
        assert self.process.exitcode is not None, f"rank {self.job.rank} hangs"
        return self.process.exitcode


@contextlib.contextmanager
def running(*jobs: Job) -> Iterator[list[Rank]]:
    """Ranks that do jobs; killed at the end of the block if they are still at it."""
    ranks = [Rank(job) for job in jobs]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[FaultProxy]:
    """Serve a folder by HTTP, through a proxy that spoils requests when told."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        with FaultProxy(f"http://127.0.0.1:{server.server_address[1]}") as proxy:
            yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join(LIMIT_S)


def parts(local: Path) -> list[str]:
    """Files that are, or were, being written."""
    return sorted(path.name for path in local.glob(".part*"))


def wait_for_end(processes: Iterable[psutil.Process], limit_s: float = LIMIT_S) -> None:
    """Wait until other processes' children have ended, whether anybody reaps them or not."""
    deadline = time.monotonic() + limit_s
    for process in processes:
        try:
            end = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            ended = wait([end], max(0.0, deadline - time.monotonic()))
            assert ended, f"{process} goes on"
        finally:
            os.close(end)


def wait_until(true: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait until something that nobody tells of has come about: in folders, locks or /proc."""
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.01)
