"""Many streams opened side by side, by many processes at once."""

import io
import multiprocessing
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from streaming import Stream, StreamingDataset, opening
from streaming.storage import NotFound
from tests.data import write_numbers

LIMIT_S = 300


@contextmanager
def counting_server(folder: Path) -> Iterator[tuple[str, Counter[tuple[str, str]]]]:
    """A server of a folder's files; gives its URL, and how often each was asked for, and how."""
    counts: Counter[tuple[str, str]] = Counter()
    lock = threading.Lock()

    class Handler(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def send_head(self) -> Any:
            with lock:
                counts[self.command, self.path] += 1
            return super().send_head()

    class Server(ThreadingHTTPServer):
        request_queue_size = 512

    server = Server(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", counts
    finally:
        server.shutdown()
        server.server_close()


def make_remotes(folder: Path, count: int) -> None:
    """Data sets whose indexes are all that is there of them."""
    write_numbers(folder / "first", 20)
    index = (folder / "first" / "index.json").read_bytes()
    shutil.rmtree(folder / "first")
    for number in range(count):
        (folder / f"{number}").mkdir()
        (folder / f"{number}" / "index.json").write_bytes(index)


def open_all(url: str, local: Path, count: int) -> StreamingDataset:
    streams = [Stream(remote=f"{url}/{i}", local=str(local / f"{i}")) for i in range(count)]
    return StreamingDataset(streams=streams, batch_size=4)


def _open_in_child(url: str, local: Path, count: int, barrier: Any, samples: Any) -> None:
    barrier.wait(LIMIT_S)
    samples.put(open_all(url, local, count).num_samples)


def open_at_once(url: str, local: Path, count: int, processes: int) -> list[int]:
    """Open the streams in so many processes; gives each one's number of samples."""
    context = multiprocessing.get_context("fork")
    barrier, samples = context.Barrier(processes), context.Queue()
    started = [
        context.Process(target=_open_in_child, args=(url, local, count, barrier, samples))
        for _ in range(processes)
    ]
    for process in started:
        process.start()
    try:
        return [samples.get(timeout=LIMIT_S) for _ in started]
    finally:
        for process in started:
            process.kill()
            process.join()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork, nor locks on folders")
@pytest.mark.parametrize(
    ("count", "processes"), [(40, 2), pytest.param(1000, 4, marks=pytest.mark.long)]
)
def test_each_index_is_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, processes: int
) -> None:
    monkeypatch.setenv("STREAMING_CACHE_DIR", str(tmp_path / "kept"))
    make_remotes(tmp_path / "remote", count)
    with counting_server(tmp_path / "remote") as (url, counts):
        found = open_at_once(url, tmp_path / "local", count, processes)
        assert found == [20 * count] * processes
        assert counts == {("GET", f"/{i}/index.json"): 1 for i in range(count)}


def test_the_error_names_the_stream(tmp_path: Path) -> None:
    make_remotes(tmp_path / "remote", 50)
    (tmp_path / "remote" / "33" / "index.json").unlink()
    with (
        counting_server(tmp_path / "remote") as (url, _),
        pytest.raises(NotFound, match=r"/33/index\.json"),
    ):
        open_all(url, tmp_path / "local", 50)


def test_order_and_offsets_are_the_streams(tmp_path: Path) -> None:
    for number in range(8):
        write_numbers(tmp_path / "remote" / f"{number}", 5 + number, start=100 * number)
    dataset = open_all(str(tmp_path / "remote"), tmp_path / "local", 8)
    assert dataset.samples_per_stream.tolist() == list(range(5, 13))
    assert [dataset[int(at)]["id"] for at in dataset.sample_offset_per_stream] == [
        100 * number for number in range(8)
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("rank", "after_s", "is_shown"), [("0", 0.0, True), ("1", 0.0, False), ("0", 60.0, False)]
)
def test_a_bar_shows_what_takes_a_while(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rank: str,
    after_s: float,
    is_shown: bool,
) -> None:
    write_numbers(tmp_path / "remote" / "0", 5)
    write_numbers(tmp_path / "remote" / "1", 5)
    terminal = Terminal()
    monkeypatch.setattr(opening, "SHOWN_AFTER_S", after_s)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("LOCAL_RANK", rank)
    streams = [
        Stream(remote=str(tmp_path / f"remote/{i}"), local=str(tmp_path / f"{i}")) for i in range(2)
    ]
    opening.open_streams(streams, allow_unsafe_types=False)
    assert ("Opening streams: 100%" in terminal.getvalue()) == is_shown
