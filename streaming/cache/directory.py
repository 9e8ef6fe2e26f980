"""A stream's directory on this node: which shards are in it, under which names, since when unused.

Everything is read off the directory itself. A shard is present when its files are there under
their own names with the sizes that the index gives; a file being written has a temporary name that
tells whose it is.
"""

import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from streaming.cache.claims import SPACE, Claim
from streaming.cache.origin import INDEX as INDEX
from streaming.cache.origin import Origin
from streaming.format.index import Index
from streaming.format.info import FileInfo
from streaming.storage import RetryPolicy, Store

NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)
"""What the system says of a file or folder that this user may not change."""

_PART = re.compile(r"\.part-(\d+)-[0-9a-f]{8}-")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a directory, as :meth:`Directory.scan` finds it."""

    path: str
    size: int
    """In bytes."""
    shard: int | None
    """The shard that the file belongs to, or None for a file that belongs to none."""
    is_part: bool
    """Whether it is (or was) being written."""
    used_ns: int
    """When it was last opened by a reader, or fetched."""
    was_opened: bool
    """False for a file that was fetched ahead and that no reader has opened yet."""


@dataclass(frozen=True)
class Directory:
    """One stream's shards on this node, and where they come from.

    Streams without a ``store`` are their user's originals: they are read and never changed.
    """

    path: str
    index: Index
    store: Store | None = None
    """Where missing shards come from."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    validate_hash: str | None = None
    """Name of the hash that every file is checked against, or None to check sizes alone."""
    keep_zip: bool = False
    """Whether the compressed form of a shard stays beside the raw one."""
    origin: Origin | None = None
    """Which version of the data set this is; None if it is not known to be anybody's copy."""
    bring: Callable[[int], None] | None = None
    """Brings a shard in the user's own way, in place of the store."""

    @property
    def is_cache(self) -> bool:
        """Whether files here can be had again, and so may be fetched and evicted."""
        return self.store is not None or self.bring is not None

    @property
    def url(self) -> str:
        """Where its shards come from: the remote, or the directory itself."""
        return self.path if self.store is None else self.store.url

    def check_here(self) -> None:
        """See that the directory still holds the data set that was opened, see :class:`Origin`."""
        if self.origin is not None:
            self.origin.check_here()

    def check_there(self, max_age_s: float = 0.0) -> None:
        """See that the remote still holds it, too, or did so long ago."""
        if self.origin is not None:
            self.origin.check_there(max_age_s)

    @property
    def index_path(self) -> str:
        """The file whose bytes are locked by claims."""
        return os.path.join(self.path, INDEX)

    def claim(self, shard: int) -> Claim:
        """The claim on a shard, not taken yet."""
        return Claim(self.index_path, shard)

    def renaming(self) -> Claim:
        """What to hold while files get or lose their names, and while they are added up.

        A listing that is read while a file is renamed can hold both of its names, or neither.
        """
        return Claim(self.index_path, SPACE)

    def path_of(self, info: FileInfo) -> str:
        """Where one of a shard's files has its place."""
        return os.path.join(self.path, *info.basename.split("/"))

    def has(self, info: FileInfo) -> bool:
        """Whether a file is here with the size that it should have."""
        try:
            return os.stat(self.path_of(info)).st_size == info.bytes
        except FileNotFoundError:
            return False

    def is_present(self, shard: int) -> bool:
        """Whether a shard can be read."""
        return all(self.has(raw) for raw, _ in self.index.files(shard))

    def paths(self, shard: int) -> list[str]:
        """Every file that a shard can have here, raw and compressed."""
        return [
            self.path_of(info)
            for pair in self.index.files(shard)
            for info in pair
            if info is not None
        ]

    def mark(self, shard: int, opened: bool) -> None:
        """Note that a shard was used now: opened by a reader, or fetched ahead of any.

        The access time says which, since nobody else sets it to the beginning of time.
        """
        for raw, _ in self.index.files(shard):
            path = self.path_of(raw)
            try:
                if opened:
                    os.utime(path)
                else:
                    os.utime(path, ns=(0, os.stat(path).st_mtime_ns))
            except OSError:
                pass  # evicted meanwhile, or another user's file: then recency is what it was

    def remove(self, shard: int) -> int:
        """Unlink a shard's files, and return their bytes. Readers that have them open read on.

        Files that this user may not unlink stay.
        """
        freed = 0
        for path in self.paths(shard):
            try:
                size = os.stat(path).st_size
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in NOT_OURS:
                    raise
                continue
            freed += size
        return freed

    def part_path(self, info: FileInfo, shard: int) -> str:
        """A new temporary name beside a file's place, for writing it."""
        folder, name = os.path.split(self.path_of(info))
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, f".part-{shard}-{secrets.token_hex(4)}-{name}")

    def parts(self) -> Iterator[tuple[str, int]]:
        """Paths of the files that are (or were) being written, with their shards' numbers.

        It reads names alone, which is cheap in a directory of many files, too.
        """
        for _, found in self._listings():
            for item in found:
                part = _PART.match(item.name)
                if part is not None:
                    yield item.path, int(part[1])

    def _listings(self) -> Iterator[tuple[str, list["os.DirEntry[str]"]]]:
        for folder in self._folders:
            try:
                with os.scandir(os.path.join(self.path, *folder.split("/"))) as found:
                    yield folder, list(found)
            except FileNotFoundError:
                continue

    def scan(self) -> Iterator[Entry]:
        """Every file in the directory's folders."""
        for folder, found in self._listings():
            for item in found:
                if item.name.startswith(".locks"):
                    continue
                try:
                    if not item.is_file(follow_symlinks=False):
                        continue
                    stat = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                part = _PART.match(item.name)
                name = f"{folder}/{item.name}" if folder else item.name
                yield Entry(
                    path=item.path,
                    size=stat.st_size,
                    shard=int(part[1]) if part else self.index.shard_named(name),
                    is_part=part is not None,
                    used_ns=stat.st_mtime_ns,
                    was_opened=stat.st_atime_ns != 0,
                )

    @cached_property
    def _folders(self) -> list[str]:
        return sorted({"", *self.index.folders()})
