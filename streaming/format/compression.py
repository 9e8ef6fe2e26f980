"""Compression of files: ``br``, ``bz2``, ``gz``, ``snappy``, ``zstd``; levels as in ``zstd:7``.

What is written depends on nothing but the data and the level: gzip stores no time, and each file
is compressed by one thread. What is read may come from a stranger: decompression takes a limit,
checks as it goes, and never holds much more than the limit.

Example:
    >>> packed = compress("gz:6", b"abc" * 100)
    >>> len(decompress("gz:6", packed))
    300
"""

from __future__ import annotations

import bz2
import importlib
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, ClassVar, cast

import zstandard

from streaming.format.errors import FormatError, MissingExtraError

__all__ = [
    "Brotli",
    "Bzip2",
    "Compression",
    "Gzip",
    "LevelledCompression",
    "Snappy",
    "Zstandard",
    "compress",
    "decompress",
    "decompress_stream",
    "get_compression_extension",
    "get_compressions",
    "is_compression",
]

_PIECE = 1 << 20
"""Bytes of output that a decompressor is asked for at a time, where it can be asked."""

# Decompressors that can't be asked are fed so little that what it may become stays bearable: a
# zstd block of 4 bytes can stand for 128 KiB.
_MORSEL = 1 << 11


def _extra(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as err:
        raise MissingExtraError(
            f"Compression with {package} needs a package that is not installed: "
            f"pip install 'shardstream[compression]'"
        ) from err


class Compression(ABC):
    """One algorithm.

    Raises:
        FormatError: When decompressing: the data is damaged, cut off, followed by something else,
            or becomes more than ``max_bytes``.
        MissingExtraError: The algorithm's package is not installed.
    """

    extension: ClassVar[str] = ""
    """What is appended to a file's name, without the dot."""

    @classmethod
    def each(cls) -> Iterator[tuple[str, Compression]]:
        """Yield every name that the algorithm goes by, with what it means."""
        yield cls.extension, cls()

    @abstractmethod
    def compress(self, data: bytes) -> bytes:
        """Compress bytes."""
        raise NotImplementedError

    @abstractmethod
    def pieces(self, src: BinaryIO, max_bytes: int | None) -> Iterator[bytes]:
        """Decompress a file in pieces; ``max_bytes`` is a promise, kept by whoever adds them up."""
        raise NotImplementedError

    def decompress(self, data: bytes, max_bytes: int | None = None) -> bytes:
        """Decompress bytes into at most ``max_bytes`` of them."""
        out = io.BytesIO()
        self.decompress_stream(io.BytesIO(data), out, max_bytes)
        return out.getvalue()

    def decompress_stream(self, src: BinaryIO, dst: BinaryIO, max_bytes: int | None) -> int:
        """Decompress a file into another; return the number of bytes written."""
        total = 0
        for piece in self.pieces(src, max_bytes):
            total += len(piece)
            if max_bytes is not None and total > max_bytes:
                raise FormatError(
                    f"{self.extension} data becomes more than the {max_bytes} bytes expected"
                )
            dst.write(piece)
        return total

    def _damaged(self, err: Exception) -> FormatError:
        return FormatError(f"{self.extension} data is damaged: {type(err).__name__}: {err}")

    def _cut_off(self) -> FormatError:
        return FormatError(f"{self.extension} data is cut off before its end")

    def _surplus(self) -> FormatError:
        return FormatError(f"{self.extension} data is followed by something else")


class LevelledCompression(Compression):
    """An algorithm with levels, from fast to small.

    Args:
        level: One of ``levels``.

    Raises:
        FormatError: No such level.
    """

    levels: ClassVar[list[int]] = []

    def __init__(self, level: int) -> None:
        if level not in self.levels:
            raise FormatError(
                f"{self.extension} has the levels {self.levels[0]} to {self.levels[-1]}, "
                f"not {level}"
            )
        self.level = level

    @classmethod
    def each(cls) -> Iterator[tuple[str, Compression]]:
        """Yield the algorithm under its own name, then at each level."""
        make = cast("Callable[..., Compression]", cls)
        yield cls.extension, make()
        for level in cls.levels:
            yield f"{cls.extension}:{level}", make(level)


class Brotli(LevelledCompression):
    """Brotli: dense, and slow to write at its higher levels."""

    extension = "br"
    levels: ClassVar[list[int]] = list(range(12))

    def __init__(self, level: int = 11) -> None:
        super().__init__(level)

    def compress(self, data: bytes) -> bytes:
        """Compress bytes."""
        return cast(bytes, _extra("brotli", "brotli").compress(data, quality=self.level))

    def pieces(self, src: BinaryIO, max_bytes: int | None) -> Iterator[bytes]:
        """Decompress in pieces."""
        brotli = _extra("brotli", "brotli")
        decoder = brotli.Decompressor()
        # Brotli before 1.2 gives all the output that a morsel stands for at once.
        limit = {"output_buffer_limit": _PIECE} if hasattr(decoder, "can_accept_more_data") else {}
        try:
            while not decoder.is_finished():
                feed = src.read(_MORSEL)
                if not feed:
                    raise self._cut_off()
                while out := decoder.process(feed, **limit):
                    yield out
                    feed = b""
        except brotli.error as err:
            # What follows the end in the same morsel is an error of the decoder's own.
            raise self._damaged(err) from None
        if src.read(1):
            raise self._surplus()


class Bzip2(LevelledCompression):
    """Bzip2."""

    extension = "bz2"
    levels: ClassVar[list[int]] = list(range(1, 10))

    def __init__(self, level: int = 9) -> None:
        super().__init__(level)

    def compress(self, data: bytes) -> bytes:
        """Compress bytes."""
        return bz2.compress(data, self.level)

    def pieces(self, src: BinaryIO, max_bytes: int | None) -> Iterator[bytes]:
        """Decompress in pieces; several streams may follow one another."""
        feed = src.read(_PIECE)
        while True:
            decoder = bz2.BZ2Decompressor()
            while not decoder.eof:
                if decoder.needs_input and not feed:
                    raise self._cut_off()
                try:
                    yield decoder.decompress(feed, _PIECE)
                except (OSError, ValueError) as err:
                    raise self._damaged(err) from None
                feed = src.read(_PIECE) if decoder.needs_input else b""
            feed = decoder.unused_data or src.read(_PIECE)
            if not feed:
                return


class Gzip(LevelledCompression):
    """Gzip, without a time and a name in its header."""

    extension = "gz"
    levels: ClassVar[list[int]] = list(range(10))

    def __init__(self, level: int = 9) -> None:
        super().__init__(level)

    def compress(self, data: bytes) -> bytes:
        """Compress bytes."""
        coder = zlib.compressobj(self.level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        return coder.compress(data) + coder.flush()

    def pieces(self, src: BinaryIO, max_bytes: int | None) -> Iterator[bytes]:
        """Decompress in pieces; several members may follow one another, and padding of zeros."""
        feed = src.read(_PIECE)
        while True:
            decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
            while not decoder.eof:
                if not feed:
                    raise self._cut_off()
                try:
                    yield decoder.decompress(feed, _PIECE)
                except zlib.error as err:
                    raise self._damaged(err) from None
                feed = decoder.unconsumed_tail or (b"" if decoder.eof else src.read(_PIECE))
            feed = decoder.unused_data.lstrip(b"\0")
            while not feed:
                more = src.read(_PIECE)
                if not more:
                    return
                feed = more.lstrip(b"\0")


class Snappy(Compression):
    """Snappy's raw format: one block, fast."""

    extension = "snappy"

    def compress(self, data: bytes) -> bytes:
        """Compress bytes."""
        return bytes(_extra("snappy", "snappy").compress(data))

    def pieces(self, src: BinaryIO, max_bytes: int | None) -> Iterator[bytes]:
        """Decompress, in one piece: the format begins with its size."""
        data = src.read()
        size = self._declared(data)
        # An element of 3 bytes copies 64 at most, so that a size beyond that is a lie.
        if (max_bytes is not None and size > max_bytes) or size > 64 * len(data):
            raise FormatError(
                f"snappy data of {len(data)} bytes says that it becomes {size} bytes"
                + ("" if max_bytes is None else f", where {max_bytes} are expected")
            )
        snappy = _extra("snappy", "snappy")
        try:
            out = bytes(snappy.uncompress(data))
        except Exception as err:  # the class differs between the versions of the package
            raise self._damaged(err) from None
        if len(out) != size:
            raise self._cut_off()
        yield out

    def _declared(self, data: bytes) -> int:
        size = 0
        for at, byte in enumerate(data[:5]):
            size |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                return size
        raise self._cut_off()


class Zstandard(LevelledCompression):
    """Zstandard: fast to read at every level."""

    extension = "zstd"
    levels: ClassVar[list[int]] = list(range(1, 23))

    def __init__(self, level: int = 3) -> None:
        super().__init__(level)

    def compress(self, data: bytes) -> bytes:
        """Compress bytes."""
        return zstandard.ZstdCompressor(level=self.level).compress(data)

    def pieces(self, src: BinaryIO, max_bytes: int | None) -> Iterator[bytes]:
        """Decompress in pieces; several frames may follow one another."""
        feed = src.read(_MORSEL)
        while True:
            decoder = zstandard.ZstdDecompressor().decompressobj()
            while not decoder.eof:
                if not feed:
                    raise self._cut_off()
                try:
                    yield decoder.decompress(feed)
                except zstandard.ZstdError as err:
                    raise self._damaged(err) from None
                feed = b"" if decoder.eof else src.read(_MORSEL)
            feed = decoder.unused_data or src.read(_MORSEL)
            if not feed:
                return


_ALGORITHMS: dict[str, Compression] = {
    name: algorithm
    for family in (Brotli, Bzip2, Gzip, Snappy, Zstandard)
    for name, algorithm in family.each()
}


def get_compressions() -> set[str]:
    """Return the names of all compressions, such as ``zstd`` and ``zstd:7``."""
    return set(_ALGORITHMS)


def is_compression(algo: str | None) -> bool:
    """Tell whether ``algo`` names a compression.

    Example:
        >>> is_compression("br:11"), is_compression("br:12")
        (True, False)
    """
    return algo in _ALGORITHMS


def _algorithm(algo: str) -> Compression:
    found = _ALGORITHMS.get(algo)
    if found is None:
        raise FormatError(
            f"{algo!r} is not a compression that can be used here; choose among br, bz2, gz, "
            f"snappy and zstd, all but snappy with a level if you like, as in zstd:7."
        )
    return found


def get_compression_extension(algo: str) -> str:
    """Return what is appended to a compressed file's name, without the dot.

    Raises:
        FormatError: No such compression.

    Example:
        >>> get_compression_extension("zstd:7")
        'zstd'
    """
    return _algorithm(algo).extension


def compress(algo: str | None, data: bytes) -> bytes:
    """Compress bytes; with None as algorithm, return them as they are.

    Raises:
        FormatError: No such compression.
        MissingExtraError: Its package is not installed.
    """
    return data if algo is None else _algorithm(algo).compress(data)


def decompress(algo: str | None, data: bytes, *, max_bytes: int | None = None) -> bytes:
    """Decompress bytes; with None as algorithm, return them as they are.

    Args:
        algo: The compression; a level makes no difference.
        data: What :func:`compress` made.
        max_bytes: The most that the data may become, if known.

    Raises:
        FormatError: No such compression; or the data is damaged, or becomes too much.
        MissingExtraError: Its package is not installed.
    """
    return data if algo is None else _algorithm(algo).decompress(data, max_bytes)


def decompress_stream(algo: str, src: BinaryIO, dst: BinaryIO, max_bytes: int | None) -> int:
    """Decompress one open file into another, in bounded memory (snappy excepted).

    Args:
        algo: The compression.
        src: Compressed file, open for reading in binary.
        dst: File to write to; what was written before an error stays in it.
        max_bytes: The most that may be written.

    Returns:
        How many bytes were written.

    Raises:
        FormatError: As for :func:`decompress`.
        MissingExtraError: The compression's package is not installed.
    """
    return _algorithm(algo).decompress_stream(src, dst, max_bytes)
