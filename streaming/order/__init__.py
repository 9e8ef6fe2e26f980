"""Which sample goes to which worker, and when: pure functions of numbers.

`plan_epoch` makes the plan of an epoch from its parameters and the world. A plan answers for any
slice of any worker's samples. The other names are the steps that a plan consists of, some of them
under the names and with the signatures that they have in mosaicml-streaming.
"""

from streaming.order.batching import BATCHING_METHODS
from streaming.order.draws import EpochDraws, SampleIds, draw_ids
from streaming.order.epoch_plan import EpochPlan
from streaming.order.params import OrderParams, StreamShape
from streaming.order.partition import PARTITION_ALGOS, get_partitions
from streaming.order.plan import plan_epoch
from streaming.order.sampling import get_sampling, resample
from streaming.order.shuffle import SHUFFLE_ALGOS, draw_shuffle, get_shuffle
from streaming.order.spanner import Spanner
from streaming.order.weights import Weights, derive_weights, validate_weights
from streaming.order.work import generate_work

__all__ = [
    "BATCHING_METHODS",
    "PARTITION_ALGOS",
    "SHUFFLE_ALGOS",
    "EpochDraws",
    "EpochPlan",
    "OrderParams",
    "SampleIds",
    "Spanner",
    "StreamShape",
    "Weights",
    "derive_weights",
    "draw_ids",
    "draw_shuffle",
    "generate_work",
    "get_partitions",
    "get_sampling",
    "get_shuffle",
    "plan_epoch",
    "resample",
    "validate_weights",
]
