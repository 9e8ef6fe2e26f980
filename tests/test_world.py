import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from streaming.world import World

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")

small = st.integers(1, 5)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@settings(deadline=None, derandomize=True, database=None)
@given(small, small, small)
def test_numbers_agree(nodes: int, ranks: int, workers: int) -> None:
    worlds = [World(nodes, ranks, workers, each) for each in range(nodes * ranks * workers)]
    for worker, world in enumerate(worlds):
        assert world.worker == worker
        assert world.worker == world.rank * workers + world.worker_of_rank
        assert world.worker == world.node * world.workers_per_node + world.worker_of_node
        assert world.rank == world.node * ranks + world.rank_of_node
        assert (world.num_nodes, world.num_ranks) == (nodes, nodes * ranks)
        assert world.num_workers == len(worlds)
        assert (world.ranks_per_node, world.workers_per_rank) == (ranks, workers)
        assert world.is_multinode == (nodes > 1)
    assert sum(world.is_leader for world in worlds) == 1
    assert sum(world.is_local_leader for world in worlds) == nodes


@settings(deadline=None, derandomize=True, database=None)
@given(small, small, small, small)
def test_replicas_are_one_rank(nodes: int, ranks: int, workers: int, replication: int) -> None:
    worlds = [World(nodes, ranks, workers, each) for each in range(nodes * ranks * workers)]
    if nodes * ranks % replication:
        with pytest.raises(ValueError, match=f"divide the number of ranks, {nodes * ranks}; it"):
            worlds[0].replicate(replication)
        return
    for world in worlds:
        replicated = world.replicate(replication)
        assert replicated.rank == world.rank // replication
        assert replicated.num_ranks == world.num_ranks // replication
        assert replicated.worker_of_rank == world.worker_of_rank
        assert replicated.workers_per_rank == workers
    assert worlds[-1].replicate(1) == worlds[-1]


def test_replicas_that_do_not_fill_nodes_are_on_one_node() -> None:
    whole = World(4, 4, 1, 15).replicate(2)
    assert (whole.num_nodes, whole.ranks_per_node, whole.rank) == (2, 4, 7)
    split = World(2, 4, 1, 7).replicate(4)
    assert (split.num_nodes, split.ranks_per_node, split.rank) == (1, 2, 1)


@pytest.mark.parametrize("replication", [0, -1, 3])
def test_replication_that_does_not_fit(replication: int) -> None:
    with pytest.raises(ValueError, match=f"divide the number of ranks, 8; it is {replication}"):
        World(2, 4, 1, 0).replicate(replication)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 1, 1, 0), "1 or more nodes, not 0"),
        ((1, 0, 1, 0), "1 or more ranks per node, not 0"),
        ((1, 1, -1, 0), "1 or more workers per rank, not -1"),
        ((1, 2, 3, 6), "no worker 6 in a world of 6: they number 0 to 5"),
        ((1, 1, 1, -1), "no worker -1"),
    ],
)
def test_worlds_that_cannot_be(numbers: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        World(*numbers)


def test_copies_are_equal() -> None:
    world = World(2, 4, 2, 9)
    for other in (world.copy(), pickle.loads(pickle.dumps(world)), eval(repr(world))):
        assert other is not world
        assert other == world
        assert hash(other) == hash(world)
        assert other.to_json() == world.to_json() == vars(world)
    assert world != World(2, 4, 2, 8)
    assert world != "world"
    assert json.loads(json.dumps(world.to_json()))["rank_of_node"] == 0


class Subclass(World):
    pass


def test_a_subclass_makes_its_own() -> None:
    world = Subclass(1, 2, 1, 0)
    made = [world.copy(), world.replicate(2), world.detect_workers(), Subclass.detect()]
    assert {type(each) for each in made} == {Subclass}


def set_variables(monkeypatch: pytest.MonkeyPatch, values: str) -> None:
    for name, value in zip(VARIABLES, values.split(), strict=True):
        if value != "-":
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "world"),
    [
        ("- - - -", World(1, 1, 1, 0)),
        ("3 8 1 2", World(4, 2, 1, 3)),
        ("5 8 5 8", World(1, 8, 1, 5)),
        # Without a local size, each rank is a node.
        ("5 8 - -", World(8, 1, 1, 5)),
        ("5 8 5 -", World(8, 1, 1, 5)),
    ],
)
def test_ranks_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: str, world: World
) -> None:
    set_variables(monkeypatch, variables)
    assert World.detect() == world


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ("8 8 - -", "RANK is 8 and WORLD_SIZE is 8: ranks number from 0"),
        ("-1 8 - -", "RANK is -1"),
        ("3 - - -", "RANK is 3 and WORLD_SIZE is 1"),
        ("0 0 - -", "WORLD_SIZE is 0"),
        ("0 8 0 3", "WORLD_SIZE is 8 and LOCAL_WORLD_SIZE is 3: every node"),
        ("0 8 0 0", "LOCAL_WORLD_SIZE is 0"),
        ("0 8 4 4", "LOCAL_RANK is 4 and LOCAL_WORLD_SIZE is 4"),
        ("one 8 - -", "RANK must be a whole number, not 'one'"),
        ("1 8 - 2.5", "LOCAL_WORLD_SIZE must be a whole number, not '2.5'"),
    ],
)
def test_variables_that_contradict(
    monkeypatch: pytest.MonkeyPatch, variables: str, message: str
) -> None:
    set_variables(monkeypatch, variables)
    with pytest.raises(ValueError, match=message):
        World.detect()


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "")
    assert World.detect() == World(1, 1, 1, 0)


class Worlds(Dataset[Any]):
    """What each worker makes of its world."""

    def __init__(self, of_rank: World) -> None:
        self.of_rank = of_rank

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return World.detect(), self.of_rank.detect_workers()


def test_workers_of_a_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, "3 4 1 2")
    # As where the rank alone knows of its process group: the worker sees the variables.
    of_rank = World(2, 4, 1, 5)
    loader = DataLoader(Worlds(of_rank), batch_size=None, num_workers=2)
    detected, of_workers = zip(*loader, strict=True)
    assert list(detected) == [World(2, 2, 2, 6), World(2, 2, 2, 7)]
    assert list(of_workers) == [World(2, 4, 2, 10), World(2, 4, 2, 11)]
    assert of_rank.detect_workers() == of_rank


def run_python(program: str, **variables: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, **variables}
    return subprocess.Popen(
        [sys.executable, "-W", "always", "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_detecting_imports_nothing() -> None:
    process = run_python(
        "import sys; from streaming.world import World; print(World.detect());"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert out.strip() == "World(num_nodes=1, ranks_per_node=1, workers_per_rank=1, worker=0)"


GROUP = """
import torch.distributed as dist
from streaming.world import World
store = dist.FileStore({store!r}, 2)
dist.init_process_group("gloo", store=store, rank={rank}, world_size=2)
world = World.detect()
assert not __import__("torch").cuda.is_initialized()
dist.barrier()
dist.destroy_process_group()
print(repr(world))
"""


@pytest.mark.parametrize(
    ("variables", "nodes", "warning"),
    [
        ({}, 2, None),
        ({"LOCAL_WORLD_SIZE": "2"}, 1, None),
        (
            {"RANK": "6", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"},
            2,
            "RANK and WORLD_SIZE say that this is rank 6 of 8, torch's process group says",
        ),
    ],
)
def test_a_process_group_is_believed(
    tmp_path: Path, variables: dict[str, str], nodes: int, warning: str | None
) -> None:
    store = str(tmp_path / "store")
    processes = [run_python(GROUP.format(store=store, rank=rank), **variables) for rank in (0, 1)]
    for rank, process in enumerate(processes):
        out, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert out.strip() == repr(World(nodes, 2 // nodes, 1, rank))
        if warning is None:
            assert "process group" not in errors
        else:
            assert warning in errors
            assert "LOCAL_WORLD_SIZE is 8, which does not divide" in errors


def test_detecting_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        World.detect()
