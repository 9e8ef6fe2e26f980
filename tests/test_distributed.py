import json
import logging
import os
import subprocess
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from streaming.base import distributed as sd

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def _no_world(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def eight(monkeypatch):
    for name, value in zip(VARIABLES, ("3", "8", "1", "2"), strict=True):
        monkeypatch.setenv(name, value)


def who():
    return [
        sd.get_rank(),
        sd.get_world_size(),
        sd.get_local_rank(),
        sd.get_local_world_size(),
    ]


def test_alone():
    assert who() == [0, 1, 0, 1]
    sd.barrier()
    tensor = torch.arange(3)
    sd.broadcast(tensor, 0)
    assert tensor.tolist() == [0, 1, 2]
    gathered = [torch.zeros(3, dtype=torch.int64)]
    sd.all_gather(gathered, tensor)
    assert gathered[0].tolist() == [0, 1, 2]
    assert sd.all_gather_object({"a": 1}) == [{"a": 1}]
    with pytest.raises(ValueError, match="list of 2 tensors"):
        sd.all_gather([tensor, tensor], tensor)
    assert sd.maybe_init_dist() is False
    assert not dist.is_initialized()


@pytest.mark.usefixtures("eight")
def test_environment_without_group(caplog):
    assert who() == [3, 8, 1, 2]
    with caplog.at_level(logging.WARNING):
        sd.barrier()
    assert "WORLD_SIZE is 8" in caplog.text
    for call in (
        lambda: sd.broadcast(torch.zeros(1), 0),
        lambda: sd.all_gather([torch.zeros(1)] * 8, torch.zeros(1)),
        lambda: sd.all_gather_object(1),
    ):
        with pytest.raises(RuntimeError, match="WORLD_SIZE=8 processes needs a process group"):
            call()


@pytest.mark.parametrize("name", VARIABLES)
def test_malformed_environment(monkeypatch, name):
    monkeypatch.setenv(name, "two")
    with pytest.raises(ValueError, match=f"{name} has to be a whole number: 'two'"):
        who()


@pytest.mark.usefixtures("eight")
def test_group_wins():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert who()[:2] == [0, 1]
        assert sd.maybe_init_dist() is False
        assert sd.all_gather_object("a") == ["a"]
    finally:
        dist.destroy_process_group()


MEMBER = """
import json, torch, torch.distributed as dist
from streaming.base.distributed import *
made = [maybe_init_dist(), maybe_init_dist()]
rank = get_rank()
tensor = torch.tensor([rank + 10]); broadcast(tensor, 1)
gathered = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
all_gather(gathered, torch.tensor([rank]))
objects = all_gather_object({"rank": rank})
barrier()
print(json.dumps([made, tensor.tolist(), [g.item() for g in gathered], objects]))
dist.destroy_process_group()
"""


def test_two_processes():
    # The store is the parent's, on a port that the system chose, as under torchrun.
    store = dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
    )
    members = []
    for rank in range(2):
        env = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "CUDA_VISIBLE_DEVICES": "",
        }
        members.append(
            subprocess.Popen(
                [sys.executable, "-c", MEMBER], env=env, stdout=subprocess.PIPE, text=True
            )
        )
    for member in members:
        out, _ = member.communicate(timeout=100)
        assert member.returncode == 0
        expected = [[True, False], [11], [0, 1], [{"rank": 0}, {"rank": 1}]]
        assert json.loads(out) == expected
