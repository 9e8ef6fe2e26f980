"""CIFAR-10: `in_root/cifar-10-batches-py/data_batch_1` to `_5` and `test_batch`.

Or `in_root/cifar-10-python.tar.gz`, as it is downloaded. Columns: `i`, the image's number; `x`, its
pixels; `y`, its class. Samples are written in a random order, the same each time.
"""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.convert.items import Items, shuffled
from streaming.convert.ready import add_writing, convert_splits, listed, main, new_parser
from streaming.convert.source import Sample, Unreadable

COLUMNS = {"i": "int", "x": "pil", "y": "int"}
FOLDER = "cifar-10-batches-py"
BATCHES = {"train": [f"data_batch_{n}" for n in range(1, 6)], "val": ["test_batch"]}
PIXELS = 3 * 32 * 32

_ALLOWED = {
    *(("numpy.core.multiarray", name) for name in ("_reconstruct", "scalar")),
    *(("numpy._core.multiarray", name) for name in ("_reconstruct", "scalar")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("_codecs", "encode"),
}


class _Unpickler(pickle.Unpickler):
    """Reads arrays, and calls nothing else: a pickle could be anybody's program."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a CIFAR-10 file")
        return super().find_class(module, name)


@lru_cache(maxsize=6)
def read_batch(root: str, name: str) -> tuple[NDArray[np.uint8], list[int]]:
    """The images and classes of one of the original's files.

    Args:
        root: The folder that has the data set's, or the tar.
        name: "data_batch_1" and so on.

    Returns:
        Images of shape (images, 32, 32, 3), and their classes.

    Raises:
        FileNotFoundError: If the file is not there.
        ValueError: If it isn't what it should be.
    """
    path, tar = Path(root, FOLDER, name), Path(root, "cifar-10-python.tar.gz")
    if not path.exists() and tar.exists():
        with tarfile.open(tar) as archive:
            member = archive.extractfile(f"{FOLDER}/{name}")
            data = b"" if member is None else member.read()
    else:
        data = path.read_bytes()
    try:
        batch = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        batch = {key.decode() if type(key) is bytes else key: batch[key] for key in batch}
        images = np.asarray(batch["data"], np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = [int(label) for label in batch["labels"]]
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"{path} is not one of CIFAR-10's files: {exc}") from exc
    return images, labels


def load(item: tuple[int, str, int], root: str) -> Iterator[Sample | Unreadable]:
    """The sample of an image: its number, its file, its row there."""
    from PIL import Image

    number, name, row = item
    images, labels = read_batch(root, name)
    yield {"i": number, "x": Image.fromarray(np.ascontiguousarray(images[row])), "y": labels[row]}


def source(root: str, split: str) -> Items:
    """The images of a split, in a random order.

    Args:
        root: The folder that has the data set's, or the tar.
        split: "train" or "val".

    Raises:
        ValueError: If there is no such split.
    """
    if split not in BATCHES:
        raise ValueError(f"split is {split!r}; it must be one of {', '.join(BATCHES)}")
    places = [
        (name, row) for name in BATCHES[split] for row in range(len(read_batch(root, name)[1]))
    ]
    items = shuffled([(at, name, row) for at, (name, row) in enumerate(places)])
    # Enough parts for several processes, and not so many that each is a shard of its own.
    return Items(
        f"images of CIFAR-10, {split}",
        COLUMNS,
        items,
        partial(load, root=root),
        sizes=[PIXELS] * len(items),
        part_bytes=1 << 23,
    )


def run(argv: Sequence[str] | None = None) -> None:
    """Convert, as the command line says."""
    parser = new_parser(__doc__, "in_root", "out_root")
    add_writing(parser, size_limit=1 << 20, splits="train,val")
    args = parser.parse_args(argv)
    sources = {split: partial(source, args.in_root, split) for split in listed(args.splits)}
    convert_splits(args, sources, args.out_root)


if __name__ == "__main__":
    main(run)
