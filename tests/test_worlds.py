"""Ranks, nodes and replicas: given as arguments, found out, or read off a device mesh."""

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest
from torch.utils.data import DataLoader

from streaming import StreamingDataLoader, StreamingDataset
from streaming.order import plan_epoch
from streaming.placement import groups_of_mesh
from streaming.planning import order_params
from streaming.world import World
from tests.data import write_numbers

SAMPLES = 100
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_numbers(tmp_path_factory.mktemp("worlds") / "numbers", SAMPLES))


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def open_dataset(local: str, **kwargs: Any) -> StreamingDataset:
    return StreamingDataset(local=local, **{"batch_size": 4, "shuffle": True, **kwargs})


def given(dataset: StreamingDataset) -> list[int]:
    return [sample["id"] for sample in dataset]


def planned(local: str, nodes: int, ranks: int, rank: int) -> list[int]:
    world = World(nodes, ranks, 1, rank)
    plan = plan_epoch(order_params(open_dataset(local), world), nodes, ranks, 1, 0)
    return [i for i in plan.ids(world.node, world.rank_of_node, 0).tolist() if i >= 0]


# Arguments.


@pytest.mark.parametrize(("nodes", "ranks"), [(1, 3), (2, 2), (4, 1)])
def test_a_place_can_be_given(local: str, nodes: int, ranks: int) -> None:
    for rank in range(nodes * ranks):
        place = {"rank": rank, "world_size": nodes * ranks, "local_world_size": ranks}
        assert given(open_dataset(local, **place)) == planned(local, nodes, ranks, rank)
        for copied in (pickle, cloudpickle):
            dataset = pickle.loads(copied.dumps(open_dataset(local, **place)))
            assert given(dataset) == planned(local, nodes, ranks, rank)


def test_the_nodes_of_a_given_place(local: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"rank": 1, "world_size": 4}
    assert given(open_dataset(local, **place)) == planned(local, 4, 1, 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert given(open_dataset(local, **place)) == planned(local, 2, 2, 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert given(open_dataset(local, **place)) == planned(local, 4, 1, 1)


def test_a_given_place_wins(local: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert given(open_dataset(local, world_size=1)) == planned(local, 1, 1, 0)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"rank": 1}, "need a `world_size`"),
        ({"local_world_size": 2}, "need a `world_size`"),
        ({"world_size": 2}, "give this process's `rank`"),
        ({"rank": 2, "world_size": 2}, "`rank` is 2 and `world_size` is 2"),
        ({"rank": -1, "world_size": 2}, "`rank` is -1"),
        ({"rank": 0, "world_size": 4, "local_world_size": 3}, "equally many ranks"),
        ({"replicate_dims": "tp"}, "give one"),
        ({"device_mesh": SimpleNamespace()}, "Give `replicate_dims`"),
        ({"device_mesh": SimpleNamespace(), "replication": 2}, "not both"),
        ({"pad": "some"}, "`pad` is 'some': give one of repeat, none"),
        ({"pad": "none", "batching_method": "stratified"}, "every sample once"),
    ],
)
def test_places_that_cannot_be(local: str, place: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_dataset(local, **place)


# Finding out.


def read(dataset: StreamingDataset, results: Any, rank: int, workers: int, method: str) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    loader = DataLoader(
        dataset, batch_size=None, num_workers=workers, multiprocessing_context=method
    )
    results.put((rank, [sample["id"] for sample in loader]))


def test_a_dataset_made_before_its_ranks(local: str) -> None:
    """Spawned with its rank's process, it finds out anew there, and in the workers of that."""
    dataset = open_dataset(local)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [
        context.Process(target=read, args=(dataset, results, rank, 1, ("fork", "spawn")[rank]))
        for rank in (0, 1)
    ]
    for each in ranks:
        each.start()
    for _ in ranks:
        rank, ids = results.get(timeout=90)
        assert ids == planned(local, 1, 2, rank)
    for each in ranks:
        each.join(30)


def run_ranks(count: int, program: str, tmp_path: Path, *arguments: str) -> list[Any]:
    """What each of some processes prints as its last line of JSON; `rank`, `store` are there."""
    start = (
        "import json, sys, torch, torch.distributed as dist\n"
        "from streaming import StreamingDataset, StreamingDataLoader\n"
        "from tests.test_worlds import open_dataset, given\n"
        "rank, count, local = int(sys.argv[1]), int(sys.argv[2]), sys.argv[4]\n"
        "def init():\n"
        "    store = dist.FileStore(sys.argv[3], count)\n"
        "    dist.init_process_group('gloo', store=store, rank=rank, world_size=count)\n"
    )
    end = "\ndist.barrier(); dist.destroy_process_group()\n"
    script = tmp_path / "rank.py"
    script.write_text(f"{start}if __name__ == '__main__':\n" + indent(program + end))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                str(script),
                str(rank),
                str(count),
                str(tmp_path / "store"),
                *arguments,
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    outputs = [process.communicate(timeout=110) for process in processes]
    assert [process.returncode for process in processes] == [0] * count, outputs
    return [json.loads(out.strip().splitlines()[-1]) for out, _ in outputs]


def indent(program: str) -> str:
    return "".join(f"    {line}\n" for line in program.strip().splitlines())


WORKERS = """
def refuse(*_, **__):
    raise AssertionError("CUDA was touched, or a collective was run")
torch.cuda._lazy_init = torch.cuda.init = refuse
dataset = open_dataset(local)
init()
collectives = dist.barrier, dist.all_reduce, dist.broadcast, dist.all_gather
dist.barrier = dist.all_reduce = dist.broadcast = dist.all_gather = refuse
later = open_dataset(local)
seen = []
for made in (dataset, later):
    for method in ("fork", "spawn", "forkserver"):
        made.next_epoch = 0
        loader = torch.utils.data.DataLoader(
            made, batch_size=None, num_workers=1, multiprocessing_context=method)
        seen.append([sample["id"] for sample in loader])
    made.next_epoch = 0
    seen.append(given(made))
dist.barrier = collectives[0]
print(json.dumps(seen))
"""


@pytest.mark.timeout(240)
def test_workers_of_ranks_that_have_only_a_process_group(local: str, tmp_path: Path) -> None:
    for rank, seen in enumerate(run_ranks(2, WORKERS, tmp_path, local)):
        assert seen == [planned(local, 2, 1, rank)] * 8


# Replicas.


def simulate(mesh: np.ndarray[Any, Any], names: tuple[str, ...], dims: Any) -> Any:
    return groups_of_mesh(None, SimpleNamespace(mesh=mesh, mesh_dim_names=names), dims)


def test_consecutive_replicas_of_a_mesh_are_replication() -> None:
    """16 nodes of 8 ranks of 8 workers."""
    for replication in (1, 2, 4, 8, 16, 32, 128):
        mesh = np.arange(128).reshape(-1, replication)
        groups = simulate(mesh, ("dp", "tp"), "tp")
        for worker in range(0, 1024, 7):
            world = World(16, 8, 8, worker)
            assert world.group(groups) == world.replicate(replication)


@pytest.mark.parametrize(
    ("shape", "names", "dims"),
    [
        ((8, 16), ("tp", "dp"), ["tp"]),
        ((2, 8, 8), ("pp", "dp", "tp"), ["pp", "tp"]),
        ((2, 4, 2, 8), ("cp", "dp_replicate", "tp", "dp_shard"), ("tp", "cp")),
    ],
)
def test_replicas_anywhere_in_a_mesh(
    local: str, shape: tuple[int, ...], names: tuple[str, ...], dims: Any
) -> None:
    """Each group of replicas gets the same samples, and all groups together each sample once."""
    mesh = np.arange(128).reshape(shape)
    groups = simulate(mesh, names, dims)
    shares = len(groups)
    # By coordinates: ranks that differ only along the shared dimensions are one group.
    own = [axis for axis, name in enumerate(names) if name not in dims]
    for group in groups:
        coordinates = {tuple(np.argwhere(mesh == rank)[0][own]) for rank in group}
        assert len(coordinates) == 1
    params = order_params(open_dataset(local), World(1, 1, 1, 0))
    places = set()
    given: list[int] = []
    for rank in range(128):
        worlds = [World(16, 8, 8, rank * 8 + worker).group(groups) for worker in range(8)]
        (place,) = {(w.num_nodes, w.ranks_per_node, w.rank) for w in worlds}
        assert [w.worker_of_rank for w in worlds] == list(range(8))
        if place not in places:
            places.add(place)
            plan = plan_epoch(params, place[0], place[1], 8, 0)
            for world in worlds:
                ids = plan.ids(world.node, world.rank_of_node, world.worker_of_rank)
                given += ids[ids >= 0].tolist()
    assert len(places) == shares
    assert set(given) == set(range(SAMPLES))
    assert len(given) == -(-SAMPLES // shares) * shares


def test_a_pipeline_stage_has_a_mesh_of_its_own() -> None:
    whole = np.arange(16).reshape(2, 4, 2)
    by_stage = [simulate(stage, ("dp", "tp"), "tp") for stage in whole]
    together = simulate(whole, ("pp", "dp", "tp"), ("pp", "tp"))
    for stage, groups in enumerate(by_stage):
        for rank in whole[stage].ravel().tolist():
            world = World(2, 8, 1, rank)
            assert world.group(groups) == world.group(together)
    with pytest.raises(ValueError, match="Rank 9 is not in the device mesh"):
        World(2, 8, 1, 9).group(by_stage[0])


def test_names_that_a_mesh_has_not() -> None:
    with pytest.raises(ValueError, match="'sp', but the device mesh has 'dp', 'tp'"):
        simulate(np.arange(4).reshape(2, 2), ("dp", "tp"), ["tp", "sp"])


MESH = """
init()
from torch.distributed.device_mesh import init_device_mesh
seen = []
for names, shape in ((("dp", "tp"), (2, 2)), (("tp", "dp"), (2, 2))):
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    dataset = open_dataset(local, device_mesh=mesh, replicate_dims=("tp",))
    assert dataset.replication == 2
    loader = StreamingDataLoader(
        dataset, batch_size=4, num_workers=1, multiprocessing_context="spawn")
    batches = iter(loader)
    seen.append(next(batches)["id"].tolist())
    seen.append(loader.state_dict()["sample_in_epoch"])
    seen[-2] += [i for batch in batches for i in batch["id"].tolist()]
print(json.dumps(seen))
"""


@pytest.mark.long
@pytest.mark.timeout(240)
def test_real_meshes(local: str, tmp_path: Path) -> None:
    results = run_ranks(4, MESH, tmp_path, local)
    # Nodes of one rank each: two groups are two nodes.
    shares = [planned(local, 2, 1, group) for group in (0, 1)]
    assert [result[0] for result in results] == [shares[0], shares[0], shares[1], shares[1]]
    assert [result[2] for result in results] == [shares[0], shares[1], shares[0], shares[1]]
    # Counted once a group.
    assert all(result[1] == result[3] == 8 for result in results)


# The end of an epoch.


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("method", ["random", "stratified", "per_stream", "device_per_stream"])
def test_every_rank_gets_equally_many_batches(local: str, method: str, drop_last: bool) -> None:
    for nodes, ranks in ((1, 1), (1, 3), (2, 1), (2, 2), (4, 2)):
        for size in (48, 61, 100):
            for workers in (0, 1, 2, 3):
                counts = set()
                for rank in range(nodes * ranks):
                    dataset = open_dataset(
                        local,
                        batch_size=3,
                        epoch_size=size,
                        batching_method=method,
                        num_canonical_nodes=4,
                        rank=rank,
                        world_size=nodes * ranks,
                        local_world_size=ranks,
                    )
                    counts.add(dataset.count_batches(workers, 3, drop_last))
                assert len(counts) == 1


# Every sample once.


@pytest.mark.parametrize(
    ("nodes", "ranks", "replication"), [(1, 1, 1), (1, 3, 1), (2, 2, 2), (3, 2, 1)]
)
@pytest.mark.parametrize("size", [1, 17, 50, 100])
def test_without_padding_each_sample_comes_once(
    local: str, nodes: int, ranks: int, replication: int, size: int
) -> None:
    seen: list[int] = []
    batches = []
    for rank in range(nodes * ranks):
        dataset = open_dataset(
            local,
            pad="none",
            epoch_size=size,
            rank=rank,
            world_size=nodes * ranks,
            local_world_size=ranks,
            replication=replication,
            num_canonical_nodes=5,
            shuffle_algo="py1br",
        )
        loader = StreamingDataLoader(dataset, batch_size=4)
        own = [batch["id"].tolist() for batch in loader]
        assert len(loader) == len(own)
        assert len(dataset) == sum(map(len, own))
        batches.append(len(own))
        if rank % replication == 0:
            seen += [i for batch in own for i in batch]
    assert len(seen) == len(set(seen)) == size
    assert max(batches) - min(batches) <= 1


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_rank_with_a_batch_less_ends_the_epoch_for_nobody(local: str, drop_last: bool) -> None:
    """Of 98 samples in global batches of 12, rank 2 gets none of the ninth, the others one each."""
    size = {"batch_size": 4, "epoch_size": 98, "pad": "none", "world_size": 3}
    for rank in range(3):
        dataset = open_dataset(local, **size, rank=rank)
        loader = StreamingDataLoader(dataset, batch_size=4, drop_last=drop_last)
        batches = iter(loader)
        states = [loader.state_dict() for _ in batches]
        counted = [state["sample_in_epoch"] for state in states if state is not None]
        ended = loader.state_dict()
        assert ended is not None
        assert ended["sample_in_epoch"] == 98
        whole = [12, 24, 36, 48, 60, 72, 84, 96]
        if drop_last:  # nobody gets a ninth one
            assert counted == [*whole[:-1], 98]
        else:
            assert counted == (whole if rank == 2 else [*whole, 98])
        if not drop_last and rank == 2:
            rest = StreamingDataLoader(
                open_dataset(local, **{**size, "batch_size": 12, "world_size": 1}), batch_size=12
            )
            rest.load_state_dict(states[-1])
            assert [len(batch["id"]) for batch in rest] == [2]
            assert len(list(rest)) == len(rest) == 9


@pytest.mark.parametrize("workers", [2, 3])
def test_without_padding_lengths_are_right_with_workers(local: str, workers: int) -> None:
    dataset = open_dataset(local, pad="none", rank=1, world_size=3)
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=workers)
    batches = iter(loader)
    first = [next(batches)["id"].tolist() for _ in range(3)]
    state = loader.state_dict()
    rest = [batch["id"].tolist() for batch in batches]
    assert len(first + rest) == len(loader)
    resumed = StreamingDataLoader(
        open_dataset(local, pad="none", rank=1, world_size=3), batch_size=4
    )
    resumed.load_state_dict(state)
    assert sorted(i for batch in resumed for i in batch["id"].tolist()) == sorted(
        i for batch in rest for i in batch
    )
