"""COCO 2017: `in_root/train2017/*.jpg`, `in_root/annotations/instances_train2017.json`, `val2017`.

Columns: `img`, the file as it is; `img_id`; `htot` and `wtot`, its height and width in pixels;
`bbox_sizes`, an array of shape (boxes, 4), each box's left, top, right and bottom edge as a share
of width or height; `bbox_labels`, the boxes' classes, counted from 1 in the order of the file's
categories. Photographs without a box are left out. Training's order is random, the same each time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streaming.convert.items import Items, shuffled
from streaming.convert.ready import add_writing, convert_splits, main, new_parser
from streaming.convert.source import Sample, Unreadable
from streaming.vision.convert.base import read_bytes

COLUMNS = {
    "img": "jpeg",
    "img_id": "int",
    "htot": "int",
    "wtot": "int",
    "bbox_sizes": "ndarray:float32",
    "bbox_labels": "ndarray:int64",
}


def load(item: tuple[Any, ...]) -> Iterator[Sample | Unreadable]:
    """The sample of a photograph: its file, number, height, width, boxes, classes."""
    path, number, height, width, boxes, labels = item
    yield {
        "img": read_bytes(path),
        "img_id": number,
        "htot": height,
        "wtot": width,
        "bbox_sizes": np.array(boxes, np.float32),
        "bbox_labels": np.array(labels, np.int64),
    }


def source(root: str, split: str) -> Items:
    """The photographs of a split that have boxes.

    Args:
        root: The data set's folder.
        split: "train" or "val".
    """
    folder = f"{split}2017"
    notes = json.loads(Path(root, "annotations", f"instances_{folder}.json").read_bytes())
    classes = {one["id"]: at for at, one in enumerate(notes["categories"], 1)}
    boxes: dict[int, list[dict[str, Any]]] = {}
    for note in notes["annotations"]:
        boxes.setdefault(note["image_id"], []).append(note)
    items = []
    for image in sorted(notes["images"], key=lambda image: int(image["id"])):
        height, width = image["height"], image["width"]
        found = boxes.get(image["id"], [])
        if found:
            edges = [_edges(note["bbox"], height, width) for note in found]
            labels = [classes[note["category_id"]] for note in found]
            path = os.path.join(root, folder, image["file_name"])
            items.append((path, image["id"], height, width, edges, labels))
    if split == "train":
        items = shuffled(items)
    name = f"photographs with boxes in {os.path.join(root, folder)}"
    sizes = [os.path.getsize(item[0]) for item in items]
    return Items(name, COLUMNS, items, load, sizes=sizes)


def _edges(box: Sequence[float], height: int, width: int) -> list[float]:
    left, top, across, down = box
    return [left / width, top / height, (left + across) / width, (top + down) / height]


def run(argv: Sequence[str] | None = None) -> None:
    """Convert, as the command line says."""
    parser = new_parser(__doc__, "in_root", "out_root")
    add_writing(parser, size_limit=1 << 25)
    args = parser.parse_args(argv)
    sources = {split: partial(source, args.in_root, split) for split in ("train", "val")}
    convert_splits(args, sources, args.out_root)


if __name__ == "__main__":
    main(run)
