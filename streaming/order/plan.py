"""Planning an epoch: the one entry to the order of samples."""

from __future__ import annotations

import logging

from streaming.order.batching import BATCHING_METHODS
from streaming.order.draws import EpochDraws
from streaming.order.epoch_plan import EpochPlan
from streaming.order.layout import Layout, check_world
from streaming.order.params import OrderParams

__all__ = ["EpochPlan", "OrderParams", "plan_epoch"]

logger = logging.getLogger(__name__)


def plan_epoch(
    params: OrderParams,
    num_nodes: int,
    ranks_per_node: int,
    workers_per_rank: int,
    epoch: int,
    sample_in_epoch: int = 0,
    *,
    even_ranks: bool = True,
    draws: EpochDraws | None = None,
) -> EpochPlan:
    """Plan an epoch, or what is left of it, for a world.

    Args:
        params: the data set's parameters.
        num_nodes: nodes of the world, in which each group of replicas counts as one rank.
        ranks_per_node: ranks of each node.
        workers_per_rank: workers of each rank.
        epoch: number of the epoch, from 0.
        sample_in_epoch: samples used before, over all ranks.
        even_ranks: whether the epoch ends for all ranks where it ends for the first of them. Only
            `device_per_stream`, and `random` resumed on other nodes by the `relaxed` partition,
            give some ranks more than others; `EpochPlan.left_out` says how much that was. False:
            exactly what mosaicml-streaming deals out.
        draws: the epoch's draws, where another plan of the same parameters has made them.

    Raises:
        ValueError: the parameters, the world or what was used before don't fit together.

    >>> import numpy as np
    >>> from streaming.order import StreamShape
    >>> stream = StreamShape(np.array([5, 5]), choose=10, proportion=1.0)
    >>> params = OrderParams((stream,), 10, batch_size=2, num_canonical_nodes=1)
    >>> rest = plan_epoch(params, 1, 1, 1, epoch=0, sample_in_epoch=6)
    >>> rest.ids(node=0, rank=0, worker=0).tolist()
    [6, 7, 8, 9]
    """
    method = BATCHING_METHODS.get(params.batching_method)
    if method is None:
        raise ValueError(
            f"There is no batching method {params.batching_method!r}; use one of "
            f"{', '.join(BATCHING_METHODS)}."
        )
    if params.pad not in ("repeat", "none"):
        raise ValueError(f"`pad` is {params.pad!r}: use 'repeat' or 'none'.")
    if params.pad == "none" and params.batching_method != "random":
        raise ValueError(
            f"Batching {params.batching_method!r} leaves out what fills no batch, so that it can't "
            'give every sample once: use `batching_method="random"` with `pad="none"`.'
        )
    if epoch < 0 or sample_in_epoch < 0:
        raise ValueError(f"There is no sample {sample_in_epoch} of epoch {epoch} to begin at.")
    if not params.streams:
        raise ValueError("An epoch of no streams can't be planned.")
    check_world(num_nodes, ranks_per_node, workers_per_rank, params.batch_size)
    world = Layout(num_nodes, ranks_per_node, workers_per_rank, 0, params.batch_size)
    plan = method(params, world, draws or EpochDraws(params, epoch), sample_in_epoch)
    if even_ranks:
        plan.even_out()
        if plan.left_out:
            logger.info(
                "Epoch %d ends for all ranks where the first of them ends, by which %d samples are "
                "left out.",
                epoch,
                plan.left_out,
            )
    return plan
