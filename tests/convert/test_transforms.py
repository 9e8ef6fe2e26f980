"""What tells transforms from one another, and that they are copied."""

import functools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from streaming.convert import ConvertError, convert
from streaming.convert.transforms import fresh, identity


class Scaled:
    def __init__(self, by: float, names: Any = ()) -> None:
        self.by, self.names = by, names

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"x": row["x"] * self.by}

    def method(self, row: dict[str, Any]) -> dict[str, Any]:
        return row


def scaled(row: dict[str, Any], by: float = 1) -> dict[str, Any]:
    return {"x": row["x"] * by}


def inner(by: float) -> Any:
    return lambda row: {"x": row["x"] * by}


SAME = [
    (lambda by: Scaled(by)),
    (lambda by: Scaled(1, ["a", {"b": by}])),
    (lambda by: Scaled(by).method),
    (lambda by: functools.partial(scaled, by=by)),
    (lambda by: functools.partial(Scaled(by))),
    inner,
]


@pytest.mark.parametrize("make", SAME)
def test_what_a_transform_was_made_with_counts(make: Any) -> None:
    assert identity(make(2)) == identity(make(2))
    assert identity(make(2)) != identity(make(3))


def test_code_counts() -> None:
    assert identity(lambda row: row) != identity(lambda row: [row])
    assert identity(lambda row: row if row in (1, 2) else 0) == identity(
        lambda row: row if row in (1, 2) else 0
    )


def test_it_is_the_same_in_every_process() -> None:
    script = (
        "from streaming.convert.transforms import identity\n"
        "class T:\n"
        "    def __init__(self): self.words, self.lock = {'a', 'b', 'c'}, object()\n"
        "    def __call__(self, row): return row if row['x'] in {'a', 'b', 'c'} else None\n"
        "print(identity(T()))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(found) == 1


def test_what_can_not_be_copied_is_told(tmp_path: Path) -> None:
    transform = Scaled(1)
    transform.names = threading.Lock()
    with pytest.raises(ConvertError, match=r"Scaled can't be copied, as it is for each part"):
        convert([{"x": 1}], tmp_path, transform=transform, progress=False)
    assert fresh(None) is None
