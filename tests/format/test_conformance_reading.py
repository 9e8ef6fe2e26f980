"""Every recorded data set reads to exactly its recorded values, in each way of reading."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming.base.format import reader_from_json
from streaming.format.compression import decompress
from streaming.format.index import Index
from streaming.format.reader import Reader
from streaming.format.shards import ShardList
from tests.conformance_data import CONFORMANCE

FORMATS = CONFORMANCE / "formats"
NAMES = sorted(path.parent.name for path in FORMATS.glob("*/index.json"))


def shards_of(name: str, folder: Path | None = None) -> ShardList:
    folder = folder or FORMATS / name
    index = Index.parse((folder / "index.json").read_bytes(), str(folder / "index.json"))
    return ShardList([(index, str(folder))], allow_unsafe_types=True)


def expected(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FORMATS / f"{name}.expected.json").read_text())
    return found


def check_value(value: Any, described: dict[str, Any]) -> None:
    kind = next(iter(described))
    if kind == "json":
        assert type(value) is type(described["json"])
        assert value == described["json"]
    elif kind == "bytes":
        assert type(value) is bytes
        assert value == base64.b64decode(described["bytes"])
    elif kind == "scalar":
        assert isinstance(value, np.generic)
        assert value.dtype == described["scalar"]
        assert value.tobytes() == base64.b64decode(described["value"])
    elif kind == "ndarray":
        assert value.dtype == described["ndarray"]
        assert list(value.shape) == described["shape"]
        assert value.tobytes() == base64.b64decode(described["values"])
        assert value.flags.writeable
        assert value.flags.owndata
    elif kind == "decimal":
        assert str(value) == described["decimal"]
    elif kind == "image":
        check_image(value, described)
    else:
        assert kind == "images"
        assert len(value) == len(described["images"])
        for image, one in zip(value, described["images"], strict=True):
            check_image(image, one)


def check_image(image: Any, described: dict[str, Any]) -> None:
    assert image.mode == described["image"]
    assert list(image.size) == described["size"]
    found = np.frombuffer(image.tobytes(), np.uint8).astype(int)
    pixels = np.frombuffer(base64.b64decode(described["pixels"]), np.uint8).astype(int)
    # JPEG decoders of different versions round differently.
    tolerance = 2 if image.format == "JPEG" else 0
    assert np.abs(found - pixels).max() <= tolerance


def check_sample(sample: dict[str, Any], described: dict[str, Any]) -> None:
    assert list(sample) == sorted(described)
    for name, value in sample.items():
        check_value(value, described[name])


@pytest.mark.parametrize("name", NAMES)
def test_sample_by_sample(name: str) -> None:
    samples = [sample for shard in shards_of(name) for sample in shard]
    wanted = expected(name)
    assert len(samples) == len(wanted)
    for sample, described in zip(samples, wanted, strict=True):
        check_sample(sample, described)


@pytest.mark.parametrize("name", NAMES)
def test_by_readers_made_of_json(name: str) -> None:
    """As code written against 0.13 reads a shard."""
    wanted = iter(expected(name))
    obj = json.loads((FORMATS / name / "index.json").read_text())
    for shard in obj["shards"]:
        reader = reader_from_json(str(FORMATS), name, shard)
        reader.validate(True)
        assert len(reader) == reader.size == shard["samples"]
        for i in range(len(reader)):
            described = next(wanted)
            check_sample(reader[i], described)
            check_sample(reader.get_item(i), described)
            check_sample(reader.decode_sample(reader.get_sample_data(i)), described)
    assert next(wanted, None) is None


@pytest.mark.parametrize("name", NAMES)
def test_in_batches(name: str) -> None:
    rng = np.random.default_rng(0)
    wanted = expected(name)
    first = 0
    for shard in shards_of(name):
        at = rng.integers(0, len(shard), 2 * len(shard))
        check_batch(shard, at, [wanted[first + i] for i in at])
        check_batch(shard, np.arange(0), [])
        first += len(shard)


def check_batch(shard: Reader, at: Any, wanted: list[dict[str, Any]]) -> None:
    columns = shard.batch(at)
    for name, column in columns.items():
        assert len(column) == len(wanted)
        for value, described in zip(column, (sample[name] for sample in wanted), strict=True):
            if isinstance(column, np.ndarray):
                assert column.flags.writeable
                if "json" in described:
                    assert int(value) == described["json"]
                    continue
                value = value.copy()
            check_value(value, described)


@pytest.mark.parametrize("name", [name for name in NAMES if "mds_" in name or "_zstd" in name])
def test_decompressed_beforehand(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(FORMATS / name, folder)
    shards = shards_of(name, folder)
    for shard in shards:
        for raw, zipped in shard.file_pairs:
            if zipped is not None:
                packed = folder / zipped.basename
                data = decompress(shard.compression, packed.read_bytes())
                (folder / raw.basename).write_bytes(data)
                packed.unlink()
    samples = [sample for shard in shards for sample in shard]
    for sample, described in zip(samples, expected(name), strict=True):
        check_sample(sample, described)
