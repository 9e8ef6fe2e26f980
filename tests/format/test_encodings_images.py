"""Images in MDS columns: bytes as Pillow writes them, files that stay what they are, damage."""

import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops

from streaming.format.encodings.mds import mds_decode, mds_encode
from streaming.format.errors import EncodeRangeError, EncodeTypeError, FormatError


def noise(width: int = 6, height: int = 5, mode: str = "RGB", seed: int = 0) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).convert(mode)


def file_of(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def uints(*numbers: int) -> bytes:
    return np.array(numbers, "<u4").tobytes()


@pytest.mark.parametrize(
    "mode", ["RGB", "L", "1", "RGBA", "LA", "CMYK", "YCbCr", "HSV", "LAB", "I", "F", "I;16", "P"]
)
def test_pil_keeps_pixels(mode: str) -> None:
    width = len(Image.new(mode, (8, 1)).tobytes())  # of eight pixels, in bytes
    pixels = bytes(range(width * 4)) if width > 1 else b"\xf0\x0f\xaa\x55"
    image = Image.frombytes(mode, (8, 4), pixels)
    data = mds_encode("pil", image)
    assert data == uints(8, 4, len(mode)) + mode.encode() + image.tobytes()
    found = mds_decode("pil", data)
    assert (found.mode, found.size, found.tobytes()) == (mode, (8, 4), image.tobytes())


def test_png_is_lossless_and_as_pillow_writes_it() -> None:
    for mode in ("RGB", "L", "RGBA", "1", "LA"):
        image = noise(7, 5, mode)
        data = mds_encode("png", image)
        assert data == file_of(image, "PNG")
        found = mds_decode("png", data)
        assert (found.format, found.mode, found.tobytes()) == ("PNG", mode, image.tobytes())


def test_jpeg_is_as_pillow_writes_it() -> None:
    for mode in ("RGB", "L", "CMYK"):
        image = noise(20, 10, mode)
        data = mds_encode("jpeg", image)
        assert data == file_of(image, "JPEG")
        found = mds_decode("jpeg", data)
        assert (found.format, found.mode, found.size) == ("JPEG", mode, (20, 10))


def test_a_jpeg_that_was_read_is_stored_as_it_was() -> None:
    """A second compression would cost quality each time a data set is rewritten."""
    data = file_of(noise(16, 16), "JPEG", quality=30)
    assert mds_encode("jpeg", mds_decode("jpeg", data)) == data
    assert mds_encode("list[jpeg]", [mds_decode("jpeg", data)])[12:] == data
    assert mds_encode("jpeg_array", [mds_decode("jpeg", data)])[8:] == data


def test_a_jpeg_file_is_stored_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(file_of(noise(16, 16), "JPEG", quality=30))
    assert mds_encode("jpeg", Image.open(path)) == path.read_bytes()
    image = Image.open(path)
    image.load()
    assert mds_encode("jpeg", image) == path.read_bytes()


@pytest.mark.parametrize("change", ["thumbnail", "draft", "putpixel"])
def test_a_jpeg_that_was_changed_is_compressed_anew(change: str) -> None:
    image = mds_decode("jpeg", file_of(noise(32, 32), "JPEG"))
    if change == "thumbnail":
        image.thumbnail((8, 8))
    elif change == "draft":
        image.draft("L", (8, 8))
    else:
        image.putpixel((0, 0), (255, 0, 255))
    found = mds_decode("jpeg", mds_encode("jpeg", image))
    assert found.size == image.size
    assert found.mode == image.mode
    difference = ImageChops.difference(found.convert("RGB"), image.convert("RGB"))
    assert np.asarray(difference).mean() < 40


def test_a_file_that_was_shrunk_after_opening_is_not_stored_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    noise(32, 32).save(path)
    image = Image.open(path)
    image.thumbnail((8, 8))
    assert mds_decode("jpeg", mds_encode("jpeg", image)).size == (8, 8)


def test_a_file_that_has_gone_is_compressed_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    noise(8, 8).save(path)
    image = Image.open(path)
    image.load()
    path.unlink()
    assert mds_decode("jpeg", mds_encode("jpeg", image)).size == (8, 8)


def test_list_layouts() -> None:
    images = [noise(2, 3), noise(4, 3, "L")]
    for name in ("pil", "png", "jpeg"):
        parts = [mds_encode(name, image) for image in images]
        expected = uints(0, 2, *map(len, parts)) + b"".join(parts)
        assert mds_encode(f"list[{name}]", images) == expected
        found = mds_decode(f"list[{name}]", expected)
        assert [image.size for image in found] == [(2, 3), (4, 3)]
        assert mds_encode(f"list[{name}]", []) == bytes(8)
        assert mds_decode(f"list[{name}]", bytes(8)) == []


def test_jpeg_array_takes_files() -> None:
    files = [file_of(noise(2, 3), "JPEG"), file_of(noise(4, 3), "JPEG")]
    expected = uints(2, *map(len, files)) + b"".join(files)
    as_arrays = [np.frombuffer(file, np.uint8) for file in files]
    for given_files in (files, tuple(files), list(map(bytearray, files)), as_arrays):
        assert mds_encode("jpeg_array", given_files) == expected
    assert mds_encode("jpegarray", files) == expected
    assert [image.size for image in mds_decode("jpeg_array", expected)] == [(2, 3), (4, 3)]
    assert mds_decode("jpeg_array", mds_encode("jpeg_array", [])) == []


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("pil", None),
        ("pil", np.zeros((2, 2, 3), np.uint8)),
        ("jpeg", np.zeros((2, 2, 3), np.uint8)),
        ("png", "x.png"),
        ("png", b"x"),
        ("jpeg", b""),
        ("list[pil]", noise()),
        ("list[png]", None),
        ("list[jpeg]", [1]),
        ("jpeg_array", None),
        ("jpeg_array", "text"),
        ("jpeg_array", [1]),
        ("jpeg_array", np.zeros((2, 2, 3), np.uint8)),
    ],
)
def test_what_is_no_image(encoding: str, value: Any) -> None:
    with pytest.raises(EncodeTypeError):
        mds_encode(encoding, value)


def test_what_the_file_format_cannot_hold() -> None:
    for encoding, mode in (("jpeg", "P"), ("jpeg", "RGBA"), ("png", "CMYK"), ("png", "F")):
        with pytest.raises(EncodeRangeError, match="mode"):
            mds_encode(
                encoding, noise(3, 3, "L").convert(mode) if mode == "F" else noise(3, 3, mode)
            )
    with pytest.raises(EncodeRangeError):
        mds_encode("jpeg", Image.new("L", (0, 0)))
    with pytest.raises(EncodeRangeError, match="image 1 of the list"):
        mds_encode("list[jpeg]", [noise(), noise(3, 3, "RGBA")])


def test_files_given_as_bytes_pass() -> None:
    for encoding, kind in (("jpeg", "JPEG"), ("png", "PNG"), ("jpeg", "WEBP")):
        data = file_of(noise(), kind)
        assert mds_encode(encoding, data) == data
        assert mds_decode(encoding, data).size == (6, 5)


DAMAGED = [
    ("pil", b""),
    ("pil", uints(2, 3, 3) + b"RGB" + bytes(17)),
    ("pil", uints(2, 3, 3) + b"RGB" + bytes(19)),
    ("pil", uints(2, 3, 3) + b"XYZ" + bytes(18)),
    ("pil", uints(2, 3, 3) + b"\xff\xff\xff" + bytes(18)),
    ("pil", uints(2**32 - 1, 2**32 - 1, 1) + b"L"),
    ("pil", uints(2**32 - 1, 2**32 - 1, 1) + b"1" + bytes(100)),
    ("pil", uints(0, 2**32 - 1, 3) + b"RGB"),
    ("pil", uints(1, 1, 2**32 - 1) + b"L"),
    ("jpeg", b""),
    ("jpeg", b"\xff\xd8\xff\xe0"),
    ("png", b"\x89PNG\r\n\x1a\n"),
    ("list[png]", b""),
    ("list[png]", uints(0)),
    ("list[png]", uints(0, 2**32 - 1, 5)),
    ("list[png]", uints(0, 1, 5) + b"abcd"),
    ("list[pil]", uints(0, 0) + b"x"),
    ("jpeg_array", uints(1, 3) + b"abc"),
]


@pytest.mark.parametrize(("encoding", "data"), DAMAGED)
def test_damaged_images_are_an_error(encoding: str, data: bytes) -> None:
    with pytest.raises(FormatError):
        mds_decode(encoding, data)


@given(
    st.sampled_from(["pil", "png", "jpeg", "list[pil]", "list[png]", "jpeg_array"]),
    st.integers(0, 200),
    st.integers(0, 255),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_any_damage_is_an_error_or_another_image(
    encoding: str, at: int, byte: int, cut: bool
) -> None:
    image = noise()
    value: Any = image if encoding[0] in "p" or encoding == "jpeg" else [image, image]
    if encoding == "jpeg_array":
        value = [file_of(image, "JPEG")]
    data = bytearray(mds_encode(encoding, value))
    at %= len(data)
    if cut:
        del data[at:]
    else:
        data[at] = byte
    try:
        mds_decode(encoding, bytes(data))
    except FormatError:
        pass


def test_a_bomb_is_an_error() -> None:
    png = bytearray(file_of(noise(), "PNG"))
    png[16:24] = b"\x00\x10\x00\x00\x00\x10\x00\x00"  # a million pixels a side
    import zlib

    png[29:33] = zlib.crc32(png[12:29]).to_bytes(4, "big")
    with pytest.raises(FormatError, match="DecompressionBomb"):
        mds_decode("png", bytes(png))


def test_decoded_images_pickle() -> None:
    image = mds_decode("jpeg", file_of(noise(), "JPEG"))
    again = pickle.loads(pickle.dumps(image))
    assert again.tobytes() == image.tobytes()


def test_pillow_is_imported_only_for_images() -> None:
    script = (
        "import sys\n"
        "from streaming.format.encodings.mds import mds_decode, get_mds_encodings\n"
        "import streaming.format.index\n"
        "mds_decode('str', b'x')\n"
        "assert 'PIL' not in sys.modules\n"
        "sys.modules['PIL'] = None\n"
        "try:\n"
        "    mds_decode('png', b'x')\n"
        "except ImportError as err:\n"
        "    print(err)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install 'shardstream[images]'" in done.stdout
