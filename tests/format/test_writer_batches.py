"""Writing columns writes what writing their samples does, or says which sample is wrong."""

import filecmp
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming import CSVWriter, JSONWriter, LocalDataset, MDSWriter
from streaming.format.errors import FormatError

COLUMNS = {
    "half": "float16",
    "id": "int",
    "name": "str",
    "raw": "bytes",
    "small": "uint8",
    "tokens": "ndarray:int32:4",
    "any": "ndarray",
}


def columns_of(count: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "half": rng.random(count).astype(np.float16),
        "id": rng.integers(-(2**62), 2**62, count),
        "name": [f"größe {value}" * (value % 3) for value in rng.integers(0, 99, count).tolist()],
        "raw": [rng.bytes(size) for size in rng.integers(0, 9, count).tolist()],
        "small": rng.integers(0, 256, count, dtype=np.uint8),
        "tokens": rng.integers(0, 99, (count, 4), dtype=np.int32),
        "any": [rng.random((size, 2)) for size in rng.integers(1, 4, count).tolist()],
    }


def samples_of(columns: dict[str, Any], count: int) -> list[dict[str, Any]]:
    return [{name: values[at] for name, values in columns.items()} for at in range(count)]


def assert_same_files(one: Path, other: Path) -> None:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    assert filecmp.cmpfiles(one, other, names, shallow=False)[1:] == ([], [])


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    names=st.sets(st.sampled_from(sorted(COLUMNS)), min_size=1),
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    limit=st.sampled_from([None, 100, 400, 800, 2000]),
)
def test_the_same_bytes_as_sample_by_sample(
    tmp_path_factory: pytest.TempPathFactory,
    names: set[str],
    counts: list[int],
    seed: int,
    limit: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("sets")
    encodings = {name: COLUMNS[name] for name in names}
    with (
        MDSWriter(out=str(folder / "a"), columns=encodings, size_limit=limit) as by_batch,
        MDSWriter(out=str(folder / "b"), columns=encodings, size_limit=limit) as by_sample,
    ):
        for count in counts:
            drawn = columns_of(count, seed)
            columns = {name: drawn[name] for name in names}
            by_batch.write_batch(columns)
            for sample in samples_of(columns, count):
                by_sample.write(sample)
    assert_same_files(folder / "a", folder / "b")


def test_tensors_and_views(tmp_path: Path) -> None:
    tokens = torch.arange(80, dtype=torch.int32).reshape(10, 8)[:, ::2]
    with MDSWriter(out=str(tmp_path), columns={"tokens": "ndarray:int32:4"}) as writer:
        writer.write_batch({"tokens": tokens})
    assert LocalDataset(str(tmp_path))[3]["tokens"].tolist() == tokens[3].tolist()


def test_arrow_tables(tmp_path: Path) -> None:
    table = arrow.table({"id": [1, 2, 3], "name": ["a", "", "ü"]})
    for number, source in enumerate([table, table.to_batches()[0]]):
        out = tmp_path / str(number)
        with MDSWriter(out=str(out), columns={"id": "int64", "name": "str"}) as writer:
            writer.write_batch(source)
        assert [sample["name"] for sample in LocalDataset(str(out))[:]] == ["a", "", "ü"]


@pytest.mark.parametrize("kind", [CSVWriter, JSONWriter])
def test_text_formats(tmp_path: Path, kind: Any) -> None:
    with kind(out=str(tmp_path), columns={"id": "int", "name": "str"}) as writer:
        writer.write_batch({"id": [1, 2], "name": ["a", "b"]})
    assert LocalDataset(str(tmp_path))[1] == {"id": 2, "name": "b"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [1, 2], "name": ["a"]}, "as many values each, not 'id' 2, 'name' 1"),
        ({"id": [1, "2"], "name": ["a", "b"]}, "column 'id' of sample 6"),
        ({"id": [1], "name": [None]}, "column 'name' of sample 5"),
        ({"id": [1]}, "name"),
        ({"id": [1], "name": ["a"], "more": [1]}, "more"),
        ({"id": 5, "name": ["a"]}, "column 'id' of a batch is a int"),
        ({"id": [1], "name": "a"}, "column 'name' of a batch is a str"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_written(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    with MDSWriter(out=str(tmp_path), columns={"id": "int", "name": "str"}) as writer:
        writer.write_batch({"id": list(range(5)), "name": ["x"] * 5})
        with pytest.raises((FormatError, TypeError), match=message):
            writer.write_batch(columns)
        writer.write({"id": 5, "name": "y"})
    assert [sample["id"] for sample in LocalDataset(str(tmp_path))[:]] == list(range(6))


def test_a_writer_that_encodes_in_its_own_way_keeps_to_it(tmp_path: Path) -> None:
    class Upper(MDSWriter):
        def encode_sample(self, sample: dict[str, Any]) -> bytes:
            return super().encode_sample({"name": sample["name"].upper()})

    with Upper(out=str(tmp_path), columns={"name": "str"}) as writer:
        writer.write_batch({"name": ["a", "b"]})
    assert LocalDataset(str(tmp_path))[1] == {"name": "B"}
