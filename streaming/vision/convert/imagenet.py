"""ImageNet: `in_root/train/n01440764/*.JPEG` and `in_root/val/…`, a folder for each class.

Columns: `i`, the image's place among all, sorted by name; `x`, the file as it is; `y`, its class's
place among the folders. Samples are written in a random order, the same each time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from streaming.convert.items import Items, shuffled
from streaming.convert.ready import add_writing, convert_splits, listed, main, new_parser
from streaming.convert.source import Sample, Unreadable
from streaming.vision.convert.base import check_image, read_bytes

COLUMNS = {"i": "int", "x": "jpeg", "y": "int"}


def load(item: tuple[int, str, int], validate: bool) -> Iterator[Sample | Unreadable]:
    """The sample of an image.

    Args:
        item: Its number, its file, its class.
        validate: Whether to decode it, to be sure that it is an image.
    """
    at, path, label = item
    data = read_bytes(path)
    wrong = check_image(data) if validate else None
    if wrong is not None:
        yield Unreadable(f"{path} is no image ({wrong}); --validate 0 takes it all the same")
    else:
        yield {"i": at, "x": data, "y": label}


def source(root: str, split: str, extensions: Sequence[str], validate: bool) -> Items:
    """The images of a split, in a random order.

    Args:
        root: The folder that has the split's.
        split: Its name.
        extensions: Endings of the images' names, without dots, in any case.
        validate: Whether to see that each is an image.
    """
    folder = Path(root, split)
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    endings = {f".{one.lower().lstrip('.')}" for one in extensions}
    files = [
        (str(path), label)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in endings
    ]
    items = shuffled([(at, path, label) for at, (path, label) in enumerate(files)])
    return Items(
        f"{', '.join(sorted(endings))} images in {folder}",
        COLUMNS,
        items,
        partial(load, validate=validate),
        sizes=[os.path.getsize(path) for _, path, _ in items],
    )


def run(argv: Sequence[str] | None = None) -> None:
    """Convert, as the command line says."""
    parser = new_parser(__doc__, "in_root", "out_root")
    add_writing(parser, size_limit=1 << 26, splits="train,val")
    parser.add_argument("--validate", type=int, default=1, help="1 decodes each image (default)")
    parser.add_argument("--extensions", default="jpeg", help="of images' names (default: jpeg)")
    args = parser.parse_args(argv)
    extensions = listed(args.extensions)
    convert_splits(
        args,
        {
            split: partial(source, args.in_root, split, extensions, bool(args.validate))
            for split in listed(args.splits)
        },
        args.out_root,
    )


if __name__ == "__main__":
    main(run)
