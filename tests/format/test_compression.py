"""Compression: there and back, the same each time, bounded when it comes from a stranger."""

import gzip
import io
import os
import resource
import subprocess
import sys
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.format import compression
from streaming.format.compression import (
    Brotli,
    Bzip2,
    Gzip,
    Snappy,
    Zstandard,
    compress,
    decompress,
    decompress_stream,
    get_compression_extension,
    get_compressions,
    is_compression,
)
from streaming.format.errors import FormatError

FAMILIES = ("br", "bz2", "gz", "snappy", "zstd")
LEVELS = {"br": range(12), "bz2": range(1, 10), "gz": range(10), "zstd": range(1, 23)}
DATA = b"the same words, and the same words again, " * 200 + bytes(range(256)) * 4


def test_names() -> None:
    levelled = {f"{name}:{level}" for name, levels in LEVELS.items() for level in levels}
    assert get_compressions() == levelled | set(FAMILIES)
    for unknown in ("", "br:12", "bz2:0", "gz:1.5", "snappy:1", "zstd:0", "zstd:", "lz4", None):
        assert not is_compression(unknown)
    for unknown in ("", "br:12", "zstd:23"):
        for use in (lambda a: compress(a, b""), lambda a: decompress(a, b"")):
            with pytest.raises(FormatError, match="compression"):
                use(unknown)
        with pytest.raises(FormatError, match="compression"):
            get_compression_extension(unknown)


def test_classes() -> None:
    kinds = {"br": Brotli, "bz2": Bzip2, "gz": Gzip, "zstd": Zstandard}
    for name, kind in kinds.items():
        assert kind.extension == name
        assert kind.levels == list(LEVELS[name])
        assert kind(5).level == 5
        assert kind(3).decompress(kind(7).compress(DATA)) == DATA
        with pytest.raises(FormatError, match="levels"):
            kind(99)
    assert [Brotli().level, Bzip2().level, Gzip().level, Zstandard().level] == [11, 9, 9, 3]
    assert Snappy.extension == "snappy"


@pytest.mark.parametrize("algo", sorted(get_compressions()))
def test_there_and_back(algo: str) -> None:
    for data in (b"", b"x", DATA):
        packed = compress(algo, data)
        assert packed == compress(algo, data)
        assert decompress(algo, packed) == data
        assert decompress(algo, packed, max_bytes=len(data)) == data
    assert len(compress(algo, DATA)) < len(DATA) or algo == "gz:0"
    assert get_compression_extension(algo) == algo.partition(":")[0]


@given(st.sampled_from(FAMILIES), st.binary(max_size=2000), st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_any_bytes_there_and_back(algo: str, data: bytes, times: int) -> None:
    assert decompress(algo, compress(algo, data * times)) == data * times


def test_none_is_no_compression() -> None:
    assert compress(None, b"x") == b"x"
    assert decompress(None, b"x") == b"x"


def test_gzip_says_nothing_of_time_and_name() -> None:
    packed = compress("gz", DATA)
    assert packed[:4] == b"\x1f\x8b\x08\x00"
    assert packed[4:8] == bytes(4)
    assert gzip.decompress(packed) == DATA


@pytest.mark.parametrize("algo", FAMILIES)
def test_too_much_is_refused(algo: str) -> None:
    packed = compress(algo, DATA)
    for limit in (len(DATA) - 1, 0):
        with pytest.raises(FormatError, match="becomes"):
            decompress(algo, packed, max_bytes=limit)


@pytest.mark.parametrize("algo", FAMILIES)
def test_a_stream_into_a_file(algo: str) -> None:
    data = os.urandom(100_000) * 30
    out = io.BytesIO()
    assert decompress_stream(algo, io.BytesIO(compress(algo, data)), out, len(data)) == len(data)
    assert out.getvalue() == data


@pytest.mark.parametrize("algo", FAMILIES)
def test_cut_off_or_followed_by_something(algo: str) -> None:
    packed = compress(algo, DATA)
    for cut in (0, 1, 2, len(packed) // 2, len(packed) - 1):
        with pytest.raises(FormatError):
            decompress(algo, packed[:cut], max_bytes=len(DATA))
    for tail in (b"x", os.urandom(100_000)):
        with pytest.raises(FormatError):
            decompress(algo, packed + tail, max_bytes=len(DATA))


@pytest.mark.parametrize("algo", ["bz2", "gz", "zstd"])
def test_parts_one_after_another(algo: str) -> None:
    """What parallel compressors of these formats write."""
    packed = compress(algo, b"abc") + compress(algo, b"") + compress(algo, DATA)
    assert decompress(algo, packed) == b"abc" + DATA


def test_zeros_after_gzip_are_padding() -> None:
    assert decompress("gz", compress("gz", DATA) + bytes(700)) == DATA


def test_zstd_without_its_size_in_front() -> None:
    coder = zstandard.ZstdCompressor(write_content_size=False)
    assert decompress("zstd", coder.compress(DATA)) == DATA
    with pytest.raises(FormatError, match="cut off"):
        decompress("zstd", coder.compress(DATA)[:-1])


@given(st.sampled_from(FAMILIES), st.binary(max_size=300))
@settings(max_examples=400, deadline=None)
def test_any_bytes_are_data_or_an_error(algo: str, data: bytes) -> None:
    try:
        decompress(algo, data, max_bytes=1 << 20)
    except FormatError:
        pass


@given(st.sampled_from(FAMILIES), st.integers(0, 10_000), st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_damage_is_an_error_or_other_data(algo: str, at: int, flip: int) -> None:
    packed = bytearray(compress(algo, DATA))
    packed[at % len(packed)] ^= flip
    try:
        found = decompress(algo, bytes(packed), max_bytes=len(DATA))
    except FormatError:
        return
    assert len(found) <= len(DATA)


def _bombs() -> dict[str, Callable[[], bytes]]:
    zeros = bytes(64 << 20)
    return {algo: lambda a=algo: compress(a, zeros) for algo in ("br:5", "bz2:1", "gz", "zstd")}  # type: ignore[misc]


@pytest.mark.parametrize("algo", ["br:5", "bz2:1", "gz", "zstd"])
def test_a_bomb_does_not_go_off(algo: str) -> None:
    packed = _bombs()[algo]()
    written = io.BytesIO()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FormatError, match="becomes more than"):
        decompress_stream(algo, io.BytesIO(packed), written, 1000)
    assert written.tell() <= 1000
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 200 << 10


def test_snappy_that_lies_about_its_size_allocates_nothing() -> None:
    for lie in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff"):
        with pytest.raises(FormatError):
            decompress("snappy", lie + b"\x00x")


@pytest.mark.parametrize("module", ["brotli", "snappy"])
def test_a_missing_package_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algo = {"brotli": "br", "snappy": "snappy"}[module]
    packed = compress(algo, DATA)
    monkeypatch.setitem(sys.modules, module, None)
    for use in (lambda: compress(algo, DATA), lambda: decompress(algo, packed)):
        with pytest.raises(ImportError, match=r"pip install 'shardstream\[compression\]'"):
            use()


def test_optional_packages_are_imported_late() -> None:
    script = (
        "import sys; import streaming.format.compression;"
        "print([m for m in ('brotli', 'snappy', 'cramjam') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_brotli_without_a_limit_of_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brotli before 1.2 cannot be asked for little; it is fed little."""
    import brotli

    class Old:
        def __init__(self) -> None:
            self._new = brotli.Decompressor()
            self.is_finished = self._new.is_finished

        def process(self, data: bytes) -> bytes:
            return bytes(self._new.process(data))

    fake = type("fake", (), {"Decompressor": Old, "error": brotli.error})
    monkeypatch.setattr(compression, "_extra", lambda module, package: fake)
    data = os.urandom(50_000) * 4
    assert decompress("br", brotli.compress(data, quality=1)) == data
