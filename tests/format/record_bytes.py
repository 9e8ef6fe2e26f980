"""Records the bytes that mosaicml-streaming 0.13 encodes values to, as ``recorded_bytes.json``.

Run it with a Python that has that package, and not this one: ``python record_bytes.py``.
"""

import json
from decimal import Decimal
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

RECORDED = Path(__file__).parent / "recorded_bytes.json"


def value_of(description: Any) -> Any:
    """The value that a description stands for: JSON has too few types."""
    kind, what = description
    if kind == "array":
        dtype, shape = what
        return (np.arange(prod(shape)) % 100).astype(dtype).reshape(shape)
    if kind == "numpy":
        return np.dtype(what[0]).type(what[1])
    if kind == "image":
        from PIL import Image

        mode, size = what
        pixels = np.arange(prod(size) * 3, dtype=np.uint8).reshape(*reversed(size), 3)
        return Image.fromarray(pixels).convert(mode)
    if kind == "images":
        return [value_of(["image", image]) for image in what]
    make = {"json": lambda v: v, "float": float, "decimal": Decimal, "bytes": bytes.fromhex}
    return make[kind](what)


def descriptions() -> Any:
    for text in ("", "é☃", "a\nb"):
        yield "str", ["json", text]
        yield "json", ["json", text]
    for data in ("", "00ff"):
        yield "bytes", ["bytes", data]
    for number in (0, -1, 2**63 - 1, -(2**63), True):
        yield "int", ["json", number]
    for bits in (8, 16, 32, 64):
        for number in (2**bits - 1, 0, True, 2.0):
            yield f"uint{bits}", ["json", number]
        for number in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1):
            yield f"int{bits}", ["json", number]
        yield f"int{bits}", ["numpy", ["int8", 3]]
    for name in ("float16", "float32", "float64"):
        for number in (0, 3, True, 65504, 2**15 + 1):
            yield name, ["json", number]
        for text in ("-0.0", "0.1", "inf", "-inf", "nan", "65519.9", "1e-8", "5e-324"):
            yield name, ["float", text]
        for kind in ("float16", "float32", "float64", "int64"):
            yield name, ["numpy", [kind, 7.3 if kind[0] == "f" else 7]]
    yield "str_int", ["json", -(10**40)]
    for text in ("1.5", "1e300", "nan", "-inf", "5e-324", "0.1"):
        yield "str_float", ["float", text]
    for text in ("1.10", "-1E+5", "NaN"):
        yield "str_decimal", ["decimal", text]
    for value in (None, True, 1, 1.5, [], {}, {"b": 1, "a": [None, "é"]}):
        yield "json", ["json", value]
        yield "pkl", ["json", value]
    for dtype in (f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)):
        yield from arrays(dtype)
    for dtype in ("float16", "float32", "float64"):
        yield from arrays(dtype)
    for mode in ("RGB", "L", "1", "RGBA", "LA", "CMYK"):
        yield "pil", ["image", [mode, [9, 2]]]
    yield "list[pil]", ["images", []]
    yield "list[pil]", ["images", [["RGB", [2, 3]], ["L", [9, 1]]]]


def arrays(dtype: str) -> Any:
    for shape in ([1], [2, 3], [255], [256], [1, 300], [2] * 7, [65535], [65536]):
        described = ["array", [dtype, shape]]
        yield "ndarray", described
        yield f"ndarray:{dtype}", described
        yield f"ndarray:{dtype}:{','.join(map(str, shape))}", described


def shown(data: bytes) -> str:
    """Short results in full."""
    return data.hex() if len(data) <= 64 else f"sha256:{sha256(data).hexdigest()}"


def main() -> None:
    from streaming.base.format.mds.encodings import mds_encode

    rows = [
        [encoding, described, shown(mds_encode(encoding, value_of(described)))]
        for encoding, described in descriptions()
    ]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    RECORDED.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
