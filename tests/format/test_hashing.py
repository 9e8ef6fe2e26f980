"""Hashes."""

import hashlib

import pytest

from streaming.base.hashing import get_hash as old_path
from streaming.format.errors import FormatError
from streaming.format.hashing import get_hash, get_hashes, hasher, is_hash

RECORDED = {
    "md5": "9dd4e461268c8034f5c8564e155c67a6",
    "xxh32": "2ec430ea",
    "xxh64": "5c80c09683041123",
    "xxh128": "5c7401c0ec22eeeeeaf06c6480b2cd11",
    "xxh3_64": "eaf06c6480b2cd11",
    "xxh3_128": "5c7401c0ec22eeeeeaf06c6480b2cd11",
}
"""What mosaicml-streaming 0.13 gives for ``b"x"``."""


def test_names() -> None:
    fixed = {name for name in hashlib.algorithms_guaranteed if "shake" not in name}
    assert get_hashes() == fixed | {"xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128"}
    assert is_hash("sha256")
    assert not is_hash("shake_128")
    assert not is_hash("")


@pytest.mark.parametrize("algo", sorted(get_hashes()))
def test_in_one_piece_or_in_several(algo: str) -> None:
    running = hasher(algo)
    for piece in (b"ab", b"", memoryview(b"cd"), bytearray(b"e")):
        running.update(piece)
    assert running.hexdigest() == get_hash(algo, b"abcde")
    if algo in hashlib.algorithms_guaranteed:
        assert get_hash(algo, b"abcde") == hashlib.new(algo, b"abcde").hexdigest()


def test_recorded_digests() -> None:
    assert {algo: get_hash(algo, b"x") for algo in RECORDED} == RECORDED
    assert old_path is get_hash


def test_an_unknown_algorithm() -> None:
    for use in (lambda: hasher("crc8"), lambda: get_hash("crc8", b"")):
        with pytest.raises(FormatError, match=r"crc8.*sha256"):
            use()
