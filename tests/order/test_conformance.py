"""The recorded cases of every function of the order, exceptions included."""

import gzip
import hashlib
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streaming.order import derive_weights, generate_work, get_partitions, get_sampling, get_shuffle
from streaming.world import World
from tests.conformance_data import CONFORMANCE

CASES = json.loads(gzip.decompress((CONFORMANCE / "order.json.gz").read_bytes()))

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def weights(
    weights: list[dict[str, Any]], samples_per_stream: list[int], epoch_size: int | None, seed: int
) -> dict[str, Any]:
    given = [[each.get(name) for each in weights] for name in ("proportion", "repeat", "choose")]
    return derive_weights(*given, samples_per_stream, epoch_size, seed)._asdict()


def work(
    streams: list[dict[str, Any]],
    epoch_size: int | None,
    resolved_epoch_size: int,
    num_physical_nodes: int,
    ranks_per_node: int,
    workers_per_rank: int,
    epoch: int,
    sample_in_epoch: int,
    **params: Any,
) -> Any:
    shards = [stream.pop("shard_sizes") for stream in streams]
    sizes = [sum(each) for each in shards]
    derived = weights(streams, sizes, epoch_size, params["shuffle_seed"])
    assert derived["epoch_size"] == resolved_epoch_size
    dataset = SimpleNamespace(
        **params,
        epoch_size=resolved_epoch_size,
        streams=[
            SimpleNamespace(choose=choose, proportion=proportion)
            for choose, proportion in zip(derived["choose"], derived["proportion"], strict=True)
        ],
        samples_per_shard=np.concatenate(shards),
        shards_per_stream=np.array([len(each) for each in shards]),
    )
    world = World(num_physical_nodes, ranks_per_node, workers_per_rank, 0)
    return generate_work(params["batching_method"], dataset, world, epoch, sample_in_epoch)


def world(num_nodes: int, ranks_per_node: int, workers_per_rank: int, replication: int) -> Any:
    names = "node num_nodes rank num_ranks rank_of_node ranks_per_node worker num_workers"
    names += " worker_of_node worker_of_rank"
    return np.array(
        [
            [getattr(replicated, name) for name in names.split()]
            for worker in range(num_nodes * ranks_per_node * workers_per_rank)
            for replicated in [
                World(num_nodes, ranks_per_node, workers_per_rank, worker).replicate(replication)
            ]
        ]
    )


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "partition": get_partitions,
    "sampling": get_sampling,
    "shuffle": get_shuffle,
    "weights": weights,
    "work": work,
    "world": world,
}


def outcome(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """What a function does, as the cases record it."""
    try:
        result = function(**arguments)
    except Exception as error:
        return {"error": type(error).__name__}
    if isinstance(result, dict):
        return result
    assert result.dtype == np.int64
    digest = hashlib.sha256(result.astype("<i8").tobytes()).hexdigest()
    return {"shape": list(result.shape), "sha256": digest}


@pytest.mark.parametrize(
    ("group", "number"), [(group, number) for group in CASES for number in range(len(CASES[group]))]
)
def test_recorded(group: str, number: int) -> None:
    case = json.loads(json.dumps(CASES[group][number]))
    case["out"].pop("values", None)
    assert outcome(FUNCTIONS[group], case["in"]) == case["out"]


def test_every_group_is_tested() -> None:
    assert set(CASES) == set(FUNCTIONS)
    assert all(len(cases) >= 96 for cases in CASES.values())
