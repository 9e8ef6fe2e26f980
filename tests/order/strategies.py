"""What hypothesis draws for the tests of the order."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from streaming.order import EpochPlan, OrderParams, StreamShape
from streaming.order.weights import derive_weights

SHUFFLE_ALGOS = ("naive", "py1br", "py1e", "py1s", "py2s", "blockwise")
BATCHING_METHODS = ("random", "stratified", "per_stream", "device_per_stream")


def thorough(examples: int) -> settings:
    """So many cases, the same in every run, however long they take."""
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


def counts(most: int) -> st.SearchStrategy[int]:
    return st.integers(1, most)


@st.composite
def partitions(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `get_partitions`, most of which fit together."""
    canonical = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12]))
    nodes = draw(
        st.sampled_from([n for n in range(1, 13) if n % canonical == 0 or canonical % n == 0])
        | counts(12)
    )
    num_samples = draw(counts(40) | counts(400))
    return {
        "algo": draw(st.sampled_from(["orig", "relaxed"])),
        "num_samples": num_samples,
        "num_canonical_nodes": canonical,
        "num_physical_nodes": nodes,
        "ranks_per_node": draw(counts(5)),
        "workers_per_rank": draw(counts(3)),
        "batch_size": draw(counts(6)),
        "drop_first": draw(st.just(0) | st.integers(0, num_samples + 30)),
        "initial_physical_nodes": draw(st.none() | counts(6)),
    }


@st.composite
def stream_shapes(draw: st.DrawFn, most: int = 4) -> tuple[StreamShape, ...]:
    """Streams with their weights."""
    sizes = draw(st.lists(st.lists(counts(9), min_size=1, max_size=6), min_size=1, max_size=most))
    samples = [sum(each) for each in sizes]
    none = [None] * len(sizes)
    weigh = draw(st.sampled_from(["proportion", "choose", "none"]))
    if weigh == "proportion":
        parts = st.lists(st.integers(1, 10), min_size=len(sizes), max_size=len(sizes))
        epoch = draw(st.integers(1, 3 * sum(samples)))
        derived = derive_weights(draw(parts), none, none, samples, epoch, 7)
    elif weigh == "choose":
        derived = derive_weights(
            none, none, [draw(counts(3 * each)) for each in samples], samples, None, 7
        )
    else:
        derived = derive_weights(none, none, none, samples, None, 7)
    return tuple(
        StreamShape(np.array(shards), choose, proportion)
        for shards, choose, proportion in zip(
            sizes, derived.choose, derived.proportion, strict=True
        )
    )


@st.composite
def order_params(draw: st.DrawFn, **fixed: Any) -> OrderParams:
    """Parameters of an order."""
    streams = fixed.pop("streams", None) or draw(stream_shapes())
    params = OrderParams(
        streams=streams,
        epoch_size=sum(stream.choose for stream in streams),
        batch_size=draw(counts(4)),
        num_canonical_nodes=draw(st.sampled_from([1, 2, 3, 4])),
        shuffle=draw(st.booleans()),
        shuffle_algo=draw(st.sampled_from(SHUFFLE_ALGOS)),
        shuffle_seed=draw(st.integers(0, 99)),
        shuffle_block_size=draw(st.sampled_from([4, 20, 200])),
        sampling_method=draw(st.sampled_from(["balanced", "fixed"])),
        sampling_granularity=draw(st.sampled_from([1, 3])),
        partition_algo=draw(st.sampled_from(["orig", "relaxed"])),
        batching_method=draw(st.sampled_from(BATCHING_METHODS)),
        initial_physical_nodes=draw(st.none() | counts(4)),
    )
    return replace(params, **fixed)


def lanes(plan: EpochPlan) -> list[tuple[int, int]]:
    """The ranks of a plan's world, as (node, rank of the node)."""
    return list(product(range(plan.shape[0]), range(plan.shape[1])))


def global_batches(plan: EpochPlan) -> list[list[int]]:
    """A plan's global batches that hold samples, each in order of use, padding left out."""
    nodes, ranks, workers, batches_each, batch_size = plan.shape
    in_use = plan.to_array().transpose(3, 2, 0, 1, 4)
    in_use = in_use.reshape(batches_each * workers, nodes * ranks * batch_size)
    batches = [[sample for sample in batch if sample >= 0] for batch in in_use.tolist()]
    return [batch for batch in batches if batch]
