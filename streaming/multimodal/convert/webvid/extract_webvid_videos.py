"""Takes the videos out of WebVid's shards: files beside a data set that names them.

A sample keeps its columns but for `content`, in whose place comes `content_path`: `000/017.mp4`
below `--out_mp4`. Read them by `StreamingOutsideGIWebVid` or `StreamingOutsideDTWebVid`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from streaming.convert.items import Items
from streaming.convert.ready import add_writing, listed, main, new_parser
from streaming.convert.run import convert
from streaming.convert.source import Sample, Unreadable
from streaming.format.replace import write_atomically
from streaming.local import LocalDataset


@lru_cache(maxsize=1)
def _dataset(root: str) -> LocalDataset:
    return LocalDataset(root)


def load(at: int, root: str, videos: str, digits: int) -> Iterator[Sample | Unreadable]:
    """Write a sample's video, and give the sample that names it.

    Args:
        at: The sample's number.
        root: The data set's folder.
        videos: The folder for videos.
        digits: How many there are in the number of a folder of videos.
    """
    sample: dict[str, Any] = dict(_dataset(root)[at])
    name = f"{at // 1000:0{digits}}/{at % 1000:03}.mp4"
    path = Path(videos, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, sample.pop("content"))
    sample["content_path"] = name
    yield sample


def source(root: str, videos: str) -> Items:
    """The samples of a data set.

    Args:
        root: Its folder.
        videos: The folder for videos.

    Raises:
        ValueError: If it has no column `content`.
    """
    dataset = LocalDataset(root)
    reader: Any = dataset.shards[0]
    columns = dict(zip(reader.column_names, reader.column_encodings, strict=True))
    if columns.pop("content", None) is None:
        raise ValueError(f"{root} has no column 'content': there are {', '.join(columns)}")
    columns["content_path"] = "str"
    digits = max(3, len(str((len(dataset) - 1) // 1000)))
    work = partial(load, root=root, videos=videos, digits=digits)
    return Items(f"videos in {root}", columns, range(len(dataset)), work, part_bytes=1000)


def run(argv: Sequence[str] | None = None) -> None:
    """Extract, as the command line says."""
    parser = new_parser(__doc__)
    parser.add_argument("--in", required=True, help="the data set with videos inside, a folder")
    parser.add_argument("--out_mds", required=True, help="a folder or URL for the data set")
    parser.add_argument("--out_mp4", required=True, help="a folder for the videos")
    add_writing(
        parser, size_limit=1 << 25, compression="zstd:16", hashes="sha1,xxh3_64", progress=False
    )
    args = parser.parse_args(argv)
    convert(
        source(getattr(args, "in"), args.out_mp4),
        args.out_mds,
        compression=args.compression or None,
        hashes=listed(args.hashes),
        size_limit=args.size_limit,
        workers=args.workers,
        resume=bool(args.resume),
    )


if __name__ == "__main__":
    main(run)
