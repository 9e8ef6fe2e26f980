"""MDS encodings of images. They need Pillow, which is imported when first used."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from streaming.format.encodings.base import Encoding, check_type, show
from streaming.format.errors import (
    EncodeError,
    EncodeRangeError,
    EncodeTypeError,
    FormatError,
    MissingExtraError,
)

if TYPE_CHECKING:
    from PIL.Image import Image

_U32 = np.dtype("<u4")


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as err:
        raise MissingExtraError("Images need Pillow: pip install 'shardstream[images]'") from err
    return Image


class _StoredImage(BytesIO):
    """The bytes that an image was read from; marks those images that come out of our shards."""


def _open(data: bytes, kind: str) -> Image:
    """Open an image; its pixels are decoded when they are first used."""
    try:
        return _pillow().open(_StoredImage(data))  # type: ignore[no-any-return]
    except MissingExtraError:
        raise
    except Exception as err:  # Pillow's parsers raise anything from OSError to struct.error
        raise FormatError(
            f"not a {kind} image: {len(data)} bytes: {type(err).__name__}: {err}"
        ) from err


def _save(image: Image, kind: str) -> bytes:
    out = BytesIO()
    try:
        image.save(out, format=kind)
    except (OSError, ValueError, KeyError) as err:
        raise EncodeRangeError(
            f"an image of mode {image.mode} and size {image.size} cannot be a {kind}: {err}"
        ) from err
    return out.getvalue()


def _check_image(obj: Any) -> None:
    check_type(obj, _pillow().Image, "; bytes of an image file go in a column of type bytes")


class PIL(Encoding):
    """An image's raw pixels, without palette or metadata.

    On disk: width, height and the length of the mode's name, each a uint32; the name; the pixels.
    """

    def encode(self, obj: Image) -> bytes:
        """Return the pixels."""
        _check_image(obj)
        mode = obj.mode.encode()
        head = np.array((*obj.size, len(mode)), _U32).tobytes()
        return head + mode + (obj.tobytes() if all(obj.size) else b"")

    def decode(self, data: bytes) -> Image:
        """Return the image."""
        if len(data) < 12:
            raise FormatError(f"a pil image is cut off after {len(data)} bytes")
        width, height, length = (int(n) for n in np.frombuffer(data, _U32, 3))
        try:
            mode = str(data[12 : 12 + length], "ascii")
            needed = _pixel_bytes(mode, width, height)
        except (ValueError, KeyError):
            raise FormatError(f"a pil image cannot have the mode {data[12:28]!r}") from None
        pixels = data[12 + length :]
        # Compared before an image of this size is allocated.
        if len(pixels) != needed:
            raise FormatError(
                f"a pil image of mode {mode} with {width} by {height} pixels takes {needed} bytes "
                f"for them, got {len(pixels)}"
            )
        try:
            image = _pillow().new(mode, (width, height))
            if needed:
                image.frombytes(bytes(pixels))
        except (ValueError, OverflowError, OSError, MemoryError) as err:
            raise FormatError(f"not a pil image: {err}") from err
        return image  # type: ignore[no-any-return]


def _pixel_bytes(mode: str, width: int, height: int) -> int:
    """Return the bytes of an image's raw pixels; rows of single bits are padded to bytes."""
    _pillow()
    from PIL import ImageMode

    if mode == "1":
        return (width + 7) // 8 * height
    form = ImageMode.getmode(mode)
    return width * height * len(form.bands) * np.dtype(form.typestr).itemsize


def _untouched_file(image: Image) -> bytes | None:
    """Return the bytes of the JPEG file that an image was opened from, if they still are it.

    Compressing it again would lose quality. An image that was opened by name is compared in size
    and mode with its file, because methods such as ``thumbnail`` change an image in place.
    """
    from PIL.JpegImagePlugin import JpegImageFile

    if not isinstance(image, JpegImageFile):
        return None
    source: Any = getattr(image, "fp", None)  # None once the pixels were decoded
    if isinstance(source, _StoredImage):
        data = source.getvalue()
        return data if _same_frame(image, BytesIO(data)) else None
    name = getattr(image, "filename", "")
    if not name or not os.path.isfile(name) or not _same_frame(image, name):
        return None
    with open(name, "rb") as file:
        return file.read()


def _same_frame(image: Image, source: Any) -> bool:
    try:
        with _pillow().open(source) as original:
            return (original.size, original.mode) == (image.size, image.mode)
    except OSError:
        return False


class JPEG(Encoding):
    """An image as a JPEG file, compressed with Pillow's default quality.

    An image that was opened from a JPEG file and not changed is stored as that file.
    """

    def encode(self, obj: Image) -> bytes:
        """Return the file."""
        _check_image(obj)
        return _untouched_file(obj) or _save(obj, "JPEG")

    def decode(self, data: bytes) -> Image:
        """Return the image, its pixels not yet decoded."""
        return _open(data, "JPEG")


class PNG(Encoding):
    """An image as a PNG file."""

    def encode(self, obj: Image) -> bytes:
        """Return the file."""
        _check_image(obj)
        return _save(obj, "PNG")

    def decode(self, data: bytes) -> Image:
        """Return the image, its pixels not yet decoded."""
        return _open(data, "PNG")


def _pack_parts(parts: list[bytes]) -> bytes:
    """Return the parts behind their number and their sizes, each a uint32."""
    head = np.array([len(parts), *map(len, parts)], np.uint64)
    if head.max(initial=0) >= 1 << 32:
        raise EncodeRangeError("a list of images holds one of 4 GiB or more")
    return b"".join((head.astype(_U32).tobytes(), *parts))


def _unpack_parts(data: bytes, start: int, decode: Callable[[bytes], Image]) -> list[Image]:
    """Return the decoded parts of what :func:`_pack_parts` made, stored from ``start`` on."""
    if len(data) < start + 4:
        raise FormatError(f"a list of images is cut off after {len(data)} bytes")
    count = int(np.frombuffer(data, _U32, 1, start)[0])
    begin = start + 4 + 4 * count
    if len(data) < begin:
        raise FormatError(f"a list of {count} images cannot have {len(data)} bytes")
    sizes = np.frombuffer(data, _U32, count, start + 4).astype(np.int64)
    ends = begin + np.cumsum(sizes)
    total = int(ends[-1]) if count else begin
    if total != len(data):
        raise FormatError(f"a list of {count} images takes {total} bytes, got {len(data)}")
    return [
        decode(data[end - size : end])
        for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)
    ]


class JPEGArray(Encoding):
    """A list of JPEG files, given as bytes (or as images), read as images."""

    def encode(self, obj: Any) -> bytes:
        """Return the files behind their number and sizes."""
        if isinstance(obj, (str, bytes, bytearray, dict)) or not hasattr(obj, "__iter__"):
            raise EncodeTypeError(
                f"jpeg_array needs a list of JPEG files, got {type(obj).__name__} {show(obj)}"
            )
        return _pack_parts([self._part(part) for part in obj])

    def decode(self, data: bytes) -> list[Image]:
        """Return the images, their pixels not yet decoded."""
        return _unpack_parts(data, 0, JPEG().decode)

    @staticmethod
    def _part(part: Any) -> bytes:
        if isinstance(part, bytes):
            return part
        if isinstance(part, (bytearray, memoryview)):
            return bytes(part)
        if isinstance(part, np.ndarray) and part.dtype == np.uint8 and part.ndim == 1:
            return part.tobytes()
        if isinstance(part, (str, int, float, np.ndarray, np.generic)) or part is None:
            raise EncodeTypeError(
                f"jpeg_array needs each image's JPEG file as bytes, got {type(part).__name__}"
            )
        return JPEG().encode(part)


class List(Encoding):
    """A list of images, each under one encoding; the subclasses name it.

    On disk: a reserved uint32 0, the number of images, their sizes, the images.
    """

    underlying_encoder: ClassVar[type[Encoding]]

    def encode(self, obj: list[Image]) -> bytes:
        """Return the images behind their number and sizes."""
        check_type(obj, (list, tuple))
        coder = self.underlying_encoder()
        parts = []
        for at, image in enumerate(obj):
            try:
                parts.append(coder.encode(image))
            except EncodeError as err:
                raise type(err)(f"image {at} of the list: {err}") from err
        return bytes(4) + _pack_parts(parts)

    def decode(self, data: bytes) -> list[Image]:
        """Return the images."""
        return _unpack_parts(data, 4, self.underlying_encoder().decode)


class PILList(List):
    """A list of images as raw pixels."""

    underlying_encoder = PIL


class JPEGList(List):
    """A list of images as JPEG files."""

    underlying_encoder = JPEG


class PNGList(List):
    """A list of images as PNG files."""

    underlying_encoder = PNG
