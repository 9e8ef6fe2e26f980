"""Writers, and the encodings that they use."""

import decimal
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .codec import encode, files, outcome
from .scenario import SCENARIOS, public, scenario

SAMPLES = [{"n": i, "s": "x" * 30 * i, "f": i / 4} for i in range(7)]
LIMIT = 600
COLUMNS = {"n": "int", "s": "str", "f": "float"}
MDS_COLUMNS = {"n": "int", "s": "str", "f": "float64"}


def _future(error: Exception | None = None) -> "Future[int]":
    future: Future[int] = Future()
    if error is None:
        future.set_result(1)
    else:
        future.set_exception(error)
    return future


def _write(cls: Any, out: Path, samples: list[dict[str, Any]], **kwargs: Any) -> None:
    with cls(out=str(out), **kwargs) as writer:
        for sample in samples:
            writer.write(sample)


def _samples(columns: dict[str, str]) -> list[dict[str, Any]]:
    if columns["f"] == "float64":
        return [{**sample, "f": np.float64(sample["f"])} for sample in SAMPLES]
    return SAMPLES


def _by_hand(cls: Any, out: Path, samples: list[dict[str, Any]], **kwargs: Any) -> Any:
    """Every method, on a writer that isn't used as a context manager."""
    writer = cls(out=str(out), **kwargs)
    encode_shard = getattr(writer, "encode_joint_shard", None) or writer.encode_split_shard
    writer.write(samples[0])
    results = [
        writer.encode_sample(samples[1]),
        writer.get_config(),
        encode_shard(),
        writer.flush_shard(),
        outcome(writer.exception_callback, _future()),
    ]
    writer.write(samples[2])
    results += [writer.finish(), files(out)]
    other = cls(out=str(out.parent / "other"), **kwargs)
    return [*results, outcome(other.cancel_future_jobs)]


def _writer(columns: dict[str, str], extra: dict[str, Any], cls: Any, folder: Path) -> Any:
    samples = _samples(columns)
    kwargs = {"columns": columns, **extra}
    _write(cls, folder / "plain", samples, **kwargs)
    _write(cls, folder / "small", samples, size_limit=LIMIT, hashes=["sha1", "xxh64"], **kwargs)
    _write(cls, folder / "empty", [], **kwargs)
    text = [
        outcome(cls, out=str(folder / "wrong"), **{**kwargs, "columns": {"n": "nope"}}),
        outcome(cls, out=str(folder / "wrong2"), compression="nope", **kwargs),
        outcome(cls, out=str(folder / "wrong3"), hashes=["nope"], **kwargs),
        outcome(cls, out=str(folder / "wrong4"), size_limit=-1, **kwargs),
        outcome(cls, out=str(folder / "plain"), **kwargs),
        outcome(partial(_write, cls), folder / "missing", [{"n": 1}], **kwargs),
        outcome(partial(_write, cls), folder / "typed", [{**samples[0], "n": "one"}], **kwargs),
    ]
    return [
        files(folder / "plain"),
        files(folder / "small"),
        files(folder / "empty"),
        _by_hand(cls, folder / "hand", samples, **kwargs),
        text,
    ]


SCENARIOS["MDSWriter"] = partial(_writer, MDS_COLUMNS, {})
SCENARIOS["JSONWriter"] = partial(_writer, COLUMNS, {})
SCENARIOS["CSVWriter"] = partial(_writer, COLUMNS, {})
SCENARIOS["TSVWriter"] = partial(_writer, COLUMNS, {"newline": "\r\n"})
SCENARIOS["XSVWriter"] = partial(_writer, COLUMNS, {"separator": "||"})


@scenario("JointWriter")
def joint_writer(cls: Any, folder: Path) -> Any:
    class Lines(cls):  # type: ignore[misc]
        format = "lines"

        def encode_sample(self, sample: dict[str, Any]) -> bytes:
            return str(sample["n"]).encode() + b"\n"

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "format": "lines"}

        def encode_joint_shard(self) -> bytes:
            return b"".join(self.new_samples)

    return [outcome(cls, out=str(folder / "no")), *_lines(Lines, "encode_joint_shard", folder)]


@scenario("SplitWriter")
def split_writer(cls: Any, folder: Path) -> Any:
    class Lines(cls):  # type: ignore[misc]
        format = "lines"

        def encode_sample(self, sample: dict[str, Any]) -> bytes:
            return str(sample["n"]).encode() + b"\n"

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "format": "lines"}

        def encode_split_shard(self) -> tuple[bytes, bytes]:
            return b"".join(self.new_samples), b"meta"

    return [outcome(cls, out=str(folder / "no")), *_lines(Lines, "encode_split_shard", folder)]


def _lines(cls: Any, encode_shard: str, folder: Path) -> list[Any]:
    extra = {"extra_bytes_per_shard": 3, "extra_bytes_per_sample": 2}
    _write(
        cls, folder / "lines", SAMPLES, size_limit=16, **(extra if "joint" in encode_shard else {})
    )
    writer = cls(out=str(folder / "hand"))
    writer.write(SAMPLES[3])
    return [
        files(folder / "lines"),
        getattr(writer, encode_shard)(),
        writer.encode_sample(SAMPLES[3]),
        writer.get_config(),
        writer.flush_shard(),
        outcome(writer.exception_callback, _future()),
        writer.finish(),
        files(folder / "hand"),
        outcome(cls(out=str(folder / "other")).cancel_future_jobs),
    ]


def _image(mode: str) -> Any:
    from PIL import Image

    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * 5
    return Image.fromarray(pixels).convert(mode)


ENCODINGS: dict[str, list[Any]] = {
    "Bytes": [b"", b"x\0y"],
    "Str": ["", "aü"],
    "Int": [0, -(2**63), 2**63 - 1],
    "UInt8": [np.uint8(0), np.uint8(255)],
    "UInt16": [np.uint16(0), np.uint16(65535)],
    "UInt32": [np.uint32(7), np.uint32(2**32 - 1)],
    "UInt64": [np.uint64(7), np.uint64(2**64 - 1)],
    "Int8": [np.int8(-128), np.int8(127)],
    "Int16": [np.int16(-5)],
    "Int32": [np.int32(-5)],
    "Int64": [np.int64(-(2**63))],
    "Float16": [np.float16(0.5)],
    "Float32": [np.float32(0.1), np.float32("inf")],
    "Float64": [np.float64(0.1)],
    "StrInt": [0, -(10**30)],
    "StrFloat": [0.1, 1e300],
    "StrDecimal": [decimal.Decimal("1.50"), decimal.Decimal("-0.0001")],
    "JSON": [{"a": [1, None, 2.5]}, [], "ü", None],
    "Pickle": [{"a": (1, 2)}],
}


def _encoding(values: list[Any], cls: Any, folder: Path) -> Any:
    coder = cls()
    return [
        *([coder.encode(v), str(coder.decode(coder.encode(v)))] for v in values),
        [type(coder.decode(coder.encode(v))).__name__ for v in values],
        coder.size,
        outcome(coder.encode, object()) if cls.__name__ != "Pickle" else None,
    ]


for _name, _values in ENCODINGS.items():
    SCENARIOS[f"streaming.base.format.mds.encodings.{_name}"] = partial(_encoding, _values)


@scenario("streaming.base.format.mds.encodings.NDArray")
def ndarray(cls: Any, folder: Path) -> Any:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    kinds = [cls(), cls("int16"), cls("int16", (2, 3)), cls.from_str("int16:2,3")]
    return [[k.encode(array), k.decode(k.encode(array)), k.size] for k in kinds]


@scenario(
    "streaming.base.format.mds.encodings.PIL",
    "streaming.base.format.mds.encodings.PNG",
)
def lossless_image(cls: Any, folder: Path) -> Any:
    coder = cls()
    images = [_image(mode) for mode in ("RGB", "L", "RGBA")]
    return [*(encode(coder.decode(coder.encode(i))) for i in images), coder.size]


@scenario(
    "streaming.base.format.mds.encodings.JPEG",
    "streaming.base.format.mds.encodings.JPEGArray",
)
def lossy_image(cls: Any, folder: Path) -> Any:
    # The pixels depend on the decoder's version.
    coder = cls()
    given = _image("RGB")
    if cls.__name__ == "JPEGArray":  # several files' bytes
        file = public("base.format.mds.encodings.JPEG")().encode(given)
        images = coder.decode(coder.encode([file, file]))
    else:
        images = [coder.decode(coder.encode(given))]
    return [[(image.mode, image.size) for image in images], coder.size]


@scenario(
    "streaming.base.format.mds.encodings.PILList",
    "streaming.base.format.mds.encodings.JPEGList",
    "streaming.base.format.mds.encodings.PNGList",
)
def image_list(cls: Any, folder: Path) -> Any:
    coder = cls()
    back = [coder.decode(coder.encode(images)) for images in ([_image("RGB")] * 2, [])]
    return [[(i.mode, i.size) for i in images] for images in back] + [coder.size]


@scenario("streaming.base.format.mds.encodings.Encoding")
def abstract_encoding(cls: Any, folder: Path) -> Any:
    class Upper(cls):  # type: ignore[misc]
        def encode(self, obj: str) -> bytes:
            return obj.upper().encode()

        def decode(self, data: bytes) -> str:
            return data.decode()

    return [outcome(cls), Upper().size, Upper().decode(Upper().encode("a"))]


def _text_encoding(good: list[Any], bad: Any, cls: Any, folder: Path) -> Any:
    coder = cls()
    return [
        [outcome(coder.encode, value) for value in [*good, bad]],
        [outcome(coder.decode, str(value)) for value in good],
    ]


def _json_encoding(values: list[Any], cls: Any, folder: Path) -> Any:
    return [outcome(cls().is_encoded, value) for value in values]


for _kind, _text, _values in (
    ("Str", ["a", ""], ["a", 1, 1.5]),
    ("Int", [1, -5], ["a", 1, 1.5, True]),
    ("Float", [0.5], ["a", 1, 1.5]),
):
    _module = f"streaming.base.format.{{}}.encodings.{_kind}"
    SCENARIOS[_module.format("xsv")] = partial(_text_encoding, _text, None)
    SCENARIOS[_module.format("json")] = partial(_json_encoding, _values)


@scenario(
    *(f"streaming.base.compression.{n}" for n in ("Brotli", "Bzip2", "Gzip", "Snappy", "Zstandard"))
)
def compression(cls: Any, folder: Path) -> Any:
    levels = list(getattr(cls, "levels", ()))
    coder = cls(levels[-1]) if levels else cls()
    data = b"abc" * 50
    return [
        coder.extension,
        levels,
        getattr(coder, "level", None),
        getattr(cls(), "level", None),
        coder.decompress(coder.compress(data)) == data,
        outcome(cls, 9999),
    ]


def written(folder: Path, kind: str = "MDSWriter", **kwargs: Any) -> Path:
    """A small data set to read: 7 samples in shards of at most LIMIT bytes."""
    columns = MDS_COLUMNS if kind == "MDSWriter" else COLUMNS
    out = folder / "written"
    kwargs = {"size_limit": LIMIT, "columns": columns, **kwargs}
    _write(public(kind), out, _samples(columns), **kwargs)
    return out
