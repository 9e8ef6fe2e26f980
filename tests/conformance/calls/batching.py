"""How batches are dealt out."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .codec import outcome
from .formats import written
from .scenario import SCENARIOS, public, scenario

METHODS = ("random", "stratified", "per_stream", "device_per_stream")


def _dataset(method: str, folder: Path) -> Any:
    streams = []
    for part in ("a", "b"):
        local = folder / part
        if not local.exists():
            written(local)
        streams.append(public("Stream")(local=str(local / "written"), repeat=3))
    return public("StreamingDataset")(
        streams=streams,
        batch_size=2,
        shuffle=True,
        num_canonical_nodes=1,
        shuffle_block_size=100,
        batching_method=method,
    )


def _work(method: str, function: Any, folder: Path) -> Any:
    dataset = _dataset(method, folder)
    world = public("base.world.World")(1, 2, 1, 0)
    return [np.asarray(function(dataset, world, epoch, 4 * epoch)) for epoch in (0, 1)]


for _method in METHODS:
    SCENARIOS[f"generate_work_{_method}_batching"] = partial(_work, _method)


@scenario("generate_work")
def generate_work(function: Any, folder: Path) -> Any:
    per_method = [_work(m, partial(function, m), folder) for m in METHODS]
    return [*per_method, outcome(partial(_work, "random"), partial(function, "nope"), folder)]
