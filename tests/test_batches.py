"""Batches made by column equal those that the default collate makes of the samples."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, default_collate

from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset
from streaming.base.format.mds.encodings import get_mds_encodings
from tests.data import write_numbers

SCALARS = {
    **{
        f"{kind}{bits}": np.dtype(f"{kind}{bits}")
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    **{f"float{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}


def values(encoding: str, count: int, seed: int) -> list[Any]:
    """Values that an encoding takes, drawn from a seed."""
    rng = np.random.default_rng(seed)
    if encoding in SCALARS:
        dtype = SCALARS[encoding]
        raw = rng.integers(0, 100, count)
        return [dtype.type(value) for value in raw]
    if encoding == "int":
        return rng.integers(-(2**62), 2**62, count).tolist()
    if encoding == "str":
        return [f"größe {value}" * int(value % 3) for value in rng.integers(0, 100, count)]
    if encoding == "bytes":
        return [rng.bytes(int(size)) for size in rng.integers(0, 20, count)]
    if encoding == "json":
        return [{"a": int(value), "b": [1.5, str(value)]} for value in rng.integers(0, 9, count)]
    if encoding in ("str_int", "str_float"):
        kind = int if encoding == "str_int" else float
        return [kind(value) for value in rng.integers(-99, 99, count)]
    if encoding == "str_decimal":
        from decimal import Decimal

        return [Decimal(int(value)) / 4 for value in rng.integers(0, 99, count)]
    if encoding == "pkl":
        return [{"a": int(v), "b": torch.tensor([v])} for v in rng.integers(0, 9, count)]
    if encoding in IMAGES:
        # Of one size, or of several, which can't be collated.
        widths = rng.integers(4, 4 + 1 + seed % 2, count)
        return [image_of(encoding, rng, int(width)) for width in widths]
    if encoding == "ndarray":
        return [rng.random((2, int(n))) for n in rng.integers(1, 3, count)]
    dtype, *shape = encoding.removeprefix("ndarray:").split(":")
    size = tuple(map(int, shape[0].split(","))) if shape else (3,)
    return [rng.integers(0, 100, size).astype(dtype) for _ in range(count)]


IMAGES = ("pil", "jpeg", "jpeg_array", "jpegarray", "png", "list[pil]", "list[jpeg]", "list[png]")


def image_of(encoding: str, rng: np.random.Generator, width: int) -> Any:
    """What an encoding of images takes."""
    pixels = rng.integers(0, 256, (3, width, 3), np.uint8)
    image = Image.fromarray(pixels)
    if encoding in ("jpeg_array", "jpegarray"):
        file = io.BytesIO()
        image.save(file, "JPEG")
        return [file.getvalue()] * 2
    return [image, image.copy()] if encoding.startswith("list") else image


ENCODINGS = [
    *SCALARS,
    *IMAGES,
    "pkl",
    *("int", "str", "bytes", "json", "str_int", "str_float", "str_decimal", "ndarray"),
    *("ndarray:int32", "ndarray:int32:4", "ndarray:uint16:2,3", "ndarray:float16:5"),
    "ndarray:uint64:1",
]


def outcome(fn: Any) -> Any:
    """What a call returns, or the kind of what it raises."""
    try:
        return fn()
    except Exception as error:
        return type(error)


def assert_same(made: Any, expected: Any) -> None:
    """The same values of the same types, to the bit."""
    assert type(made) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert made.dtype == expected.dtype
        assert made.shape == expected.shape
        assert made.stride() == expected.stride()
        assert made.numpy().tobytes() == expected.numpy().tobytes()
    elif isinstance(expected, dict):
        assert list(made) == list(expected)
        for name in expected:
            assert_same(made[name], expected[name])
    elif isinstance(expected, (list, tuple)):
        assert len(made) == len(expected)
        for one, other in zip(made, expected, strict=True):
            assert_same(one, other)
    else:
        assert made == expected


def compare(local: Path, batch_size: int, **kwargs: Any) -> None:
    """An epoch of batches by column, against one by sample."""

    def epoch(collate: Any) -> list[Any]:
        dataset = StreamingDataset(
            local=str(local), batch_size=batch_size, shuffle=True, allow_unsafe_types=True
        )
        return list(
            StreamingDataLoader(dataset, batch_size=batch_size, collate_fn=collate, **kwargs)
        )

    made = outcome(lambda: epoch(None))
    expected = outcome(lambda: epoch(lambda samples: default_collate(samples)))
    assert_same(made, expected)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    encodings=st.lists(st.sampled_from(ENCODINGS), min_size=1, max_size=3),
    count=st.integers(1, 40),
    batch_size=st.integers(1, 7),
    drop_last=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_encoding(
    tmp_path_factory: pytest.TempPathFactory,
    encodings: list[str],
    count: int,
    batch_size: int,
    drop_last: bool,
    seed: int,
) -> None:
    out = tmp_path_factory.mktemp("data") / "set"
    columns = {f"column{k}": encoding for k, encoding in enumerate(encodings)}
    drawn = {name: values(encoding, count, seed) for name, encoding in columns.items()}
    with MDSWriter(out=str(out), columns=columns, size_limit=2000) as writer:
        for at in range(count):
            writer.write({name: drawn[name][at] for name in columns})
    compare(out, batch_size, drop_last=drop_last)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "workers",
    [
        {},
        {"num_workers": 2, "worker_type": "thread"},
        pytest.param({"num_workers": 2}, marks=pytest.mark.long),
    ],
)
def test_each_encoding(tmp_path: Path, encoding: str, seed: int, workers: dict[str, Any]) -> None:
    with MDSWriter(out=str(tmp_path / "set"), columns={"x": encoding}, size_limit=2000) as writer:
        for value in values(encoding, 50, seed):
            writer.write({"x": value})
    compare(tmp_path / "set", 8, **workers)


def test_there_is_no_other_encoding() -> None:
    assert get_mds_encodings() == {encoding.partition(":")[0] for encoding in ENCODINGS}


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_with_workers(tmp_path: Path, workers: int) -> None:
    write_numbers(tmp_path / "set", 90)
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=4, shuffle=True)
    by_column = StreamingDataLoader(dataset, batch_size=4, num_workers=workers)
    for epoch in range(2):
        other = StreamingDataset(local=str(tmp_path / "set"), batch_size=4, shuffle=True)
        other.next_epoch = epoch
        expected = list(DataLoader(other, batch_size=4, num_workers=workers))
        assert_same(list(by_column), expected)
        assert len(by_column) == len(expected)


def test_batches_own_their_memory(tmp_path: Path) -> None:
    write_numbers(tmp_path / "set", 200)
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=4)
    held = list(StreamingDataLoader(dataset, batch_size=4))
    copies = [batch["id"].clone() for batch in held]
    for batch in held:
        assert batch["id"].untyped_storage().nbytes() == batch["id"].nbytes
    held[0]["id"].fill_(-1)
    assert all(torch.equal(b["id"], c) for b, c in zip(held[1:], copies[1:], strict=True))


def test_streams_of_other_columns_collate_as_samples_do(tmp_path: Path) -> None:
    for name, columns in (("a", {"x": "int"}), ("b", {"x": "float32", "y": "str"})):
        with MDSWriter(out=str(tmp_path / name), columns=columns) as writer:
            for value in range(20):
                writer.write(
                    {"x": np.float32(value) if "y" in columns else value, "y": "text"}
                    if "y" in columns
                    else {"x": value}
                )

    def epoch(collate: Any) -> Any:
        streams = [Stream(local=str(tmp_path / name)) for name in "ab"]
        dataset = StreamingDataset(streams=streams, batch_size=5)
        return list(StreamingDataLoader(dataset, batch_size=5, collate_fn=collate))

    assert_same(outcome(lambda: epoch(None)), outcome(lambda: epoch(lambda s: default_collate(s))))


def test_damage_is_raised_with_its_batch(tmp_path: Path) -> None:
    write_numbers(tmp_path / "set", 100)
    (tmp_path / "set" / "shard.00005.mds").unlink()
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=4)
    first = int(dataset.sample_offset_per_shard[5])
    batches = iter(StreamingDataLoader(dataset, batch_size=4))
    whole = first // 4
    assert [next(batches)["id"].tolist() for _ in range(whole)] == [
        list(range(at, at + 4)) for at in range(0, 4 * whole, 4)
    ]
    with pytest.raises(FileNotFoundError, match="Shard 5 is missing"):
        next(batches)


def test_a_state_in_the_middle_counts_what_was_handed_out(tmp_path: Path) -> None:
    write_numbers(tmp_path / "set", 90)

    def loader() -> StreamingDataLoader:
        dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=4, shuffle=True)
        return StreamingDataLoader(dataset, batch_size=4, num_workers=2)

    whole = loader()
    batches, states = [], []
    for batch in whole:
        batches.append(batch["id"].tolist())
        states.append(whole.state_dict())
    assert [state["sample_in_epoch"] for state in states if state] == [
        min(4 * (at + 1), 90) for at in range(len(batches))
    ]
    resumed = loader()
    resumed.load_state_dict(states[9] or {})
    assert [batch["id"].tolist() for batch in resumed] == batches[10:]
