"""Batching: how the samples of an epoch come together in batches."""

from __future__ import annotations

from collections.abc import Callable

from streaming.order.batching.device_per_stream import plan_device_per_stream
from streaming.order.batching.exact import ExactPlan
from streaming.order.batching.per_stream import plan_per_stream
from streaming.order.batching.random import RandomPlan, plan_random
from streaming.order.batching.stratified import plan_stratified
from streaming.order.draws import EpochDraws
from streaming.order.epoch_plan import BatchPlan
from streaming.order.layout import Layout
from streaming.order.params import OrderParams

MakePlan = Callable[[OrderParams, Layout, EpochDraws, int], RandomPlan | ExactPlan | BatchPlan]
"""(parameters, world, draws, samples used before) -> plan."""

BATCHING_METHODS: dict[str, MakePlan] = {
    "random": plan_random,
    "stratified": plan_stratified,
    "per_stream": plan_per_stream,
    "device_per_stream": plan_device_per_stream,
}
"""The batching methods by name."""
