r"""The encodings of MDS columns, by name, and how to add one.

Example:
    >>> mds_encode("int", 5)
    b'\x05\x00\x00\x00\x00\x00\x00\x00'
    >>> mds_decode("str", b"caf\xc3\xa9")
    'café'
    >>> get_mds_encoded_size("ndarray:float32:2,2")
    16
"""

from __future__ import annotations

from typing import Any

from streaming.format.encodings.arrays import NDArray
from streaming.format.encodings.base import Encoding
from streaming.format.encodings.images import (
    JPEG,
    PIL,
    PNG,
    JPEGArray,
    JPEGList,
    List,
    PILList,
    PNGList,
)
from streaming.format.encodings.scalars import (
    JSON,
    PICKLE_PROTOCOL,
    Bytes,
    Float16,
    Float32,
    Float64,
    Int,
    Int8,
    Int16,
    Int32,
    Int64,
    Pickle,
    Scalar,
    Str,
    StrDecimal,
    StrEncoding,
    StrFloat,
    StrInt,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
)
from streaming.format.errors import EncodeTypeError, FormatError

__all__ = [
    "JPEG",
    "JSON",
    "PIL",
    "PNG",
    "Bytes",
    "Encoding",
    "Float16",
    "Float32",
    "Float64",
    "Int",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "JPEGArray",
    "JPEGList",
    "List",
    "NDArray",
    "PILList",
    "PNGList",
    "Pickle",
    "Scalar",
    "Str",
    "StrDecimal",
    "StrEncoding",
    "StrFloat",
    "StrInt",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "get_mds_encoded_size",
    "get_mds_encoder",
    "get_mds_encodings",
    "is_mds_encoding",
    "is_mds_encoding_safe",
    "mds_decode",
    "mds_encode",
    "register_encoding",
]

_encodings: dict[str, Any] = {
    "bytes": Bytes,
    "str": Str,
    "int": Int,
    "ndarray": NDArray,
    "uint8": UInt8,
    "uint16": UInt16,
    "uint32": UInt32,
    "uint64": UInt64,
    "int8": Int8,
    "int16": Int16,
    "int32": Int32,
    "int64": Int64,
    "float16": Float16,
    "float32": Float32,
    "float64": Float64,
    "str_int": StrInt,
    "str_float": StrFloat,
    "str_decimal": StrDecimal,
    "pil": PIL,
    "jpeg": JPEG,
    "jpeg_array": JPEGArray,
    "jpegarray": JPEGArray,
    "png": PNG,
    "list[pil]": PILList,
    "list[jpeg]": JPEGList,
    "list[png]": PNGList,
    "pkl": Pickle,
    "json": JSON,
}

IMAGE_FILES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
"""How files begin that columns of JPEG and PNG images take as they are."""

# Name in full to (what was registered under its first part, the encoder made of it).
_made: dict[str, tuple[Any, Encoding]] = {}


def register_encoding(name: str, encoding: type[Encoding] | Encoding) -> None:
    """Make an encoding of your own known, for writing and for reading.

    Register it in every process that uses it, at import time of the module that defines it, so
    that workers started by ``spawn`` have it too. A name that exists is replaced.

    Args:
        name: The name to be given in ``columns=``. If the class has a class method ``from_str``,
            then ``name:anything`` is ``from_str("anything")``.
        encoding: A class that can be made without arguments, or an instance.

    Raises:
        FormatError: The name is empty or has a colon.
        TypeError: Not an encoding.

    Example:
        >>> class Celsius(Encoding):
        ...     size = 2
        ...     def encode(self, obj):
        ...         return round(obj * 100).to_bytes(2, "little", signed=True)
        ...     def decode(self, data):
        ...         return int.from_bytes(data, "little", signed=True) / 100
        >>> register_encoding("celsius", Celsius)
        >>> mds_decode("celsius", mds_encode("celsius", 36.6))
        36.6
    """
    if not name or ":" in name:
        raise FormatError(f"{name!r} cannot name an encoding: it is empty or has a colon")
    kind = encoding if isinstance(encoding, type) else type(encoding)
    for method in ("encode", "decode"):
        if not callable(getattr(kind, method, None)):
            raise TypeError(f"{name}: {kind.__name__} has no method {method}, see Encoding")
    _encodings[name] = encoding


def get_mds_encoder(encoding: str) -> Encoding:
    """Return the encoder of that name; the same one each time, until it is registered anew.

    Raises:
        FormatError: No such encoding, or one whose parameters are wrong.
    """
    name, colon, spec = encoding.partition(":")
    entry = _encodings.get(name)
    if entry is None:
        raise FormatError(
            f"Unsupported encoding: {encoding}. Known are {', '.join(sorted(_encodings))}, and "
            f"those that register_encoding adds."
        )
    known = _made.get(encoding)
    if known is not None and known[0] is entry:
        return known[1]
    if colon:
        if not hasattr(entry, "from_str"):
            raise FormatError(f"Unsupported encoding: {encoding}. {name} takes no parameters.")
        made: Encoding = entry.from_str(spec)
    else:
        made = entry() if isinstance(entry, type) else entry
    _made[encoding] = (entry, made)
    return made


def get_mds_encodings() -> set[str]:
    """Return the names of all encodings, those that were registered included."""
    return set(_encodings)


def is_mds_encoding(encoding: str) -> bool:
    """Tell whether a column can have this encoding.

    Example:
        >>> is_mds_encoding("ndarray:int32:8"), is_mds_encoding("ndarray:int33")
        (True, False)
    """
    try:
        get_mds_encoder(encoding)
    except FormatError:
        return False
    return True


def is_mds_encoding_safe(encoding: str) -> bool:
    """Tell whether reading this encoding runs no code of whoever wrote the shard.

    Example:
        >>> is_mds_encoding_safe("json"), is_mds_encoding_safe("pkl")
        (True, False)
    """
    entry = _encodings.get(encoding.partition(":")[0])
    return bool(getattr(entry, "safe", True))


def get_mds_encoded_size(encoding: str) -> int | None:
    """Return how many bytes each value takes, or None if they differ.

    Raises:
        FormatError: No such encoding.
    """
    return getattr(get_mds_encoder(encoding), "size", None)


def mds_encode(encoding: str, obj: Any) -> bytes:
    """Turn a value into the bytes of its column.

    Bytes given to a column of another type are taken as already encoded, after a check that they
    can be read (``pkl``: that they look like a pickle; other bytes are pickled).

    Raises:
        FormatError: No such encoding.
        EncodeError: The value is not one that the encoding can hold: EncodeTypeError or
            EncodeRangeError.
    """
    coder = get_mds_encoder(encoding)
    if isinstance(obj, bytes) and type(coder) is not Bytes:
        return _already_encoded(encoding, coder, obj)
    return coder.encode(obj)


def mds_decode(encoding: str, data: bytes) -> Any:
    """Turn the bytes of a column back into a value.

    Raises:
        FormatError: No such encoding, or bytes that can't be its.
    """
    return get_mds_encoder(encoding).decode(data)


def _already_encoded(encoding: str, coder: Encoding, data: bytes) -> bytes:
    if isinstance(coder, Pickle):
        pickled = len(data) > 2 and data[0] == 0x80 and data[1] >= 2 and data[-1:] == b"."
        return data if pickled and data[1] <= PICKLE_PROTOCOL + 1 else coder.encode(data)
    if type(coder).__module__.partition(".")[0] != "streaming":
        return coder.encode(data)  # only its author knows what bytes mean to it
    if isinstance(coder, (JPEG, PNG)) and data.startswith(IMAGE_FILES):
        return data  # not opened, because that takes longer than all else
    try:
        coder.decode(data)
    except FormatError as err:
        raise EncodeTypeError(
            f"{encoding} got {len(data)} bytes, which are not an encoded value: {err}"
        ) from None
    return data
