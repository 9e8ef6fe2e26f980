"""Shard readers."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .codec import names, outcome
from .formats import SAMPLES, written
from .scenario import SCENARIOS, public, scenario


def _sizes(reader: Any) -> list[Any]:
    return [
        len(reader),
        reader.size,
        reader.get_raw_size(),
        reader.get_zip_size(),
        reader.get_max_size(),
        reader.get_persistent_size(True),
        reader.get_persistent_size(False),
    ]


def _listing(folder: Path) -> set[str]:
    return {str(folder / name) for name in names(folder)}


def _reader(kind: str, kwargs: dict[str, Any], cls: Any, folder: Path) -> Any:
    plain = written(folder / "plain", kind, hashes=["sha1"], **kwargs)
    squeezed = written(folder / "zip", kind, compression="zstd", **kwargs)
    record, squeezed_record = (
        json.loads((at / "index.json").read_text())["shards"][0] for at in (plain, squeezed)
    )
    arguments = {k: v for k, v in record.items() if k not in ("format", "version")}
    for key, value in arguments.items():
        if key.startswith(("raw_", "zip_")) and value:
            arguments[key] = public("base.format.FileInfo")(**value)
    reader = cls(dirname=str(plain), split=None, **arguments)
    same = cls.from_json(str(plain), None, record)
    other = cls.from_json(str(squeezed), None, squeezed_record)
    data = reader.get_sample_data(1)
    return [
        _sizes(reader),
        # The compressed size depends on the compressor's version.
        [value for at, value in enumerate(_sizes(other)) if at in (0, 1, 2, 6)],
        data,
        reader.decode_sample(data),
        [reader[i] for i in range(len(reader))],
        reader[-1],
        same.get_item(0),
        [sample["n"] for sample in reader[:2]],
        "raises" in outcome(reader.__getitem__, len(reader)),
        outcome(reader.validate, False),
        reader.set_up_local(_listing(plain), False),
        outcome(other.set_up_local, set(), False),
        [reader.evict(), names(plain)],
    ]


for _cls, _writer, _kwargs in (
    ("MDSReader", "MDSWriter", {}),
    ("JSONReader", "JSONWriter", {}),
    ("CSVReader", "CSVWriter", {}),
    ("TSVReader", "TSVWriter", {}),
    ("XSVReader", "XSVWriter", {"separator": "||"}),
):
    SCENARIOS[_cls] = partial(_reader, _writer, _kwargs)


@scenario("FileInfo")
def file_info(cls: Any, folder: Path) -> Any:
    info = cls("shard.00000.mds", 12, {"sha1": "ab"})
    return [info.basename, info.bytes, info.hashes, cls(basename="b", bytes=1, hashes={}).bytes]


@scenario("reader_from_json")
def reader_from_json(function: Any, folder: Path) -> Any:
    kinds = (("MDSWriter", {}), ("JSONWriter", {}), ("CSVWriter", {}), ("TSVWriter", {}))
    seen = []
    for kind, kwargs in (*kinds, ("XSVWriter", {"separator": ";"})):
        out = written(folder / kind, kind, **kwargs)
        records = json.loads((out / "index.json").read_text())["shards"]
        readers = [function(str(out), "", record) for record in records]
        seen.append([type(readers[0]).__name__, sum(len(r) for r in readers), readers[-1][-1]])
    return [*seen, outcome(function, str(out), "", {**records[0], "format": "nope"})]


@scenario("Reader", "JointReader", "SplitReader")
def base_reader(cls: Any, folder: Path) -> Any:
    """The base class's methods, as those of a reader that has no others."""
    joint = cls.__name__ != "SplitReader"
    out = written(folder, "MDSWriter" if joint else "JSONWriter")
    record = json.loads((out / "index.json").read_text())["shards"][0]
    reader = public("base.format.reader_from_json")(str(out), None, record)
    data = reader.get_sample_data(1)
    return [
        outcome(cls, str(out), None, None, [], 3, None),
        isinstance(reader, cls),
        cls.get_item(reader, 1),
        cls.get_raw_size(reader),
        cls.get_zip_size(reader),
        cls.get_max_size(reader),
        cls.get_persistent_size(reader, False),
        cls.size.fget(reader),
        [len(pair) for pair in reader.file_pairs],
        # Abstract there, on which one must not rely.
        [outcome(call) and None for call in _unreliable(cls, reader, data)],
        cls.validate(reader, True),
        cls.set_up_local(reader, _listing(out), False),
        cls.evict(reader),
        names(out),
    ]


def _unreliable(cls: Any, reader: Any, data: bytes) -> list[Any]:
    return [partial(cls.get_sample_data, reader, 1), partial(cls.decode_sample, reader, data)]


@scenario("LocalDataset")
def local_dataset(cls: Any, folder: Path) -> Any:
    out = written(folder)
    dataset = cls(str(out.parent), split=out.name)
    return [
        len(dataset),
        dataset.size,
        dataset.get_item(3),
        [cls(local=str(out))[i] for i in range(len(SAMPLES))] == [dataset[i] for i in range(7)],
        dataset[-1],
        dataset[np.array([0, 2])],
        outcome(dataset.__getitem__, 7),
        outcome(cls, str(folder / "missing")),
        [sample["n"] for sample in dataset],
    ]
