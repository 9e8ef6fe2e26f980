"""Shards put together by hand, independently of the writers, and their description in an index."""

import json
import struct
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from streaming.format.compression import compress, get_compression_extension
from streaming.format.encodings.mds import get_mds_encoded_size, mds_encode
from streaming.format.hashing import get_hash


def table(first: int, bodies: Sequence[bytes]) -> bytes:
    offsets = accumulate(map(len, bodies), initial=first)
    return struct.pack(f"<{len(bodies) + 2}I", len(bodies), *offsets)


def describe(folder: Path, name: str, data: bytes, config: dict[str, Any], raw: bool) -> Any:
    """Write a file, also compressed if it should be; return what an index says of both."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    hashes = {algo: get_hash(algo, data) for algo in config["hashes"]}
    about = {"basename": name, "bytes": len(data), "hashes": hashes}
    if raw:
        path.write_bytes(data)
    if config["compression"] is None:
        return about, None
    packed = compress(config["compression"], data)
    zip_name = f"{name}.{get_compression_extension(config['compression'])}"
    (folder / zip_name).write_bytes(packed)
    hashes = {algo: get_hash(algo, packed) for algo in config["hashes"]}
    return about, {"basename": zip_name, "bytes": len(packed), "hashes": hashes}


def base(kind: str, compression: str | None, hashes: Sequence[str]) -> dict[str, Any]:
    return {
        "version": 2,
        "format": kind,
        "compression": compression,
        "hashes": list(hashes),
        "size_limit": 1 << 26,
    }


def mds_shard(
    folder: Path,
    columns: dict[str, str],
    samples: Sequence[dict[str, Any]],
    number: int = 0,
    compression: str | None = None,
    hashes: Sequence[str] = (),
    raw: bool = True,
) -> dict[str, Any]:
    """Write an MDS shard; return its object in the index."""
    names = sorted(columns)
    sizes = [get_mds_encoded_size(columns[name]) for name in names]
    config = base("mds", compression, hashes) | {
        "column_names": names,
        "column_encodings": [columns[name] for name in names],
        "column_sizes": sizes,
    }
    header = json.dumps(config, sort_keys=True).encode()
    bodies = []
    for sample in samples:
        parts = [mds_encode(columns[name], sample[name]) for name in names]
        lengths = [len(part) for part, size in zip(parts, sizes, strict=True) if size is None]
        bodies.append(struct.pack(f"<{len(lengths)}I", *lengths) + b"".join(parts))
    first = 4 * (len(bodies) + 2) + len(header)
    data = table(first, bodies) + header + b"".join(bodies)
    raw_data, zip_data = describe(folder, f"shard.{number:05}.mds", data, config, raw)
    return {**config, "samples": len(bodies), "raw_data": raw_data, "zip_data": zip_data}


def lines_shard(
    folder: Path,
    kind: str,
    lines: Sequence[str],
    fields: dict[str, Any],
    newline: str = "\n",
    head: str = "",
    compression: str | None = None,
    raw: bool = True,
) -> dict[str, Any]:
    """Write a shard of lines of text; return its object in the index."""
    config = base(kind, compression, ()) | {"newline": newline} | fields
    bodies = [(line + newline).encode() for line in lines]
    begin = (head + newline).encode() if head else b""
    header = json.dumps(config, sort_keys=True).encode()
    name = f"shard.00000.{kind}"
    data = describe(folder, name, begin + b"".join(bodies), config, raw)
    meta = describe(folder, f"{name}.meta", table(len(begin), bodies) + header, config, raw)
    files = {"raw_data": data[0], "zip_data": data[1], "raw_meta": meta[0], "zip_meta": meta[1]}
    return {**config, "samples": len(bodies), **files}


def index_file(folder: Path, shards: Sequence[dict[str, Any]]) -> Path:
    path = folder / "index.json"
    path.write_text(json.dumps({"version": 2, "shards": list(shards)}))
    return path
