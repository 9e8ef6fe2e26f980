"""Samples one by one: who overrides how they are read is asked for each, and errors say where."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming import MDSWriter, StreamingDataset
from streaming.format.errors import CorruptShardError


@pytest.fixture
def local(tmp_path: Path) -> str:
    folder = str(tmp_path / "data")
    with MDSWriter(columns={"i": "int", "t": "str"}, out=folder, size_limit=700) as writer:
        for i in range(100):
            writer.write({"i": i, "t": f"sample {i}"})
    return folder


class Items(StreamingDataset):
    """Overrides the way to a sample that brackets lead to as well."""

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        return "item", super().get_item(sample_id, retry)["i"]


class Brackets(StreamingDataset):
    asked: list[Any]

    def __getitem__(self, at: Any) -> Any:
        self.asked.append(at)
        return super().__getitem__(at)


def test_an_override_sees_each_sample_once(local: str) -> None:
    dataset = Brackets(local=local, batch_size=4, shuffle=True)
    dataset.asked = []
    got = [sample["i"] for sample in dataset]
    assert dataset.asked == got
    assert sorted(got) == list(range(100))
    assert {type(at) for at in dataset.asked} == {int}


def test_the_other_override_too(local: str) -> None:
    dataset = Items(local=local, batch_size=4)
    assert list(dataset) == [("item", i) for i in range(100)]
    assert dataset[-1] == ("item", 99)
    assert dataset[np.int64(3)] == ("item", 3)
    assert dataset[2:4] == [("item", 2), ("item", 3)]


def test_samples_are_read_when_their_turn_has_come(local: str) -> None:
    dataset = StreamingDataset(local=local, batch_size=64)
    missing = dataset.shards[1]
    Path(missing.name).unlink()
    got: list[int] = []
    with pytest.raises(FileNotFoundError, match="Shard 1 is missing from"):
        got.extend(sample["i"] for sample in dataset)
    assert got == list(range(dataset.shards[0].samples))


def test_a_damaged_sample_is_named(local: str) -> None:
    dataset = StreamingDataset(local=local, batch_size=4)
    path = Path(dataset.shards[0].name)
    path.write_bytes(path.read_bytes().replace(b"sample 3", b"sampl\xff\xff3"))
    samples = iter(dataset)
    assert [next(samples)["i"] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(CorruptShardError, match=r"shard\.00000\.mds: sample 3: column 't'"):
        next(samples)


def test_what_was_read_is_counted(local: str) -> None:
    dataset = StreamingDataset(local=local, batch_size=4)
    expected = sum(
        len(shard.get_sample_data(i)) for shard in dataset.shards for i in range(len(shard))
    )
    before = dataset.stats()["bytes_read"]
    assert len(list(dataset)) == 100
    assert dataset.stats()["bytes_read"] - before == expected
    dataset[5]
    assert dataset.stats()["bytes_read"] - before > expected
