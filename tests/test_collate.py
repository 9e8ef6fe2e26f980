"""Batches that equal torch's, made by one thread."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha1
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from streaming.collate import THREADED_NUMEL, collate_like_torch

DTYPES = [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16]
DTYPES += [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e5m2]
LAYOUTS = ["plain", "transposed", "channels last", "expanded", "gradient", "parameter", "conjugate"]
LAYOUTS += ["meta", "sparse", "numpy", "numpy read only"]


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    """A tensor or an array, mostly a large one of numbers that could be anything."""
    dtype, layout = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(LAYOUTS))
    shape = draw(st.sampled_from([(3, 96, 128), (3, 1, THREADED_NUMEL), (1, 128, 300), (5,), ()]))
    bits = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (*shape, 16), np.uint8))
    made = bits.view(dtype)[..., 0].contiguous()
    match layout:
        case "transposed":
            return made.transpose(0, -1) if shape else made
        case "channels last":
            if len(shape) == 3:
                return made[None].contiguous(memory_format=torch.channels_last)[0]
        case "expanded":
            return made[..., None].expand(*shape, 4)
        case "gradient":
            return made.requires_grad_() if made.is_floating_point() else made
        case "parameter":
            return torch.nn.Parameter(made, requires_grad=False)
        case "conjugate":
            return made.conj()
        case "meta":
            return made.to("meta")
        case "sparse":
            return made.to_sparse() if dtype is torch.float32 else made
        case "numpy" | "numpy read only" if dtype not in (torch.bfloat16, torch.float8_e5m2):
            array = made.numpy()
            if layout == "numpy read only":
                array.flags.writeable = False
            return array
    return made


samples = st.one_of(
    st.builds(lambda x: [x] * 3, tensors()),
    st.lists(tensors(), min_size=1, max_size=3),
    st.builds(lambda x: [{"x": x, "y": [x, 1, "text"]}] * 2, tensors()),
    st.builds(lambda x: [(x, b"bytes", 0.5)] * 2, tensors()),
)


def outcome(collate: Any, batch: list[Any]) -> Any:
    try:
        return told(collate(batch))
    except Exception as error:
        return type(error), str(error)


def told(batch: Any) -> Any:
    """All there is to know of a batch."""
    if isinstance(batch, dict):
        return {name: told(value) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch), [told(value) for value in batch]
    if isinstance(batch, torch.Tensor):
        facts: tuple[Any, ...] = (
            type(batch),
            batch.dtype,
            batch.shape,
            batch.stride(),
            batch.requires_grad,
        )
        facts += (batch.device, batch.is_conj())
        if batch.device.type == "meta":
            return facts
        numbers = batch.detach().resolve_conj().reshape(-1).view(torch.uint8).numpy()
        return *facts, sha1(numbers.tobytes()).hexdigest()
    return type(batch), batch


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """torch's own threads would wait for one another while other tests run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@settings(deadline=None)
@given(samples)
def test_equal_to_torchs(batch: list[Any]) -> None:
    expected = outcome(default_collate, batch)
    assert outcome(collate_like_torch, batch) == expected


def test_types_that_were_added(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(batch: list[Any], *, collate_fn_map: Any) -> Any:
        return batch[0]

    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, first)
    tensor = torch.zeros(THREADED_NUMEL)
    assert collate_like_torch([tensor, tensor]) is tensor


def test_another_default_device() -> None:
    tensor = torch.zeros(THREADED_NUMEL)
    with torch.device("meta"):
        assert collate_like_torch([tensor, tensor]).device == torch.device("cpu")


THREADS = """
import os, tempfile, threading
import numpy as np
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

class Doubled(StreamingDataset):
    def __getitem__(self, at):
        return {"x": 2 * super().__getitem__(at)["x"]}

folder = tempfile.mkdtemp()
with MDSWriter(out=folder, columns={"x": "ndarray"}) as writer:
    for _ in range(8):
        writer.write({"x": np.ones((256, 256, 3), np.uint8)})
dataset = Doubled(local=folder, batch_size=4)
tasks = lambda: set(map(int, os.listdir("/proc/self/task")))
before = tasks()
for batch in StreamingDataLoader(dataset, batch_size=4):
    pass
# Those of Python's come and go; torch's stay, and Python does not know them.
after = tasks()
known = {thread.native_id for thread in threading.enumerate()}
print(len((after & tasks()) - before - known))
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="only Linux tells the threads so")
def test_no_threads_are_started() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "4"}
    command = [sys.executable, "-c", THREADS]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert int(done.stdout) == 0
