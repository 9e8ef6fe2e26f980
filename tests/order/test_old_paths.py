"""The import paths of mosaicml-streaming lead to the same objects."""

from importlib import import_module

import pytest

from streaming import order, world
from streaming.order import partition, shuffle, work
from streaming.order.shuffle import spans

SHUFFLES = ("naive", "py1br", "py1e", "py1s", "py2s")
METHODS = ("random", "stratified", "per_stream", "device_per_stream")

NAMES = [
    ("partition", partition, "get_partitions"),
    *((f"partition.{each}", partition, f"get_partitions_{each}") for each in ("orig", "relaxed")),
    *(("partition", partition, f"get_partitions_{each}") for each in ("orig", "relaxed")),
    ("shuffle", shuffle, "get_shuffle"),
    *((f"shuffle.{each}", shuffle, f"get_shuffle_{each}") for each in SHUFFLES),
    *(("shuffle", shuffle, f"get_shuffle_{each}") for each in SHUFFLES),
    ("shuffle.py1s", spans, "divide_spans"),
    ("sampling", order, "get_sampling"),
    ("batching", work, "generate_work"),
    *((f"batching.{each}", work, f"generate_work_{each}_batching") for each in METHODS),
    *(("batching", work, f"generate_work_{each}_batching") for each in METHODS),
    ("spanner", order, "Spanner"),
    ("world", world, "World"),
]


@pytest.mark.parametrize(("path", "home", "name"), NAMES)
def test_old_path(path: str, home: object, name: str) -> None:
    module = import_module(f"streaming.base.{path}")
    assert getattr(module, name) is getattr(home, name)
    assert name in module.__all__
