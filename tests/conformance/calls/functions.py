"""Functions of plain values: compression, hashes, encodings, order, registries, utilities."""

import bz2
import gzip
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .codec import outcome
from .scenario import SCENARIOS, public, scenario

DATA = b"the quick brown fox " * 20

CALLS: dict[str, list[tuple[Any, ...]]] = {
    "get_compressions": [()],
    "is_compression": [
        ("zstd",),
        ("zstd:7",),
        ("zstd:99",),
        ("gz",),
        ("gz:0",),
        ("nope",),
        (None,),
    ],
    "get_compression_extension": [
        ("br",),
        ("br:5",),
        ("bz2",),
        ("gz:9",),
        ("snappy",),
        ("zstd:3",),
    ],
    "get_hash": [
        *((algo, DATA) for algo in ("md5", "sha1", "sha256", "blake2b", "sha3_384")),
        *((algo, DATA) for algo in ("xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128")),
        ("sha1", b""),
        ("nope", DATA),
    ],
    "get_hashes": [()],
    "is_hash": [("sha1",), ("xxh3_64",), ("shake_128",), ("nope",)],
    "is_json_encoding": [("str",), ("int",), ("float",), ("bool",), ("bytes",)],
    "is_json_encoded": [
        *(("int", v) for v in (1, "1", 1.5, True)),
        *(("float", v) for v in (1, 1.5)),
        *(("str", v) for v in ("a", 1)),
        ("nope", 1),
    ],
    "is_xsv_encoding": [("str",), ("int",), ("float",), ("bytes",)],
    "xsv_encode": [
        *(("int", v) for v in (5, -3, 1.5, "x")),
        *(("str", v) for v in ("a", "ü", 4)),
        *(("float", v) for v in (0.1, 1e300, 3)),
        ("nope", 1),
    ],
    "xsv_decode": [("int", "5"), ("float", "0.1"), ("str", "x"), ("int", "x"), ("nope", "1")],
    "get_mds_encodings": [()],
    "is_mds_encoding": [
        *((e,) for e in ("int", "str", "pkl", "ndarray", "ndarray:int32", "ndarray:int32:3,4")),
        *((e,) for e in ("ndarray:nope", "nope", "list[jpeg]", "str_decimal", "float64")),
    ],
    "is_mds_encoding_safe": [("int",), ("pkl",), ("ndarray",)],
    "get_mds_encoded_size": [
        *((e,) for e in ("int", "str", "uint8", "float64", "ndarray", "ndarray:int16:3,4")),
        ("nope",),
    ],
    "mds_encode": [
        *(("int", v) for v in (5, -1, 2**63 - 1, 2**63, "5", 1.5)),
        *(("str", v) for v in ("", "ü", b"x")),
        *(("bytes", v) for v in (b"", b"x", "x")),
        *(("float32", v) for v in (np.float32(1.5), 2.0)),
        *(("uint8", v) for v in (np.uint8(255), 255, 256)),
        ("str_int", 12345678901234567890),
        ("str_float", 0.1),
        ("json", {"a": [1, None, "ü"]}),
        ("ndarray", np.arange(6, dtype=np.int16).reshape(2, 3)),
        ("ndarray:int16", np.arange(6, dtype=np.int16).reshape(2, 3)),
        ("ndarray:int16:2,3", np.arange(6, dtype=np.int16).reshape(2, 3)),
        ("ndarray:int16:2,3", np.arange(5, dtype=np.int16)),
        ("ndarray:int16", np.arange(5, dtype=np.int32)),
        ("nope", 1),
    ],
    "mds_decode": [
        ("int", (5).to_bytes(8, "little")),
        ("str", "ü".encode()),
        ("bytes", b"x"),
        ("uint16", b"\x01\x02"),
        ("str_decimal", b"1.50"),
        ("json", b'{"a": 1}'),
        ("ndarray:int16:2,3", np.arange(6, dtype="<i2").tobytes()),
        ("nope", b""),
    ],
    "get_index_basename": [()],
    "bytes_to_int": [
        *((text,) for text in ("10", "100kb", "1.5mb", "2GB", "3 tb", "4pb", "5eb", "7b", "64MB")),
        *((value,) for value in (12, 0, "", "mb", "1xb", "-5kb", 1.5)),
    ],
    "number_abbrev_to_int": [
        *((text,) for text in ("10", "10k", "1.5m", "2b", "3t", "4K", "7 k")),
        *((value,) for value in (12, "", "k", "1x", "-3k")),
    ],
    "get_list_arg": [("a,b,c",), ("",), ("a",), ("a, b",)],
    "get_sampling": [
        (np.array([5, 3, 7]), 15, 1, 9, 2, True),
        (np.array([5, 3, 7]), 10, 2, 9, 2, True),
        (np.array([5, 3, 7]), 40, 4, 9, 2, False),
        (np.array([5, 3, 7]), -1, 1, 9, 2, True),
    ],
    "get_partitions": [
        ("orig", 17, 2, 2, 2, 1, 3),
        ("relaxed", 24, 4, 3, 2, 1, 2, 4, 2),
        ("nope", 17, 2, 2, 2, 1, 3),
    ],
    "get_partitions_orig": [(17, 2, 2, 2, 1, 3), (17, 2, 3, 2, 1, 3)],
    "get_partitions_relaxed": [(24, 4, 3, 2, 1, 2, 4, 2), (17, 2, 2, 2, 1, 3)],
    "get_shuffle": [
        *((a, np.array([9, 4, 7]), 2, 5, 1, 8) for a in ("py1e", "py1br", "py1s", "py2s", "naive")),
        ("nope", np.array([9, 4, 7]), 2, 5, 1, 8),
    ],
    **{
        f"get_shuffle_{algo}": [(np.array([9, 4, 7]), 2, 5, 1, 8), (np.array([6]), 1, 5, 0)]
        for algo in ("py1e", "py1br", "py1s", "py2s", "naive")
    },
    "divide_spans": [([(0, 9), (20, 24), (9, 16)], 20, 3), ([(0, 4), (4, 8)], 8, 2)],
    "clean_stale_shared_memory": [()],
    "get_rank": [()],
    "get_world_size": [()],
    "get_local_rank": [()],
    "get_local_world_size": [()],
    "barrier": [()],
}
"""Positional arguments, call by call."""


def _calls(rows: list[tuple[Any, ...]], function: Any, folder: Path) -> Any:
    return [outcome(function, *row) for row in rows]


for _name, _rows in CALLS.items():
    SCENARIOS[_name] = partial(_calls, _rows)


@scenario("compress")
def compress(function: Any, folder: Path) -> Any:
    decompress = public("base.compression.decompress")
    algos = ("br", "br:3", "bz2", "bz2:5", "gz", "gz:4", "snappy", "zstd", "zstd:7", None)
    there_and_back = [decompress(a, function(a, DATA)) == DATA for a in algos]
    return [there_and_back, outcome(function, "nope", DATA), outcome(function, "zstd:99", DATA)]


@scenario("decompress")
def decompress(function: Any, folder: Path) -> Any:
    rows = [
        ("gz", gzip.compress(b"abc", mtime=0)),
        ("bz2:3", bz2.compress(b"abc")),
        (None, b"abc"),
        ("nope", b"abc"),
    ]
    return [outcome(function, *row) for row in rows]


@scenario("broadcast")
def broadcast(function: Any, folder: Path) -> Any:
    import torch

    tensor = torch.arange(3)
    return [outcome(function, tensor, 0), tensor.tolist()]


@scenario("all_gather")
def all_gather(function: Any, folder: Path) -> Any:
    import torch

    return outcome(function, [torch.zeros(3)], torch.ones(3))


@scenario("streaming.base.distributed.all_gather_object")
def all_gather_object(function: Any, folder: Path) -> Any:
    return outcome(function, {"a": 1})


@scenario("streaming.base.distributed.maybe_init_dist")
def maybe_init_dist(function: Any, folder: Path) -> Any:
    return outcome(function)


@scenario("get_import_exception_message")
def get_import_exception_message(function: Any, folder: Path) -> Any:
    # The words name the distribution to install, which is another one.
    return type(function("snappy", "compression")).__name__


@scenario("retry")
def retry(function: Any, folder: Path) -> Any:
    def run(decorate: Any, error: Exception, failures: int) -> Any:
        seen = []

        def flaky(x: int) -> int:
            seen.append(x)
            if len(seen) <= failures:
                raise error
            return x + 1

        return [outcome(decorate(flaky), 4), seen]

    quick = {"initial_backoff": 0.001, "max_jitter": 0.001}
    cleaned: list[int] = []
    return [
        run(function(num_attempts=3, **quick), ValueError(), 2),
        run(function(num_attempts=2, **quick), ValueError(), 2),
        run(function(KeyError, num_attempts=3, **quick), ValueError(), 1),
        run(function([KeyError, ValueError], num_attempts=3, **quick), ValueError(), 1),
        run(function(clean_up_fn=lambda: cleaned.append(1), **quick), ValueError(), 2),
        cleaned,
        run(function, ValueError(), 0),
    ]


@scenario("wait_for_file_to_exist")
def wait_for_file_to_exist(function: Any, folder: Path) -> Any:
    there = folder / "there"
    there.write_text("")
    return [
        outcome(function, str(there), 0.01, 1.0, "no file"),
        outcome(function, str(folder / "missing"), 0.01, 0.05, "no file"),
    ]


@scenario("merge_index")
def merge_index(function: Any, folder: Path) -> Any:
    writer = public("MDSWriter")
    for part in ("a", "b"):
        with writer(columns={"x": "int"}, out=str(folder / part), size_limit=100) as out:
            for x in range(5):
                out.write({"x": x})
    merged = [function(str(folder)), (folder / "index.json").read_text()]
    parts = [str(folder / part / "index.json") for part in ("a", "b")]
    (folder / "elsewhere").mkdir()
    listed = [function(parts, str(folder / "elsewhere"), keep_local=True)]
    listed.append((folder / "elsewhere" / "index.json").read_text())
    wrong = ["raises" in outcome(function, *arguments) for arguments in ((), (1, 2, 3))]
    return [*merged, *listed, wrong]


@scenario("create_registry")
def create_registry(function: Any, folder: Path) -> Any:
    registry = function("calls", "created", generic_type=type, description="words")
    registry.register("int", func=int)
    return [registry.get_all(), registry.namespace, registry.description, registry.entry_points]


@scenario("TypedRegistry")
def typed_registry(cls: Any, folder: Path) -> Any:
    registry = cls(("calls", "typed"), entry_points=True, description="words")
    decorated = registry.register("decorated")(str)
    return [
        registry.register("int", func=int),
        registry("called", func=float),
        registry.register_class("class", func=dict),
        decorated,
        registry.get("int"),
        outcome(registry.get, "missing"),
        registry.get_all(),
        "int" in registry,
        "missing" in registry,
        registry.get_entry_points(),
        registry.get_entry_point("missing"),
        registry.get_entry_point("missing", default=list),
    ]


@scenario("construct_from_registry")
def construct_from_registry(function: Any, folder: Path) -> Any:
    registry = public("base.registry_utils.create_registry")("calls", "made", generic_type=object)
    registry.register("dict", func=dict)
    registry.register("sorted", func=sorted)
    registry.register("number", func=3)
    partial_sorted = function("sorted", registry, kwargs={"reverse": True})
    return [
        function("dict", registry, kwargs={"a": 1}),
        partial_sorted([1, 3, 2]),
        outcome(function, "sorted", registry, partial_function=False, kwargs={"a": 1}),
        outcome(function, "dict", registry, pre_validation_function=dict),
        outcome(function, "dict", registry, pre_validation_function=list),
        outcome(function, "dict", registry, pre_validation_function=3),
        outcome(function, "dict", registry, post_validation_function=[].append),
        outcome(function, "number", registry),
        outcome(function, "missing", registry),
    ]


@scenario("save_registry")
def save_registry(function: Any, folder: Path) -> Any:
    registry = public("base.registry_utils.create_registry")("calls", "saved", generic_type=object)
    with function():
        registry.register("dict", func=dict)
        inside = "dict" in registry
    return [inside, "dict" in registry]


@scenario("import_file")
def import_file(function: Any, folder: Path) -> Any:
    good, bad = folder / "good.py", folder / "bad.py"
    good.write_text("X = 5")
    bad.write_text("raise KeyError")
    return [
        function(str(good)).X,
        function(good).X,
        outcome(function, str(bad)),
        outcome(function, str(folder / "missing.py")),
    ]


@scenario("Spanner")
def spanner(cls: Any, folder: Path) -> Any:
    made = [cls(np.array([3, 5, 2])), cls(np.array([3, 5, 2]), span_size=2)]
    return [[list(map(int, s[i])) for i in range(10)] for s in made] + [
        outcome(made[0].__getitem__, 10),
        outcome(made[0].__getitem__, -1),
    ]


@scenario("World")
def world(cls: Any, folder: Path) -> Any:
    keys = (
        *("node", "num_nodes", "rank", "num_ranks", "rank_of_node", "ranks_per_node"),
        *("worker", "num_workers", "worker_of_node", "worker_of_rank", "workers_per_rank"),
        *("worker_of_rank", "is_leader", "is_local_leader"),
    )

    def facts(w: Any) -> list[Any]:
        return [getattr(w, key) for key in keys]

    made = cls(2, 4, 3, 13)
    made.detect_workers()  # not in a loader's worker: one worker
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(zip(names, ("5", "8", "1", "4"), strict=True))
    try:
        detected = cls.detect()
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
    return [
        facts(cls(2, 4, 3, 13)),
        facts(made),
        facts(made.copy()),
        facts(cls(2, 4, 3, 13).replicate(2)),
        outcome(made.replicate, 3),
        outcome(made.replicate, 0),
        made.to_json(),
        facts(detected),
        facts(cls.detect()),
    ]


@scenario("Array")
def array(cls: Any, folder: Path) -> Any:
    class Squares(cls):  # type: ignore[misc]
        @property
        def size(self) -> int:
            return 5

        def get_item(self, idx: int) -> int:
            return int(idx) ** 2

    squares = Squares()
    getitem = squares.__getitem__
    return [
        outcome(cls),
        outcome(cls.get_item, squares, 0),
        outcome(cls.size.fget, squares),
        squares.size,
        *(outcome(getitem, i) for i in (0, 4, -1, -5, 5, -6, np.int64(3))),
        *(outcome(getitem, s) for s in (slice(1, 4), slice(None, None, -2), slice(9, 20))),
        *(outcome(getitem, s) for s in ([0, 2], [], np.array([1, -1]), np.array([[0, 1], [2, 3]]))),
        *(outcome(getitem, s) for s in (1.5, "a", None)),
    ]
