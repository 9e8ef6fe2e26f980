"""A file that requests fill side by side, and that can be read behind them meanwhile."""

import os
import threading
from collections.abc import Iterator
from types import TracebackType

from streaming.cache.connections import Turn
from streaming.cache.transfer import Network, Source, Transfer

PART_BYTES = 8 << 20
"""Larger objects are brought in parts of so many bytes, side by side."""
_PIECE = 1 << 20


class Landing:
    """One object on its way into a file; a context manager that gives up what is not here.

    Args:
        path: The file; it exists.
        source: The object.
        network: What brings it.
        need: How soon it is needed, as for :meth:`Connections.turn`.
        urgent: Whether somebody waits for it, as there.
    """

    def __init__(
        self, path: str, source: Source, network: Network, need: float, urgent: bool = False
    ) -> None:
        self._path, self._source, self._network = path, source, network
        self._need, self._urgent = need, urgent
        self._file = open(path, "r+b", buffering=0)  # noqa: SIM115
        self._lock = threading.Lock()
        self._transfers: list[Transfer] = []
        self._dropped = 0

    def begin(self, turn: Turn | None = None) -> None:
        """Begin to bring it.

        Whether the store can give parts, and says of which version they are, its first answer
        shows; until then there is one request.

        Args:
            turn: A connection that the caller has waited for already.
        """
        size, first = self._source.size, PART_BYTES
        if not self._source.store.can_range or size <= PART_BYTES * 3 // 2:
            first = size
        self._bring(0, first, turn)
        if first == size:
            return
        parts = self._network.gives_parts(self._source.store.url)
        if parts is None:
            self._transfers[0].wait_for(1)
            parts = self._source.ranged and self._source.version.etag is not None
            self._network.note_parts(self._source.store.url, parts)
        if parts:
            for start in range(first, size, PART_BYTES):
                self._bring(start, min(start + PART_BYTES, size), None)
        else:
            whole = self._transfers.pop()
            whole.cancel()
            self._dropped += whole.bytes
            self._bring(0, size, None)

    def _bring(self, start: int, stop: int, turn: Turn | None) -> None:
        # A later part of what is needed first is needed before the first part of what is next.
        transfer = self._network.bring(
            self._source, start, stop, self._write, need=self._need, urgent=self._urgent
        )
        self._transfers.append(transfer.begin(turn))

    def _write(self, at: int, chunk: bytes | memoryview) -> None:
        view = memoryview(chunk)
        while view:
            if hasattr(os, "pwrite"):
                count = os.pwrite(self._file.fileno(), view, at)
            else:
                with self._lock:
                    self._file.seek(at)
                    count = self._file.write(view) or 0
            view = view[count:]
            at += count

    def wait(self) -> None:
        """Wait until all is here.

        Raises:
            StoreError: If it can't be had.
        """
        for transfer in self._transfers:
            transfer.wait()

    def pieces(self) -> Iterator[bytes]:
        """Its bytes in order, as they come.

        Raises:
            StoreError: If they can't be had.
        """
        # What can't be gone on with where it was cut off begins anew, with other bytes perhaps.
        if not self._source.store.can_range:
            self.wait()
        with open(self._path, "rb", buffering=0) as file:
            for transfer in self._transfers:
                at = 0
                while at < transfer.size:
                    here = transfer.wait_for(at + 1)
                    piece = file.read(min(here - at, _PIECE))
                    at += len(piece)
                    yield piece

    @property
    def bytes(self) -> int:
        """How many bytes have travelled."""
        return self._dropped + sum(transfer.bytes for transfer in self._transfers)

    def __enter__(self) -> "Landing":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for transfer in self._transfers:
            transfer.cancel()
        self._file.close()


class Stream:
    """What comes in pieces, to be read like a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def read(self, count: int = -1) -> bytes:
        """The next bytes, at most so many; all if negative; none at the end."""
        if count < 0:
            left, self._left = self._left, b""
            return left + b"".join(self._pieces)
        if not self._left:
            self._left = next(self._pieces, b"")
        data, self._left = self._left[:count], self._left[count:]
        return data
