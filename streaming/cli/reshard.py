"""`shardstream reshard`: the same samples in other shards."""

from __future__ import annotations

import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from streaming.cli.cp import refuse_same
from streaming.cli.place import Access, Place, open_place, root_of
from streaming.cli.shards import bring, check_here, is_here, opened
from streaming.cli.transfer import ahead, default_workers
from streaming.format.errors import FormatError
from streaming.format.reader import Reader
from streaming.format.writer import Writer
from streaming.format.writer_json import JSONWriter
from streaming.format.writer_mds import MDSWriter
from streaming.format.writer_xsv import CSVWriter, TSVWriter, XSVWriter
from streaming.storage import is_local

__all__ = ["Resharded", "reshard"]

_WRITERS: dict[str, type[Writer]] = {
    "csv": CSVWriter,
    "json": JSONWriter,
    "mds": MDSWriter,
    "tsv": TSVWriter,
    "xsv": XSVWriter,
}
_COMMON = ("format", "column_names", "column_encodings", "columns", "separator", "newline")
"""What all shards must agree in to go into one data set."""

_MOST_OPEN = 256
"""Shards that are open at once during a shuffle: each takes a descriptor."""


@dataclass(frozen=True, slots=True)
class Resharded:
    """A data set that was written anew."""

    url: str
    out: str
    samples: int
    shards_before: int
    shards: int
    bytes_before: int
    """Bytes of the samples before, uncompressed."""
    bytes: int
    """Bytes of the new shards as they are stored."""
    seed: int | None
    """What the samples were shuffled with; None if they are in their old order."""
    seconds: float


def reshard(
    url: str,
    out: str,
    access: Access | None = None,
    out_access: Access | None = None,
    *,
    size_limit: str | int | None = None,
    compression: str | None = "",
    hashes: Sequence[str] | None = None,
    seed: int | None = None,
    force: bool = False,
    workers: int | None = None,
) -> Resharded:
    """Write a data set's samples into new shards. A sample's bytes are not decoded: none change.

    Args:
        url: The data set.
        out: Where to: a folder or a URL, which must be empty.
        access: How the data set's store is reached.
        out_access: How the other one is reached.
        size_limit: Most bytes of a new shard before compression; None for the old limit.
        compression: Of the new shards; None for none, "" for that of the old ones.
        hashes: To be kept of the new files; None for those of the old ones.
        seed: Of a shuffle of all samples; None for the old order. For a shuffle, the whole data set
            is brought to the temporary folder, uncompressed, unless it is here in that form.
        force: Whether a data set that is at `out` may be replaced.
        workers: How many shards are fetched at once.

    Returns:
        The new data set.

    Raises:
        FileExistsError: If `out` is not empty.
        FormatError: If a shard is damaged, or shards differ in format or columns.
        StoreError: If something can't be read or written.
        ValueError: If an argument makes no sense.

    Example:
        >>> import tempfile
        >>> from streaming import LocalDataset, MDSWriter
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=f"{folder}/a", columns={"x": "int"}) as writer:
        ...     for x in range(5):
        ...         writer.write({"x": x})
        >>> reshard(f"{folder}/a", f"{folder}/b", size_limit=200, compression="zstd").shards
        3
        >>> [sample["x"] for sample in LocalDataset(f"{folder}/b")[:]]
        [0, 1, 2, 3, 4]
    """
    start = time.perf_counter()
    source, out = open_place(url, access), root_of(out)
    refuse_same(source.url, out)
    first = _common(source)
    before = first["compression"] if compression == "" else compression
    writer = _writer(
        first,
        out=out,
        compression=before,
        hashes=first["hashes"] if hashes is None else sorted(set(hashes)),
        size_limit=first["size_limit"] if size_limit is None else size_limit,
        exist_ok=force,
        storage_options=None if is_local(out) or out_access is None else dict(out_access.options),
    )
    count = workers or default_workers()
    data = _in_order(source, count) if seed is None else _shuffled(source, seed, count)
    with writer:
        for packed in data:
            writer.write(packed)  # type: ignore[arg-type]  # see _writer
    made = [e.get(f"{form}_{kind}") for e in writer.shards for form, kind in _slots(before)]
    return Resharded(
        url=source.url,
        out=out,
        samples=source.index.num_samples,
        shards_before=len(source.index),
        shards=len(writer.shards),
        bytes_before=int(source.index.raw_bytes.sum()),
        bytes=sum(one["bytes"] for one in made if one),
        seed=seed,
        seconds=time.perf_counter() - start,
    )


def _slots(compression: str | None) -> list[tuple[str, str]]:
    form = "raw" if compression is None else "zip"
    return [(form, "data"), (form, "meta")]


def _common(source: Place) -> Mapping[str, Any]:
    """What the shards are like; refused if they can't go into one data set."""
    if not source.index.schemas:
        raise FormatError(f"{source.url} has no shards")
    first = source.index.schemas[0]
    for schema in source.index.schemas[1:]:
        for name in _COMMON:
            if schema.get(name) != first.get(name):
                raise FormatError(
                    f"{source.url} has shards that differ in {name}: {first.get(name)!r} and "
                    f"{schema.get(name)!r}; their samples can't be put into the same shards"
                )
    names = first.get("column_names")
    if names is not None and names != sorted(names):
        raise FormatError(
            f"{source.url} has its columns in the order {', '.join(names)}; a sample's bytes could "
            "not stay as they are, for columns are written in order of their names"
        )
    return first


def _writer(schema: Mapping[str, Any], **arguments: Any) -> Writer:
    """A writer of a format whose samples are bytes already."""
    base = _WRITERS[schema["format"]]
    encode: Callable[[Any, bytes], bytes] = lambda self, sample: sample  # noqa: E731
    kind = type(base.__name__, (base,), {"encode_sample": encode})
    if schema["format"] == "json":
        arguments["columns"] = schema["columns"]
    else:
        pairs = zip(schema["column_names"], schema["column_encodings"], strict=True)
        arguments["columns"] = dict(pairs)
    if schema["format"] != "mds":
        arguments["newline"] = schema["newline"]
    if schema["format"] == "xsv":
        arguments["separator"] = schema["separator"]
    writer: Writer = kind(**arguments)
    return writer


def _in_order(source: Place, workers: int) -> Iterator[bytes]:
    def read(shard: int) -> list[bytes]:
        if is_here(source, shard):
            check_here(source, shard)
        with opened(source, shard, unsafe=True) as reader:
            return [reader.get_sample_data(at) for at in range(reader.samples)]

    # Some shards are in memory at once; a few are enough to hide the way here.
    told = partial(source.access.on_shard, "shards read", len(source.index))
    for samples in ahead(read, range(len(source.index)), min(workers, 4), told):
        yield from samples


def _shuffled(source: Place, seed: int, workers: int) -> Iterator[bytes]:
    index = source.index
    with ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="shardstream-", ignore_cleanup_errors=True)
        )

        def prepare(shard: int) -> Reader:
            if is_here(source, shard) and source.root is not None:
                check_here(source, shard)
                return index.reader(shard, source.root, None, True)
            bring(source, shard, folder)
            return index.reader(shard, folder, None, True)

        told = partial(source.access.on_shard, "shards read", len(index))
        readers = list(ahead(prepare, range(len(index)), workers, told))
        recent: OrderedDict[int, Reader] = OrderedDict()
        stack.callback(lambda: _close(recent, 0))
        order = np.random.default_rng(seed).permutation(index.num_samples)
        shards = np.searchsorted(index.offsets, order, side="right") - 1
        for number, shard in zip(order.tolist(), shards.tolist(), strict=True):
            recent[shard] = readers[shard]
            recent.move_to_end(shard)
            _close(recent, _MOST_OPEN)
            yield readers[shard].get_sample_data(number - int(index.offsets[shard]))


def _close(recent: OrderedDict[int, Reader], most: int) -> None:
    """Close the readers that were used longest ago, until few enough are open."""
    while len(recent) > most:
        recent.popitem(last=False)[1].close()
