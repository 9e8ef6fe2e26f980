"""Traces of what happens when, and spans in PyTorch's profiler."""

import json
import logging
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader, StreamingDataset
from streaming.watch import spans, trace, trace_file
from tests.data import write_numbers

SAMPLES = 120
LIMIT_S = 120


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("data") / "remote", SAMPLES, compression="zstd")


class Own(StreamingDataset):
    """A dataset with code of its own for each sample."""

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(at)


def same(batch: Any) -> Any:
    return batch


def failing(batch: Any) -> Any:
    raise ValueError("no such colour")


def events_of(path: Path) -> list[dict[str, Any]]:
    """A trace's events; the format leaves out the closing bracket, and may leave out a comma."""
    return json.loads(path.read_text().rstrip().rstrip(",") + "]")  # type: ignore[no-any-return]


def names_of(events: list[dict[str, Any]], kind: str) -> list[str]:
    return [event["args"]["name"] for event in events if event["name"] == kind]


def read(loader: Any) -> None:
    assert sum(len(batch["id"]) for batch in loader) == SAMPLES


def check_rows(events: list[dict[str, Any]]) -> None:
    """Spans of a row are beside or within one another, or no viewer could draw them."""
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for row in rows.values():
        open_until: list[float] = []
        for begin, end in sorted(row, key=lambda times: (times[0], -times[1])):
            while open_until and open_until[-1] <= begin + 1:  # floats of microseconds since 1970
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1
            open_until.append(end)


WORKERS = [
    {},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    *(
        pytest.param({"num_workers": 2, "multiprocessing_context": context}, marks=pytest.mark.long)
        for context in ("spawn", "forkserver")
    ),
    {"num_workers": 2, "worker_type": "thread"},
]


@pytest.mark.parametrize("kind", [StreamingDataset, Own])
@pytest.mark.parametrize("workers", WORKERS)
def test_trace(remote: Path, tmp_path: Path, workers: dict[str, Any], kind: Any) -> None:
    dataset = kind(remote=str(remote), local=str(tmp_path / "local"), batch_size=4)
    with trace(tmp_path / "trace.json"):
        read(StreamingDataLoader(dataset, batch_size=4, batch_transform=same, **workers))
    events = events_of(tmp_path / "trace.json")
    check_rows(events)
    by_name = defaultdict(list)
    for event in events:
        by_name[event["name"]].append(event)
    assert len(by_name["wait for batch"]) >= SAMPLES // 4
    assert len(by_name["train"]) >= SAMPLES // 4 - 1
    assert len(by_name["transform"]) == SAMPLES // 4
    made = by_name["read samples" if kind is Own else "make batch"]
    assert len(made) >= SAMPLES // 4
    assert all(by_name[name] for name in ("plan samples", "decompress", "transfer"))
    fetched = {event["args"]["shard"] for event in by_name["fetch shard"]}
    # Who fetched the last ones may still be about to say so.
    assert len(fetched) >= dataset.num_shards - 2 > 0
    assert all(event["args"]["of"] == str(remote) for event in by_name["fetch shard"])
    processes = len({event["pid"] for event in made})
    assert processes == (2 if "multiprocessing_context" in workers else 1)
    if processes == 2:
        assert {"rank 0", "rank 0, worker 0", "rank 0, worker 1"} <= set(
            names_of(events, "process_name")
        )
    assert {"fetch 0", "connection 0"} <= set(names_of(events, "thread_name"))


def test_a_plain_loader(remote: Path, tmp_path: Path) -> None:
    dataset = StreamingDataset(remote=str(remote), local=str(tmp_path / "local"), batch_size=4)
    with trace(tmp_path / "trace.json"):
        read(DataLoader(dataset, batch_size=4, num_workers=2))
    events = events_of(tmp_path / "trace.json")
    blocks = [event["args"]["samples"] for event in events if event["name"] == "read samples"]
    assert sum(blocks) == SAMPLES


def test_a_failure_is_in_the_trace(remote: Path, tmp_path: Path) -> None:
    dataset = StreamingDataset(remote=str(remote), local=str(tmp_path / "local"), batch_size=4)
    loader = StreamingDataLoader(dataset, batch_size=4, batch_transform=failing, num_workers=1)
    with trace(tmp_path / "trace.json"), pytest.raises(ValueError, match="no such colour"):
        read(loader)
    (failed,) = [e for e in events_of(tmp_path / "trace.json") if e["name"] == "transform"]
    assert "no such colour" in failed["args"]["error"]


def test_a_trace_replaces_a_file_and_ends_with_its_block(remote: Path, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("what was there")
    dataset = StreamingDataset(remote=str(remote), local=str(tmp_path / "local"), batch_size=4)
    with trace(tmp_path / "trace.json"):
        read(StreamingDataLoader(dataset, batch_size=4))
    whole = (tmp_path / "trace.json").read_text()
    read(StreamingDataLoader(dataset, batch_size=4))
    assert (tmp_path / "trace.json").read_text() == whole
    assert spans.traced_to() is None
    assert events_of(tmp_path / "trace.json")
    assert [path.name for path in tmp_path.iterdir() if "trace" in path.name] == ["trace.json"]


SCRIPT = """
import sys
from streaming import StreamingDataLoader, StreamingDataset

if __name__ == "__main__":
    remote, local = sys.argv[1:]
    dataset = StreamingDataset(remote=remote, local=local, batch_size=4)
    for batch in StreamingDataLoader(dataset, batch_size=4, num_workers=2):
        pass
"""


def program(remote: Path, local: Path, **variables: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(remote), str(local)],
        env=os.environ | {name: str(value) for name, value in variables.items()},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_all_ranks_of_a_machine_write_to_one_file(remote: Path, tmp_path: Path) -> None:
    world = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "STREAMING_TRACE": tmp_path / "trace.json"}
    ranks = [
        program(remote, tmp_path / "local", RANK=rank, LOCAL_RANK=rank, **world) for rank in (0, 1)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=LIMIT_S)
        assert rank.returncode == 0, errors
    events = events_of(tmp_path / "trace.json")
    check_rows(events)
    workers = {f"rank {rank}, worker {worker}" for rank in (0, 1) for worker in (0, 1)}
    assert {"rank 0", "rank 1"} | workers == set(names_of(events, "process_name"))
    places = [e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"]
    assert len(set(places)) == 6


def test_a_file_that_cannot_be_written(remote: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "such" / "trace.json"
    _, errors = program(remote, tmp_path, STREAMING_TRACE=nowhere).communicate(timeout=LIMIT_S)
    said = errors.rstrip().splitlines()[-1]
    assert "STREAMING_TRACE" in said
    assert str(nowhere) in said
    with pytest.raises(OSError, match=r"no.such.trace\.json"), trace(nowhere):
        pass
    assert spans.traced_to() is None


def test_a_file_that_grows_too_large(
    remote: Path, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(trace_file, "MAX_BYTES", 5000)
    monkeypatch.setattr(trace_file, "FLUSH_EVENTS", 10)
    dataset = StreamingDataset(remote=str(remote), local=str(tmp_path / "local"), batch_size=4)
    with caplog.at_level(logging.WARNING, "streaming"), trace(tmp_path / "trace.json"):
        read(StreamingDataLoader(dataset, batch_size=4))
    (said,) = [r.getMessage() for r in caplog.records if "trace" in r.getMessage()]
    assert "trace.json ends here" in said
    assert (tmp_path / "trace.json").stat().st_size <= 5000
    assert events_of(tmp_path / "trace.json")


@pytest.mark.parametrize("by_sample", [False, True])
def test_profiler(remote: Path, tmp_path: Path, by_sample: bool) -> None:
    kind = Own if by_sample else StreamingDataset
    dataset = kind(remote=str(remote), local=str(tmp_path / "local"), batch_size=4)
    loader = StreamingDataLoader(dataset, batch_size=4, batch_transform=same)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        read(loader)
    counts = {each.key: each.count for each in profiled.key_averages()}
    assert counts["streaming: wait for batch"] == SAMPLES // 4 + 1
    assert counts["streaming: transform"] == SAMPLES // 4
    assert counts["streaming: plan samples"] >= 1
    if by_sample:
        assert counts["streaming: read samples"] >= SAMPLES
        assert counts["streaming: collate"] == SAMPLES // 4
    else:
        assert counts["streaming: make batch"] >= SAMPLES // 4


def test_nothing_is_in_the_way_where_nobody_looks() -> None:
    items = iter(range(3))
    assert spans.each("count", items) is items
    assert spans.together("count", items, 3) is items
    assert spans.span("one") is spans.span("another")
