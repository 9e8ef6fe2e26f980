"""How far a process fetches ahead of its iteration, and what it spares from eviction meanwhile."""

from collections import Counter, deque

DUE = 256
"""Shards of so many samples to come are fetched however many bytes they are: each sample can lie in
another one."""


class Window:
    """The stretch of a node's order of need between what was used and what is fetched for it.

    It knows no files, threads or clock: the planner walks the same windows.

    Args:
        workers: How many workers the node has; positions count the samples of all of them.
        samples_ahead: How many samples of each worker to look ahead; None to go by bytes.
        sample_bytes: What a sample takes on average.
        bytes_ahead: How far to look ahead where it is not said in samples: until the samples take
            so many bytes, or the shards that are not here and not needed yet do.
        due: For how many samples shards are fetched however many bytes they are.

    Example:
        >>> window = Window(2, None, sample_bytes=100.0, bytes_ahead=100_000)
        >>> window.take(0, shard=7, size=60_000)
        >>> window.take(300, shard=8, size=60_000)
        >>> window.is_enough(400), 7 in window
        (True, True)
        >>> window.move(200)
        >>> window.is_enough(400), 7 in window
        (False, False)
    """

    def __init__(
        self,
        workers: int,
        samples_ahead: int | None,
        sample_bytes: float,
        bytes_ahead: float,
        due: int = DUE,
    ) -> None:
        self.position = 0
        """The first sample of the node that is not used yet."""
        self.wake_at = 0
        """From which position on there is more to fetch; 0 where any step can bring that about."""
        self.due = due
        """How far shards are fetched however many bytes they are, in samples of the node."""
        self._bytes_ahead = bytes_ahead
        if samples_ahead is None:
            ahead = max(due, int(bytes_ahead / max(1.0, sample_bytes)))
        else:
            ahead = samples_ahead * workers
            self._bytes_ahead = float("inf")
        self.ahead = ahead
        """How far to look ahead at most, in samples of the node."""
        # What was taken from the order of need and that the node has not passed yet:
        # (position, shard, bytes).
        self._taken: deque[tuple[int, int, int]] = deque()
        self._shards: Counter[int] = Counter()
        self._bytes = 0

    def move(self, position: int) -> None:
        """Let it begin at a later position."""
        self.position = position
        while self._taken and self._taken[0][0] < position:
            _, shard, size = self._taken.popleft()
            self._bytes -= size
            self._shards[shard] -= 1
            if not self._shards[shard]:
                del self._shards[shard]

    def is_enough(self, position: int) -> bool:
        """Whether what is needed at a position need not be fetched yet."""
        if position >= self.position + self.ahead:
            self.wake_at = position - self.ahead + 1
        elif self._bytes >= self._bytes_ahead and position >= self.position + self.due:
            self.wake_at = 0
        else:
            return False
        return True

    def take(self, position: int, shard: int, size: int) -> None:
        """Let it reach a position, at which a shard is needed that so many bytes are to come of."""
        self._taken.append((position, shard, size))
        self._bytes += size
        self._shards[shard] += 1

    def __contains__(self, shard: int) -> bool:
        return self._shards[shard] > 0

    def may_evict(self, shard: int, was_opened: bool) -> bool:
        """Spare what is needed before, here or (fetched and not opened yet) by other processes."""
        return was_opened and shard not in self
