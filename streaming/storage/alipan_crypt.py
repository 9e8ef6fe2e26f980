"""The encryption that AliPCS-Py's users have on their files, read and written as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from streaming.storage.base import CHUNK_BYTES, Body

__all__ = ["HEAD_BYTES", "cut", "decrypt", "encrypt", "take"]

HEAD_BYTES = 72
"""Size of what encrypted files begin with."""


class _Source:
    """A body as the file that AliPCS's decryption reads: in order, but for its first bytes."""

    def __init__(self, body: Body, size: int) -> None:
        self._chunks = iter(body)
        self._ahead = b""
        self._size = size
        self._at = 0
        self._begin = b""

    def __len__(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go back to the start, from within the first bytes: what is not encrypted is read so."""
        if offset or whence or self._at != len(self._begin):
            raise OSError("only the first bytes can be read again")
        self._ahead, self._at, self._begin = self._begin + self._ahead, 0, b""
        return 0

    def read(self, size: int) -> bytes:
        while len(self._ahead) < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._ahead += chunk
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        self._at += len(data)
        if self._at <= HEAD_BYTES:
            self._begin += data
        return data


def decrypt(body: Body, size: int, password: bytes) -> tuple[Callable[[int], bytes], int]:
    """Read a file that may be encrypted.

    Args:
        body: All its bytes, as they are kept.
        size: How many there are.
        password: What it was encrypted with, if it was.

    Returns:
        What reads so many plain bytes at most, and how many there are in all.
    """
    from alipcs_py.common.io import to_decryptio

    source: Any = _Source(body, size)
    plain = to_decryptio(source, password) if size >= HEAD_BYTES else source
    return plain.read, getattr(plain, "_total_origin_len", size)


def encrypt(plain: BinaryIO, size: int, kind: str, password: bytes) -> tuple[Any, int]:
    """A file to upload, encrypted as it is read.

    Args:
        plain: The file.
        size: Its size in bytes.
        kind: The type of encryption; "No" for none.
        password: What to encrypt it with.

    Returns:
        What to read, and its size in bytes.
    """
    if kind == "No":
        return plain, size
    from alipcs_py.common.io import EncryptType

    source = EncryptType(kind).encrypt_io(plain, password)
    return source, len(source)


def take(source: Any, size: int) -> bytes:
    """Read that many bytes, or all that are left."""
    data = bytearray()
    while len(data) < size:
        piece = source.read(size - len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


def cut(read: Callable[[int], bytes], start: int, stop: int) -> Iterator[bytes]:
    """The bytes [start, stop) of what can only be read from its beginning."""
    at = 0
    while at < stop:
        data = read(min(CHUNK_BYTES, stop - at))
        if not data:
            return
        if at + len(data) > start:
            yield data[max(0, start - at) :]
        at += len(data)
