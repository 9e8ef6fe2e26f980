"""`shardstream verify`: whether a data set is what its index says."""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streaming.cli.place import INDEX, Access, Place, read_index, root_of
from streaming.cli.transfer import Sink, ahead, default_workers, faults, receive
from streaming.format.compression import decompress_stream
from streaming.format.errors import CorruptShardError, FormatError
from streaming.format.index import Index
from streaming.format.info import FileInfo
from streaming.format.reader import Reader
from streaming.storage import NotFound, StoreError

__all__ = ["Problem", "Verified", "check_place", "parse_share", "verify"]

_MOST_SAMPLES = 10
"""Damaged samples that are listed of one shard."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it should be."""

    kind: str
    """missing, size, hash, compression, offsets, header, sample, index, or unreadable."""
    file: str
    """The file's name in the data set."""
    message: str
    shard: int | None = None
    sample: int | None = None
    """The sample's number in the data set."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a data set was found to be."""

    url: str
    shards: int
    samples: int
    files: int
    """Files that were read from beginning to end."""
    bytes: int
    """Their bytes."""
    decoded: int
    """Samples that were decoded."""
    absent: int
    """Shards that are not there, where that is allowed."""
    unhashed: int
    """Files that the index has no hash of: that their bytes are right can't be shown."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass(slots=True)
class _Found:
    """What was found of one shard."""

    shard: int
    files: int = 0
    bytes: int = 0
    decoded: int = 0
    unhashed: int = 0
    absent: bool = False
    problems: list[Problem] = field(default_factory=list)

    def note(self, kind: str, file: str, message: str, sample: int | None = None) -> None:
        self.problems.append(Problem(kind, file, message, self.shard, sample))


def parse_share(text: str) -> float:
    """Read how many of the samples are to be decoded.

    Example:
        >>> parse_share("all"), parse_share("0.01"), parse_share("1%"), parse_share("none")
        (1.0, 0.01, 0.01, 0.0)
    """
    named = {"all": 1.0, "none": 0.0}
    try:
        share = named[text] if text in named else float(text.rstrip("%"))
        share = share / 100 if text.endswith("%") else share
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise ValueError(f"{text!r} is not a share of the samples: give 0.01, 1%, all or none")
    return share


def verify(
    url: str,
    access: Access | None = None,
    *,
    share: float = 0.01,
    seed: int = 0,
    workers: int | None = None,
    present_only: bool = False,
    unsafe: bool = False,
) -> Verified:
    """Read every file of a data set, and compare it with its index.

    Sizes and all hashes are checked, compressed files decompressed; tables of offsets and headers
    are compared with the index; a share of each shard's samples is decoded.

    Args:
        url: The data set.
        access: How its store is reached.
        share: The part of the samples that is decoded, from 0 to 1.
        seed: Which ones.
        workers: How many shards are read at once.
        present_only: Whether shards may be missing, as in a cache.
        unsafe: Whether samples are decoded whose encoding can run code.

    Returns:
        What was found; a file that can't be read is one of its problems.

    Raises:
        StoreError: If the index can't be read.

    Example:
        >>> import pathlib, tempfile
        >>> from streaming import MDSWriter
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "int"}, hashes=["sha1"]) as writer:
        ...     writer.write({"x": 1})
        >>> verify(folder).ok
        True
        >>> shard = pathlib.Path(folder, "shard.00000.mds")
        >>> _ = shard.write_bytes(shard.read_bytes()[:-1])
        >>> [(problem.kind, problem.shard) for problem in verify(folder).problems]
        [('size', 0)]
    """
    url, access = root_of(url), access or Access()
    try:
        store, data = read_index(url, access)
        place = Place(url, store, access, data, Index.parse(data, store.url_of(INDEX)))
    except (FileNotFoundError, FormatError) as exc:
        kind = "index" if isinstance(exc, FormatError) else "missing"
        return Verified(url, 0, 0, 0, 0, 0, 0, 0, [Problem(kind, INDEX, str(exc))])
    return check_place(
        place, share=share, seed=seed, workers=workers, present_only=present_only, unsafe=unsafe
    )


def check_place(
    place: Place,
    *,
    share: float = 0.01,
    seed: int = 0,
    workers: int | None = None,
    present_only: bool = False,
    unsafe: bool = False,
) -> Verified:
    """Do as `verify` does, with a data set whose index has been read."""
    start = time.perf_counter()
    notes = []
    try:
        place.index.validate_safe(unsafe)
    except FormatError as exc:
        share = 0.0
        notes.append(f"No sample was decoded: {exc}")
    check = partial(_check_shard, place, share, seed, present_only)
    total = len(place.index)
    told = partial(place.access.on_shard, "shards verified", total)
    found = list(ahead(check, range(total), workers or default_workers(), told))
    problems = [*_names_twice(place.index), *(p for one in found for p in one.problems)]
    unhashed = sum(one.unhashed for one in found)
    if unhashed:
        notes.append(
            f"The index has no hash of {unhashed} files: changed bytes of theirs are found only if "
            "they break the format"
        )
    return Verified(
        url=place.url,
        shards=total,
        samples=place.index.num_samples,
        files=sum(one.files for one in found),
        bytes=sum(one.bytes for one in found),
        decoded=sum(one.decoded for one in found),
        absent=sum(one.absent for one in found),
        unhashed=unhashed,
        problems=problems,
        notes=notes,
        seconds=time.perf_counter() - start,
    )


def _names_twice(index: Index) -> Iterator[Problem]:
    """Files that two shards claim as theirs."""
    owners: dict[str, int] = {}
    for shard in range(len(index)):
        for raw, _ in index.files(shard):
            owner = owners.setdefault(raw.basename, shard)
            if owner != shard:
                what = f"is said to be of shard {owner} and of shard {shard}"
                yield Problem("index", raw.basename, what, shard)


def _check_shard(place: Place, share: float, seed: int, present_only: bool, shard: int) -> _Found:
    found = _Found(shard)
    with tempfile.TemporaryDirectory(prefix="shardstream-", ignore_cleanup_errors=True) as folder:
        folder = _check_files(place, found, folder, present_only)
        if folder and all(p.kind == "hash" for p in found.problems):
            # Right sizes: whatever else is wrong says where in the file the damage is.
            _check_content(place, found, folder, share, seed)
    return found


def _check_files(place: Place, found: _Found, folder: str, present_only: bool) -> str:
    """Read a shard's files; return the folder in which all of them are raw, "" if they aren't."""
    pairs = place.index.files(found.shard)
    here = place.root
    if here is not None and not all(os.path.isfile(_path(here, raw)) for raw, _ in pairs):
        here = None
    there = [_check_pair(place, found, raw, zipped, here, folder) for raw, zipped in pairs]
    if present_only and not any(there):
        found.problems, found.absent = [], True
    return (here or folder) if all(there) else ""


def _check_pair(
    place: Place,
    found: _Found,
    raw: FileInfo,
    zipped: FileInfo | None,
    here: str | None,
    folder: str,
) -> bool:
    """Check one file in the forms that it has; return whether there is any."""
    is_there = False
    if zipped is not None and _check_file(place, found, zipped, _path(folder, zipped)):
        is_there = True
        if not any(p.file == zipped.basename and p.kind != "hash" for p in found.problems):
            _unpack(place, found, raw, zipped, folder)
        if here is None:
            return True
    target = None if here is not None else _path(folder, raw)
    if _check_file(place, found, raw, target):
        return True
    if not is_there:
        wanted = f" (nor as {zipped.basename})" if zipped is not None else ""
        found.note("missing", raw.basename, f"there is no such file{wanted}")
    return is_there


def _check_file(place: Place, found: _Found, info: FileInfo, target: str | None) -> bool:
    """Read a file through, into another if that is wanted; return whether it is there."""
    if target is not None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        received = receive(place.store, info.basename, info.hashes, place.access, target)
    except NotFound:
        return False
    except (StoreError, OSError) as exc:
        found.note("unreadable", info.basename, str(exc))
        return True
    found.files += 1
    found.bytes += received.bytes
    found.unhashed += not info.hashes
    for kind, message in faults(info, received):
        found.note(kind, info.basename, message)
    return True


def _unpack(place: Place, found: _Found, raw: FileInfo, zipped: FileInfo, folder: str) -> None:
    """Decompress a file beside itself, and check what it becomes."""
    algo = place.index.config(found.shard)["compression"]
    packed, path = _path(folder, zipped), _path(folder, raw)
    try:
        with open(packed, "rb") as source, open(path, "wb") as file:
            sink = Sink(raw.hashes, file)
            decompress_stream(algo, source, sink, raw.bytes)  # type: ignore[arg-type]
    except FormatError as exc:
        found.note("compression", zipped.basename, str(exc))
        return
    finally:
        os.unlink(packed)
    for _, message in faults(raw, sink.received()):
        found.note("compression", zipped.basename, f"decompressed: {message}")


def _path(folder: str, info: FileInfo) -> str:
    return os.path.join(folder, *info.basename.split("/"))


def _check_content(place: Place, found: _Found, folder: str, share: float, seed: int) -> None:
    """Check offsets, header and samples of a shard whose raw files are in a folder."""
    # Offsets are read with the columns' sizes, which runs no code of the data set's.
    reader = place.index.reader(found.shard, folder, None, allow_unsafe_types=True)
    first = reader.file_pairs[0][0].basename
    try:
        reader.open()
    except CorruptShardError as exc:
        found.note("offsets", first, _local(str(exc), folder))
        return
    except (FormatError, OSError) as exc:
        found.note("unreadable", first, _local(str(exc), folder))
        return
    try:
        wrong = _header_fault(
            place.index.config(found.shard), _path(folder, reader.file_pairs[0][0])
        )
        if wrong:
            found.note("header", first, wrong)
        _check_samples(place, found, reader, folder, share, seed)
    finally:
        reader.close()


def _header_fault(config: dict[str, Any], path: str) -> str | None:
    """What is wrong with the JSON behind a file's table of offsets; None if nothing is."""
    with open(path, "rb") as file:
        count = int.from_bytes(file.read(4), "little")
        table = np.frombuffer(file.read(4 * (count + 1)), "<u4")
        begin = 4 * (count + 2)
        joint = config["format"] == "mds"
        data = file.read(int(table[0]) - begin) if joint else file.read()
    own = {name: value for name, value in config.items() if name not in _NOT_IN_HEADER}
    try:
        header = json.loads(data)
    except ValueError as exc:
        return f"the header is not JSON: {exc}"
    if header == own:
        return None
    if not isinstance(header, dict):
        return "the header is not a JSON object"
    names = sorted(n for n in {*header, *own} if header.get(n, _NONE) != own.get(n, _NONE))
    return f"the header and the index differ in {', '.join(names)}"


_NOT_IN_HEADER = {"samples", "raw_data", "zip_data", "raw_meta", "zip_meta"}
_NONE = object()


def _check_samples(
    place: Place, found: _Found, reader: Reader, folder: str, share: float, seed: int
) -> None:
    count = math.ceil(share * reader.samples)
    if not count:
        return
    rng = np.random.default_rng([seed, found.shard])
    chosen = np.sort(rng.choice(reader.samples, count, replace=False))
    start = int(place.index.offsets[found.shard])
    for at in chosen.tolist():
        found.decoded += 1
        try:
            _load(reader.sample(at))
        except Exception as exc:  # whatever an encoding raises of bytes that are not its own
            name = reader.file_pairs[-1][0].basename
            found.note("sample", name, _local(str(exc), folder), start + at)
            if sum(p.kind == "sample" for p in found.problems) >= _MOST_SAMPLES:
                return


def _load(value: Any) -> None:
    """Decode images, which are only opened until they are looked at."""
    if isinstance(value, dict):
        for one in value.values():
            _load(one)
    elif isinstance(value, list):
        for one in value:
            _load(one)
    elif type(value).__module__.startswith("PIL."):
        value.load()


def _local(message: str, folder: str) -> str:
    """A message with files named as in the data set, not by where they were for a moment."""
    return message.replace(str(Path(folder)) + os.sep, "")
