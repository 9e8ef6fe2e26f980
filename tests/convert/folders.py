"""Data sets of this machine, as files and as values."""

from pathlib import Path
from typing import Any

from streaming import LocalDataset


def files_of(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def samples_of(folder: Path) -> list[dict[str, Any]]:
    """All samples of a data set, in order."""
    dataset = LocalDataset(str(folder))
    return [dataset[at] for at in range(len(dataset))]
