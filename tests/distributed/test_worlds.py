"""Worlds of 1 to 8 processes on 1 to 4 nodes, under torchrun, against one process alone."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from streaming.order import plan_epoch
from streaming.planning import order_params
from streaming.world import World
from tests.data import write_numbers
from tests.distributed.cases import GLOBAL_BATCH, METHODS, NODES, STOP_AFTER
from tests.servers.processes import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

WORLDS = [(1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (1, 8), (2, 4), (4, 2)]
"""Nodes, and processes on each."""
SIZES = (100, 165)


def launch(nodes: int, each: int, folder: Path, name: str) -> None:
    """Run the script on some "nodes", each with an agent of torchrun's of its own."""
    port = free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    agents = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run"),
                *(f"--nnodes={nodes}", f"--node-rank={node}", f"--nproc-per-node={each}"),
                *("--master-addr=127.0.0.1", f"--master-port={port}"),
                *("-m", "tests.distributed.rank", str(folder), name),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in range(nodes)
    ]
    try:
        for agent in agents:
            output, _ = agent.communicate(timeout=180)
            assert agent.returncode == 0, output[-5000:]
    finally:
        for agent in agents:
            agent.kill()


def alone(folder: Path, method: str, epoch: int, world: World | None = None) -> list[list[int]]:
    """Global batches of an epoch as one process reckons them, for itself or for a world."""
    from streaming import Stream, StreamingDataset

    world = world or World(1, 1, 1, 0)
    dataset = StreamingDataset(
        streams=[Stream(local=str(folder / name)) for name in ("a", "b")],
        batch_size=GLOBAL_BATCH // world.num_ranks,
        batching_method=method,
        num_canonical_nodes=NODES,
        shuffle=True,
    )
    params = order_params(dataset, world)
    plan = plan_epoch(params, world.num_nodes, world.ranks_per_node, 1, epoch, 0)
    rows = plan.to_array().transpose(3, 2, 0, 1, 4).reshape(-1, GLOBAL_BATCH)
    # An id is its sample's number: the second stream goes on where the first one ends.
    return [[i for i in row if i >= 0] for row in rows.tolist() if max(row) >= 0]


def joined(everyone: list[Any], case: str, part: str, replication: int) -> list[list[int]]:
    """Global batches of what all ranks have got; replicas have got the same."""
    groups = []
    for first in range(0, len(everyone), replication):
        group = [everyone[rank][case][part] for rank in range(first, first + replication)]
        assert all(other == group[0] for other in group)
        groups.append(group[0])
    assert len({len(batches) for batches in groups}) == 1, "ranks end at different batches"
    return [[i for group in groups for i in group[at]] for at in range(len(groups[0]))]


def in_any_order(batches: list[list[int]]) -> list[list[int]]:
    return [sorted(batch) for batch in batches]


def same_until(method: str, expected: list[list[int]]) -> int:
    """How many of the leading global batches the rule of the documentation says are the same."""
    if method == "random":
        return NODES * -(-sum(SIZES) // NODES) // GLOBAL_BATCH
    if method == "stratified":
        # A stream's part of each batch, from the reference itself.
        parts = [sum(i < SIZES[0] for i in expected[0]), sum(i >= SIZES[0] for i in expected[0])]
        return min(NODES * -(-n // NODES) // part for n, part in zip(SIZES, parts, strict=True))
    return len(expected)


def test_every_world_gives_the_same_global_batches(tmp_path: Path) -> None:
    warnings.simplefilter("ignore")
    write_numbers(tmp_path / "a", SIZES[0])
    write_numbers(tmp_path / "b", SIZES[1], start=SIZES[0])
    for nodes, each in WORLDS:
        launch(nodes, each, tmp_path, f"{nodes}x{each}")
        everyone = json.loads((tmp_path / f"{nodes}x{each}.json").read_text())
        assert len(everyone) == nodes * each
        for case in everyone[0]:
            method, replication = case.split()[0], int(case.split()[1])
            where = f"{nodes} nodes of {each} ranks, {case}"
            check(tmp_path, nodes, each, everyone, method, replication, where)


def check(
    folder: Path,
    nodes: int,
    each: int,
    everyone: list[Any],
    method: str,
    replication: int,
    where: str,
) -> None:
    world = None
    if method == "device_per_stream":
        world = World(nodes, each, 1, 0).replicate(replication)
    case = f"{method} {replication}"
    for epoch, parts in ((0, ("unbroken",)), (1, ("begun", "rest"))):
        expected = alone(folder, method, epoch, world)
        got = [b for part in parts for b in joined(everyone, case, part, replication)]
        if method == "device_per_stream":
            # The epoch ends for all ranks where it ends for the first.
            assert got == expected[: len(got)], where
            assert len(expected) - len(got) <= 1, where
            continue
        same = same_until(method, expected)
        assert STOP_AFTER < same <= len(got) <= len(expected) + 1, where
        assert in_any_order(got[:same]) == in_any_order(expected[:same]), where


@pytest.mark.parametrize("method", METHODS)
def test_the_reference_is_what_one_process_iterates(tmp_path: Path, method: str) -> None:
    from streaming import Stream, StreamingDataLoader, StreamingDataset

    write_numbers(tmp_path / "a", SIZES[0])
    write_numbers(tmp_path / "b", SIZES[1], start=SIZES[0])
    dataset = StreamingDataset(
        streams=[Stream(local=str(tmp_path / name)) for name in ("a", "b")],
        batch_size=GLOBAL_BATCH,
        batching_method=method,
        num_canonical_nodes=NODES,
        shuffle=True,
    )
    loader = StreamingDataLoader(dataset, batch_size=GLOBAL_BATCH)
    for epoch in range(2):
        assert [b["id"].tolist() for b in loader] == alone(tmp_path, method, epoch)
