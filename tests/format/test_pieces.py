"""Files written in pieces, also when the system takes a part of them at a time."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming import MDSWriter
from streaming.format import pieces as module
from streaming.format.pieces import write_pieces

PIECES = [bytes([i % 256]) * (i % 7) for i in range(2000)]


def written(path: Path) -> bytes:
    with open(path, "wb") as file:
        write_pieces(file, PIECES)
    return path.read_bytes()


def test_all_of_them(tmp_path: Path) -> None:
    assert written(tmp_path / "file") == b"".join(PIECES)


@pytest.mark.skipif(not hasattr(os, "writev"), reason="there is no writev")
@pytest.mark.parametrize("most", [1, 100])
def test_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    write = os.write

    class Short:
        """A system that takes few bytes at once."""

        @staticmethod
        def writev(descriptor: int, parts: Any) -> int:
            return write(descriptor, b"".join(parts)[:most])

        @staticmethod
        def write(descriptor: int, data: Any) -> int:
            return write(descriptor, data[: most * 10])

    monkeypatch.setattr(module, "os", Short)
    assert written(tmp_path / "file") == b"".join(PIECES)


def test_without_writev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "os", object())
    assert written(tmp_path / "file") == b"".join(PIECES)


def test_large_samples_make_the_same_shards(tmp_path: Path) -> None:
    class Whole(MDSWriter):
        """Puts its shards together itself, so that they are written as one."""

        def encode_joint_shard(self) -> bytes:
            return super().encode_joint_shard()

    for kind in (MDSWriter, Whole):
        columns = {"x": "ndarray:int32:1000", "t": "str"}
        with kind(columns=columns, out=str(tmp_path / kind.__name__), size_limit=30_000) as writer:
            for i in range(50):
                writer.write({"x": np.full(1000, i, np.int32), "t": "t" * i})
    ours, other = (sorted((tmp_path / name).iterdir()) for name in ("MDSWriter", "Whole"))
    assert [path.name for path in ours] == [path.name for path in other]
    assert len(ours) > 5
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in other]
