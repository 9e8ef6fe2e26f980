"""ADE20K: `in_root/images/training/*.jpg`, `in_root/annotations/training/*.png`, and `validation`.

Columns: `uid`, the eight digits of the image's name; `x`, the photograph; `y`, the image of its
pixels' classes; both files as they are. Of training, the few photographs without colour are left
out, and the order is random, the same each time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from streaming.convert.items import Items, shuffled
from streaming.convert.ready import add_writing, convert_splits, listed, main, new_parser
from streaming.convert.source import Sample, Unreadable
from streaming.vision.convert.base import image_mode, read_bytes

COLUMNS = {"uid": "bytes", "x": "jpeg", "y": "png"}
FOLDERS = {"train": "training", "val": "validation"}


def load(item: tuple[str, str], only_colour: bool) -> Iterator[Sample | Unreadable]:
    """The sample of a photograph.

    Args:
        item: Its file, and the one of its classes.
        only_colour: Whether to leave it out if it is grey.
    """
    photograph, classes = item
    data = read_bytes(photograph)
    if only_colour and image_mode(data) != "RGB":
        return
    uid = Path(photograph).stem.rpartition("_")[2]
    yield {"uid": uid.encode(), "x": data, "y": read_bytes(classes)}


def source(root: str, split: str) -> Items:
    """The photographs of a split.

    Args:
        root: The data set's folder.
        split: "train" or "val".

    Raises:
        FileNotFoundError: If a photograph has no image of its classes.
        ValueError: If there is no such split.
    """
    if split not in FOLDERS:
        raise ValueError(f"split is {split!r}; it must be one of {', '.join(FOLDERS)}")
    folder = Path(root, "images", FOLDERS[split])
    items = []
    for photograph in sorted(folder.glob("*.jpg")):
        classes = Path(root, "annotations", FOLDERS[split], f"{photograph.stem}.png")
        if not classes.exists():
            raise FileNotFoundError(f"{photograph} has no image of its classes, {classes}")
        items.append((str(photograph), str(classes)))
    if split == "train":
        items = shuffled(items)
    return Items(
        f"photographs in {folder}",
        COLUMNS,
        items,
        partial(load, only_colour=split == "train"),
        sizes=[os.path.getsize(one) + os.path.getsize(other) for one, other in items],
    )


def run(argv: Sequence[str] | None = None) -> None:
    """Convert, as the command line says."""
    parser = new_parser(__doc__, "in_root", "out_root")
    add_writing(parser, size_limit=1 << 22, splits="train,val")
    args = parser.parse_args(argv)
    sources = {split: partial(source, args.in_root, split) for split in listed(args.splits)}
    convert_splits(args, sources, args.out_root)


if __name__ == "__main__":
    main(run)
