"""The space that shards take: reserving it before a download, evicting what was unused longest.

"What is evicted first?" is answered by :func:`make_way`.
"""

import errno
import logging
import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from streaming.cache.directory import NOT_OURS, Directory, Entry
from streaming.cache.waiting import waiting

log = logging.getLogger("streaming")


@dataclass(frozen=True, slots=True)
class Victim:
    """A shard that could be evicted."""

    directory: int
    """Which of the directories it lies in."""
    shard: int
    size: int
    """Bytes of all its files."""
    used_ns: int
    was_opened: bool


MayEvict = Callable[[Victim], bool]


def make_way(
    excess: int,
    victims: Iterable[Victim],
    may_evict: MayEvict,
    evict: Callable[[Victim], int],
) -> bool:
    """Evict shards, least recently used first.

    Args:
        excess: Bytes that have to go.
        victims: The shards that could go, the one unused longest first.
        may_evict: Which of them may.
        evict: Evicts one; returns the bytes that are free then.

    Returns:
        Whether so many bytes went.

    Example:
        >>> old, new = Victim(0, 7, 60, 1, True), Victim(0, 3, 60, 2, True)
        >>> gone = []
        >>> make_way(50, [old, new], lambda victim: True, lambda one: gone.append(one) or one.size)
        True
        >>> [victim.shard for victim in gone]
        [7]
    """
    if excess <= 0:
        return True
    for victim in victims:
        if not may_evict(victim):
            continue
        excess -= evict(victim)
        if excess <= 0:
            return True
    return False


READERS_S = 20.0
"""How long to wait for the room of shards that were evicted, while others have them open."""
OTHERS_S = 1.0
"""How long to wait for room on a full disk if there was nothing to evict."""
FIRST_LOOK_S, LAST_LOOK_S = 0.05, 1.0
"""When to look whether other processes' readers have left some: at first, and later at most."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why there is no room now."""

    by: tuple[tuple[int, int], ...]
    """Shards that somebody is at work on, as directory and number: it may change when they end."""
    why: str


class CacheFullError(OSError):
    """There is no room for a shard, and nothing that could make way for it."""


class _DiskFullError(Exception):
    """The disk has no room for a file now."""

    def __init__(self, path: str, shard: int, size: int) -> None:
        self.folder = os.path.dirname(path)
        free = shutil.disk_usage(self.folder).free
        super().__init__(
            f"The disk of {self.folder} is full: shard {shard} needs {size:,} bytes, {free:,} are "
            f"free, and there is no shard left to evict. Free some space, or give `local` on a "
            f"larger disk."
        )


class Space:
    """The room that a dataset's directories may take together.

    Args:
        directories: The directories that shards are fetched into.
        limit: Bytes that their files may add up to, or None for no limit but the disk's.
        on_evict: Called with the number of shards evicted.
        let_go: Called while waiting for the room of evicted shards, to close those that are open in
            this process.
    """

    def __init__(
        self,
        directories: Sequence[Directory],
        limit: int | None,
        on_evict: Callable[[int], None] = lambda count: None,
        let_go: Callable[[], None] = lambda: None,
    ) -> None:
        self.directories = directories
        self.limit = limit
        self._on_evict = on_evict
        self._let_go = let_go
        self._evicted = 0
        self._left = threading.Condition()
        # Each directory is counted once, also where several streams share it.
        by_path = {os.path.realpath(d.path): i for i, d in enumerate(directories) if d.is_cache}
        self._counted = [by_path[path] for path in sorted(by_path)]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_left": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _left=threading.Condition())

    def usage(self) -> int:
        """Bytes of the directories' files; those being written count at their full size."""
        with self._guard():
            return sum(entry.size for _, entry in self._scan())

    def reserve(
        self, at: int, shard: int, parts: dict[str, int], may_evict: MayEvict | None = None
    ) -> Blocked | None:
        """Make room for temporary files and create them at full size, the shard being claimed.

        It never waits for others who fetch: whoever waits for them has to give up its own claim
        first (see :meth:`wait_for_room`), so that nobody ever waits for somebody who waits.

        Args:
            at: The number of the shard's directory.
            shard: The shard that they are for.
            parts: Paths of the files, with their sizes in bytes.
            may_evict: Which shards may make way. None for any, and to give those who have evicted
                shards open the time to close them, if the disk is full.

        Returns:
            None if the files are there now.

        Raises:
            CacheFullError: If the disk is full, and no shard is left that could make way.
        """
        if may_evict is not None:
            try:
                return self._reserve(at, shard, parts, may_evict)
            except _DiskFullError as full:
                return Blocked((), str(full))
        started, evicted = time.monotonic(), self._evicted
        look = FIRST_LOOK_S
        with waiting(f"room for shard {shard} of {self.directories[at].path}"):
            while True:
                try:
                    return self._reserve(at, shard, parts, lambda victim: True)
                except _DiskFullError as full:
                    patience = READERS_S if self._evicted > evicted else OTHERS_S
                    if time.monotonic() - started > patience:
                        raise CacheFullError(str(full)) from None
                # An evicted shard's room comes free when its last reader closes it, by its next
                # batch. This process's readers tell; of others' no system does, so that a few
                # looks, ever further apart, have to do. Others wait likewise for what this process
                # has open, and its next batch may be far.
                self._let_go()
                with self._left:
                    self._left.wait(look)
                look = min(2 * look, LAST_LOOK_S)

    def _reserve(
        self, at: int, shard: int, parts: dict[str, int], may_evict: MayEvict
    ) -> Blocked | None:
        if self.limit is None:
            self._create(at, shard, parts, may_evict)
            return None
        needed = sum(parts.values())
        with self._guard() as is_real:
            entries = self._without_rubbish(at, shard if is_real else -1)
            used = sum(entry.size for _, entry in entries)
            busy = [(i, e.shard) for i, e in entries if e.is_part and e.shard is not None]
            if self._evict_until(used + needed - self.limit, entries, (at, shard), may_evict, busy):
                self._create(at, shard, parts, may_evict)
                return None
        return Blocked(tuple(busy), self._why_full(needed, entries))

    def reader_left(self) -> None:
        """Hear that a reader of this process has closed an evicted shard."""
        with self._left:
            self._left.notify_all()

    def wait_for_room(self, blocked: Blocked, whose: str) -> None:
        """Wait until one of those who block is done.

        Raises:
            CacheFullError: If nobody is at work: then no waiting would help.
        """
        if not blocked.by:
            raise CacheFullError(blocked.why)
        at, shard = blocked.by[0]
        path = self.directories[at].path
        claim = self.directories[at].claim(shard)
        claim.acquire(f"room for {whose}, until shard {shard} of {path} is here")
        claim.release()

    def evict(self, at: int, shard: int) -> bool:
        """Evict a shard unless somebody is fetching it."""
        return bool(self._remove(at, shard))

    def _remove(self, at: int, shard: int) -> int | None:
        """Evict a shard; the bytes that it had here, or None if somebody is at work on it."""
        directory = self.directories[at]
        if not directory.is_cache:
            return 0
        claim = directory.claim(shard)
        if not claim.try_acquire():
            return None
        try:
            freed = directory.remove(shard)
        finally:
            claim.release()
        if freed:
            log.debug("Evicted %s, %d bytes", claim, freed)
            self._evicted += 1
            self._on_evict(1)
        return freed

    def evict_coldest(self) -> bool:
        """Evict the shard that was unused longest; False if there is none."""
        with self._guard():
            return self._evict_until(1, list(self._scan()), None, lambda victim: True, [])

    def sweep(self) -> None:
        """Remove what writers that are gone have left half-written."""
        for i in self._counted:
            for path, shard in self.directories[i].parts():
                self._remove_rubbish(i, shard, path)

    def _scan(self) -> Iterator[tuple[int, Entry]]:
        for i in self._counted:
            for entry in self.directories[i].scan():
                yield i, entry

    @contextmanager
    def _guard(self) -> Iterator[bool]:
        """Hold the reckoning of all directories' space, taken in one order by everyone.

        Yields:
            Whether there are locks for it, so that it is really held.
        """
        with ExitStack() as stack:
            claims = [self.directories[i].renaming() for i in self._counted]
            for claim in claims:
                stack.enter_context(claim)
            yield all(claim.is_real for claim in claims)

    def _without_rubbish(self, at: int, own: int) -> list[tuple[int, Entry]]:
        """The directories' files, less temporary ones that nobody is writing; those are removed.

        What lies about of the caller's own shard is rubbish too, since the caller has its claim
        and has not begun.
        """
        kept = []
        for i, entry in self._scan():
            if entry.is_part and entry.shard is not None:
                if self._is_same(i, at) and entry.shard == own:
                    removed = _unlink(entry.path)
                else:
                    removed = self._remove_rubbish(i, entry.shard, entry.path)
                if removed:
                    continue
            kept.append((i, entry))
        return kept

    def _remove_rubbish(self, at: int, shard: int, path: str) -> bool:
        """Remove a temporary file unless somebody is (or may be, without locks) writing it."""
        with ExitStack() as stack:
            claim = self.directories[at].claim(shard)
            if not claim.try_acquire():
                return False
            stack.callback(claim.release)
            return claim.is_real and _is_own(path) and _unlink(path)

    def _is_same(self, i: int, j: int) -> bool:
        if j < 0:
            return False
        return i == j or os.path.realpath(self.directories[i].path) == os.path.realpath(
            self.directories[j].path
        )

    def _evict_until(
        self,
        excess: int,
        entries: list[tuple[int, Entry]],
        keep: tuple[int, int] | None,
        may_evict: MayEvict,
        busy: list[tuple[int, int]],
    ) -> bool:
        """Evict shards, least recently used first; whether that many bytes are free then."""

        def evict(victim: Victim) -> int:
            freed = self._remove(victim.directory, victim.shard)
            if freed is None:
                busy.append((victim.directory, victim.shard))
            elif freed or not self.directories[victim.directory].is_present(victim.shard):
                return victim.size
            return 0  # it is another user's, who alone may remove it

        return make_way(
            excess,
            _victims(entries),
            lambda victim: not self._is_of(keep, victim) and may_evict(victim),
            evict,
        )

    def _is_of(self, keep: tuple[int, int] | None, victim: Victim) -> bool:
        if keep is None or victim.shard != keep[1]:
            return False
        return self._is_same(victim.directory, keep[0])

    def _create(self, at: int, shard: int, parts: dict[str, int], may_evict: MayEvict) -> None:
        """Create the files; where the disk is full, the least recently used shards make way."""
        made: list[str] = []
        try:
            for path, size in parts.items():
                made.append(path)
                if _allocate(path, size):
                    continue
                self._evict_until(size, list(self._scan()), (at, shard), may_evict, [])
                if not _allocate(path, size):
                    raise _DiskFullError(path, shard, size)
        except BaseException:
            for path in made:
                _unlink(path)
            raise

    def _why_full(self, needed: int, entries: list[tuple[int, Entry]]) -> str:
        foreign = sum(entry.size for _, entry in entries if entry.shard is None)
        paths = ", ".join(self.directories[i].path for i in self._counted)
        return (
            f"cache_limit is {self.limit:,} bytes, too little for a shard of {needed:,} bytes "
            f"beside the {foreign:,} bytes of other files in {paths}. Raise cache_limit to at "
            f"least {needed + foreign:,}."
        )


def _victims(entries: list[tuple[int, Entry]]) -> list[Victim]:
    """The shards among the files of some directories, the one unused longest first."""
    files: defaultdict[tuple[int, int], list[Entry]] = defaultdict(list)
    for i, entry in entries:
        if entry.shard is not None and not entry.is_part:
            files[i, entry.shard].append(entry)
    victims = [
        Victim(
            directory=i,
            shard=shard,
            size=sum(entry.size for entry in of_shard),
            used_ns=max(entry.used_ns for entry in of_shard),
            was_opened=any(entry.was_opened for entry in of_shard),
        )
        for (i, shard), of_shard in files.items()
    ]
    return sorted(victims, key=lambda victim: victim.used_ns)


def _allocate(path: str, size: int) -> bool:
    """Create a file of a size; False if the disk has no room for it."""
    with open(path, "wb") as file:
        try:
            if size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                os.ftruncate(file.fileno(), size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                os.ftruncate(file.fileno(), 0)
                return False
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            os.ftruncate(file.fileno(), size)
    return True


def _is_own(path: str) -> bool:
    """Whether a file is this user's; another's may be at work without locks, for want of rights."""
    try:
        return not hasattr(os, "geteuid") or os.stat(path).st_uid == os.geteuid()
    except FileNotFoundError:
        return True


def _unlink(path: str) -> bool:
    """Remove a file if it is there; False if this user may not."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in NOT_OURS:
            raise
        return False
    return True
