"""Worker processes and threads give the batches, the checkpoints and the errors of no workers."""

import gc
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import get_worker_info

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset, thread_worker_info
from tests.chaos.ranks import wait_until
from tests.data import write_numbers
from tests.helpers import LIMIT_S
from tests.test_batches import assert_same

MODES: dict[str, dict[str, Any]] = {
    "fork": {"multiprocessing_context": "fork"},
    "threads": {"worker_type": "thread"},
    "persistent fork": {"multiprocessing_context": "fork", "persistent_workers": True},
    "persistent threads": {"worker_type": "thread", "persistent_workers": True},
}


class Own(StreamingDataset):
    """A dataset whose samples must be made one by one."""

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(at)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_numbers(tmp_path_factory.mktemp("modes") / "numbers", 90))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = str(tmp_path_factory.mktemp("tokens") / "set")
    with MDSWriter(out=out, columns={"x": "ndarray:int32:2048", "raw": "bytes"}) as writer:
        for at in range(400):
            row = np.arange(at, at + 2048, dtype=np.int32)
            writer.write({"x": row, "raw": row.tobytes()})
    return out


def loader(
    local: str, kind: type[StreamingDataset] = StreamingDataset, **kwargs: Any
) -> StreamingDataLoader:
    dataset = kind(local=local, batch_size=4, shuffle=True)
    return StreamingDataLoader(dataset, batch_size=4, **{"num_workers": 2, **kwargs})


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def reference(local: str) -> tuple[list[list[list[int]]], list[Any]]:
    """Two epochs of two plain processes, and the state after each batch of the first."""
    plain = loader(local, Own)
    first, states = [], []
    for batch in plain:
        first.append(batch["id"].tolist())
        states.append(plain.state_dict())
    return [first, ids(plain)], states


@pytest.mark.parametrize("kind", [StreamingDataset, Own])
@pytest.mark.parametrize("mode", MODES)
def test_order_and_states(local: str, kind: type[StreamingDataset], mode: str) -> None:
    epochs, states = reference(local)
    made = loader(local, kind, **MODES[mode])
    for at, batch in enumerate(made):
        assert batch["id"].tolist() == epochs[0][at]
        assert made.state_dict() == states[at]
    assert ids(made) == epochs[1]
    resumed = loader(local, kind, **MODES[mode])
    resumed.load_state_dict(states[10])
    plain = loader(local, Own)
    plain.load_state_dict(states[10])
    assert ids(resumed) == ids(plain)


@pytest.mark.long
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_processes_that_are_not_forked(tokens: str, context: str) -> None:
    assert_same(list(loader(tokens, multiprocessing_context=context)), list(loader(tokens, Own)))


@pytest.mark.parametrize("mode", ["fork", "threads"])
def test_large_batches(tokens: str, mode: str) -> None:
    assert_same(list(loader(tokens, **MODES[mode])), list(loader(tokens, Own)))


@pytest.mark.parametrize("mode", ["fork", "threads"])
def test_a_thousand_batches_are_held_unchanged(
    tokens: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.arena.HELD_BYTES", 4 << 20)
    made = loader(tokens, **MODES[mode])
    held: list[torch.Tensor] = []
    copies: list[torch.Tensor] = []
    while len(held) < 1000:
        for batch in made:
            held.append(batch["x"])
            copies.append(batch["x"].clone())
    assert all(torch.equal(one, other) for one, other in zip(held, copies, strict=True))
    held[0].fill_(-1)
    assert all(torch.equal(one, other) for one, other in zip(held[1:], copies[1:], strict=True))


def test_buffers_are_used_again(tokens: str) -> None:
    made = loader(tokens, multiprocessing_context="fork", persistent_workers=True)
    for _ in range(20):
        batches: Any = iter(made)
        deque(batches, maxlen=0)
    arena = batches._inner._arena
    del batches
    made._iterator = None
    del made
    gc.collect()
    assert arena.in_use() == 0


def failing(batch: Any) -> Any:
    if 30 in batch["id"]:
        raise KeyError("this batch has 30")
    return batch


def doubled(batch: Any) -> Any:
    return {**batch, "twice": 2 * batch["id"], "wide": torch.ones(20_000, dtype=torch.bfloat16)}


@pytest.mark.parametrize("kind", [StreamingDataset, Own])
@pytest.mark.parametrize("mode", [*MODES, "none"])
def test_transforms_of_batches(local: str, kind: type[StreamingDataset], mode: str) -> None:
    options = MODES.get(mode, {"num_workers": 0})
    for batch in loader(local, kind, batch_transform=doubled, **options):
        assert torch.equal(batch["twice"], 2 * batch["id"])
        assert batch["wide"].dtype == torch.bfloat16
        assert batch["wide"].sum() > 0


OTHER_TYPES = [
    *(torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.complex128, torch.bool),
    *(torch.float16, torch.uint16, torch.uint64),
]


def of_all_types(batch: Any) -> Any:
    wide = torch.stack([batch["id"]] * 5000)
    made = {str(dtype): wide.to(dtype) for dtype in OTHER_TYPES}
    made["transposed"], made["sparse"] = wide.T, torch.eye(4).to_sparse()
    made["empty"], made["one"] = torch.empty(0, dtype=torch.bfloat16), torch.ones(()).bfloat16()
    return {**batch, **made}


@pytest.mark.parametrize("mode", MODES)
def test_transforms_that_make_tensors_of_other_kinds(local: str, mode: str) -> None:
    for batch in loader(local, batch_transform=of_all_types, **MODES[mode]):
        expected = of_all_types({"id": batch["id"]})
        for name, tensor in expected.items():
            assert batch[name].dtype == tensor.dtype
            assert batch[name].shape == tensor.shape
            assert torch.equal(batch[name].to_dense(), tensor.to_dense()), name


class Waiting:
    """A transform with which the first worker waits until the second has gone."""

    def __init__(self, folder: Path) -> None:
        self.note = folder / "second"

    def __call__(self, batch: Any) -> Any:
        worker = get_worker_info()
        assert worker is not None
        if worker.id == 1:
            self.note.write_text(str(os.getpid()))
        else:
            wait_until(lambda: self.note.exists() and self.note.read_text())
            wait_until(lambda: has_ended(int(self.note.read_text())))
        return {"wide": torch.ones(50, 1000, dtype=torch.float64).T}


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_worker_that_ends_before_its_batches_are_used(
    tmp_path: Path,
) -> None:
    """Torch sends some tensors as files, which a worker that has ended can't hand over."""
    made = loader(
        str(write_numbers(tmp_path / "few", 12)),
        batch_transform=Waiting(tmp_path),
        multiprocessing_context="fork",
        prefetch_factor=6,
    )
    batches = list(made)
    assert len(batches) >= 3
    assert all(batch["wide"].sum() == 50_000 for batch in batches)


@pytest.mark.parametrize("kind", [StreamingDataset, Own])
@pytest.mark.parametrize("mode", [*MODES, "none"])
def test_errors_of_transforms_come_with_their_batch(
    local: str, kind: type[StreamingDataset], mode: str
) -> None:
    workers = 0 if mode == "none" else 2
    expected = ids(loader(local, Own, num_workers=workers))
    at = next(k for k, batch in enumerate(expected) if 30 in batch)
    options = {"num_workers": workers, **MODES.get(mode, {})}
    batches = iter(loader(local, kind, batch_transform=failing, **options))
    assert ids(next(batches) for _ in range(at)) == expected[:at]
    with pytest.raises(KeyError, match="this batch has 30") as error:
        next(batches)
    text = "".join(map(str, error.traceback)) + str(error.value)
    assert "failing" in text


def unsendable(batch: Any) -> Any:
    return {"fn": lambda: batch}


def test_what_cannot_be_sent_is_an_error(local: str) -> None:
    batches = iter(loader(local, batch_transform=unsendable))
    with pytest.raises(Exception, match=r"pickle|local object"):
        next(batches)


def drawn(batch: Any) -> Any:
    info = thread_worker_info()
    assert info is not None
    return info.id, info.num_workers, info.random.random(), torch.rand(1, generator=info.torch)


def test_threads_have_generators_of_their_own(local: str) -> None:
    def epoch() -> list[Any]:
        torch.manual_seed(7)
        random.seed(7)
        return list(loader(local, worker_type="thread", batch_transform=drawn))

    first = epoch()
    assert_same(first, epoch())
    assert [number for number, *_ in first[:4]] == [0, 1, 0, 1]
    assert len({value for _, _, value, _ in first}) == len(first)
    assert thread_worker_info() is None


def test_what_does_not_go_with_threads_is_refused(local: str) -> None:
    with pytest.raises(ValueError, match=r"worker_init_fn.*thread_worker_info"):
        loader(local, worker_type="thread", worker_init_fn=print)
    with pytest.raises(ValueError, match="multiprocessing_context"):
        loader(local, worker_type="thread", multiprocessing_context="fork")
    with pytest.raises(ValueError, match="'process' or 'thread'"):
        loader(local, worker_type="fiber")
    with pytest.raises(ValueError, match="needs a StreamingDataset"):
        StreamingDataLoader([1, 2], worker_type="thread", num_workers=2)


@pytest.mark.parametrize("persistent", [False, True])
def test_threads_of_abandoned_iterators_end(local: str, persistent: bool) -> None:
    others = set(threading.enumerate())
    made = loader(local, worker_type="thread", persistent_workers=persistent)
    next(iter(made))
    assert ids(made)  # a later iteration is a whole one
    threads = [t for t in threading.enumerate() if t.name.startswith("streaming-worker")]
    threads = [t for t in threads if t not in others]
    del made
    gc.collect()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def waits(batch: Any) -> Any:
    threading.Event().wait()


def test_a_time_limit(local: str) -> None:
    batches = iter(loader(local, worker_type="thread", batch_transform=waits, timeout=0.01))
    with pytest.raises(RuntimeError, match="timeout"):
        next(batches)


ENDING = """
import threading, torch
from streaming import StreamingDataLoader, StreamingDataset
begun = threading.Barrier(3)
def waits(batch):
    begun.wait()
    threading.Event().wait()
def works(batch):
    begun.wait()
    while True:
        torch.randn(200_000).sort()
def waits_but_for_one(batch):
    begun.wait()
    while 0 in batch["id"]:
        torch.randn(200_000).sort()
    threading.Event().wait()
dataset = StreamingDataset(local={local!r}, batch_size=4)
batches = iter(StreamingDataLoader(
    dataset, batch_size=4, num_workers=2, worker_type="thread", batch_transform={transform}))
begun.wait()
if {dropped}:
    del batches
print("done")
"""


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("transform", ["waits", "works", "waits_but_for_one"])
def test_threads_neither_hold_up_the_end_nor_make_it_fail(
    local: str, transform: str, dropped: bool
) -> None:
    """Torch's C++ can't be left by a thread that the end of the interpreter takes down."""
    code = ENDING.format(local=local, transform=transform, dropped=dropped)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


def test_a_probe_is_not_counted_as_read(tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path / "set"), columns={"x": "int"}) as writer:
        for x in range(40):
            writer.write({"x": x})
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=4)
    for _ in StreamingDataLoader(dataset, batch_size=4):
        pass
    assert dataset.stats()["bytes_read"] == 8 * 40


def test_a_temporary_directory_too_long_for_sockets_is_an_error(
    local: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's workers would drop every batch, and the loader would wait for ever."""
    folder = tmp_path / ("x" * 80)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(RuntimeError, match="TMPDIR"):
        iter(loader(local, Own))
    assert ids(loader(local, num_workers=0))
