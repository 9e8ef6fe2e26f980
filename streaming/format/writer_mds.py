"""The writer of MDS shards."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from streaming.format.destination import Out
from streaming.format.encodings.mds import (
    IMAGE_FILES,
    JPEG,
    PNG,
    Bytes,
    Float16,
    Float32,
    Float64,
    Int,
    Int8,
    Int16,
    Int32,
    Int64,
    NDArray,
    Str,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    get_mds_encoder,
    get_mds_encodings,
    mds_encode,
)
from streaming.format.errors import EncodeError
from streaming.format.layout import header, offset_table
from streaming.format.writer_checks import check_columns, explain_columns, located
from streaming.format.writer_columns import encode_columns
from streaming.format.writer_kinds import JointWriter

__all__ = ["MDSWriter"]

Encode = Callable[[Any], bytes]
_PIECE_BYTES = 1 << 10
"""Samples of this size on average are written as they are, without putting them together first."""

_INTEGERS: dict[type, str] = {
    Int: "<q",
    Int8: "<b",
    Int16: "<h",
    Int32: "<i",
    Int64: "<q",
    UInt8: "<B",
    UInt16: "<H",
    UInt32: "<I",
    UInt64: "<Q",
}
_FLOATS: dict[type, str] = {Float16: "<e", Float32: "<f", Float64: "<d"}


class MDSWriter(JointWriter):
    """Writes a data set in the MDS format: any columns, quick to read at random.

    Args:
        columns: Column name to encoding, such as `{"tokens": "ndarray:int32:2048", "id": "int"}`;
            `streaming.base.format.mds.encodings` names them all.
        out: A folder; a URL; or a pair of both, (local, remote).
        keep_local: Whether local files stay when they have been uploaded.
        compression: A compression, with a level if you like: `"zstd"`, `"zstd:7"`.
        hashes: Names of hashes to be kept for each file, in alphabetical order.
        size_limit: Most bytes in a shard before compression, as a number or as `"64mb"`; None for
            one shard.
        **kwargs: `progress_bar`, `max_workers`, `retry`, `exist_ok`, `storage_options`: see
            `Writer`, which lists the errors as well.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with MDSWriter(columns={"id": "int", "text": "str"}, out=folder) as writer:
        ...         for i in range(3):
        ...             writer.write({"id": i, "text": f"sample {i}"})
        ...     writer.shards[0]["samples"]
        3
    """

    format = "mds"
    extra_bytes_per_sample: int = 4

    def __init__(
        self,
        *,
        columns: dict[str, str],
        out: Out,
        keep_local: bool = False,
        compression: str | None = None,
        hashes: list[str] | None = None,
        size_limit: int | str | None = 1 << 26,
        **kwargs: Any,
    ) -> None:
        self.columns = check_columns(columns, get_mds_encoder, get_mds_encodings())
        self.column_names = sorted(self.columns)
        self.column_encodings = [self.columns[name] for name in self.column_names]
        coders = [get_mds_encoder(encoding) for encoding in self.column_encodings]
        self.column_sizes = [getattr(coder, "size", None) for coder in coders]
        self._steps = [
            (name, _fast_step(encoding, coder))
            for name, encoding, coder in zip(
                self.column_names, self.column_encodings, coders, strict=True
            )
        ]
        plain = (*_INTEGERS, *_FLOATS, NDArray)
        self._layouts = [coder.layout if type(coder) in plain else None for coder in coders]
        self._variable = [i for i, size in enumerate(self.column_sizes) if size is None]
        self._pack_sizes = struct.Struct(f"<{len(self._variable)}I").pack
        super().__init__(
            out=out,
            keep_local=keep_local,
            compression=compression,
            hashes=hashes,
            size_limit=size_limit,
            extra_bytes_per_sample=self.extra_bytes_per_sample,
            **kwargs,
        )
        self.config_data = header(self.get_config())
        self.extra_bytes_per_shard = 4 + 4 + len(self.config_data)
        self._reset_cache()

    def get_config(self) -> dict[str, Any]:
        """What the header of each shard, and its entry in the index, say of the data set."""
        return {
            **super().get_config(),
            "column_names": self.column_names,
            "column_encodings": self.column_encodings,
            "column_sizes": self.column_sizes,
        }

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        """Turn a sample into the bytes that it has in a shard.

        Args:
            sample: The values by column.

        Returns:
            A size of 32 bits for each column of variable size, then the columns, by name.

        Raises:
            FormatError: If a column is missing or one too many, or a value can't be encoded.
        """
        try:
            parts = [encode(sample[name]) for name, encode in self._steps]
            if len(sample) != len(parts):
                raise ValueError
            if not self._variable:
                return b"".join(parts)
            head = self._pack_sizes(*[len(parts[i]) for i in self._variable])
            return b"".join([head, *parts])
        except Exception:
            # Whatever it was, done again with care, it says where and why; or it succeeds.
            return self._encode_with_care(sample)

    def _encode_batch(self, columns: Mapping[str, Any], count: int) -> list[bytes]:
        if type(self).encode_sample is not MDSWriter.encode_sample:
            return super()._encode_batch(columns, count)
        try:
            if columns.keys() != self.columns.keys():
                raise ValueError
            return encode_columns(columns, self._steps, self._layouts, self._variable, count)
        except Exception:
            # As in `encode_sample`: done again by sample, it says where and why, or succeeds.
            return super()._encode_batch(columns, count)

    def encode_joint_shard(self) -> bytes:
        """Put the samples at hand together.

        Returns:
            The shard: number of samples, offsets, header, samples.
        """
        return b"".join(self._pieces())

    def flush_shard(self) -> None:
        """Hand the samples at hand to the background as a shard."""
        kind = type(self)
        size = self.new_shard_size // max(1, len(self.new_samples))
        if size < _PIECE_BYTES or kind.encode_joint_shard is not MDSWriter.encode_joint_shard:
            super().flush_shard()
            return
        self._hand_over({"data": ("", self._pieces())})

    def _pieces(self) -> list[bytes]:
        first = 4 + 4 * (len(self.new_samples) + 1) + len(self.config_data)
        return [offset_table(self.new_samples, first), self.config_data, *self.new_samples]

    def _encode_with_care(self, sample: Any) -> bytes:
        number = self._next_sample
        explain_columns(sample, self.column_names, number)
        parts, sizes = [], []
        for name, encoding, size in zip(
            self.column_names, self.column_encodings, self.column_sizes, strict=True
        ):
            try:
                data = mds_encode(encoding, sample[name])
                _check_encoded(encoding, size, data)
                if size is None:
                    sizes.append(struct.pack("<I", len(data)))
            except struct.error:
                raise EncodeError(
                    f"column {name!r} of sample {number} has {len(data)} bytes, and its size has "
                    "to fit in 32 bits: split it"
                ) from None
            except Exception as exc:
                raise located(exc, name, number) from exc
            parts.append(data)
        return b"".join([*sizes, *parts])


def _check_encoded(encoding: str, size: int | None, data: Any) -> None:
    """Refuse what an encoding should not have made: it would spoil the sample."""
    if not isinstance(data, bytes):
        raise EncodeError(f"the encoding {encoding} made a {type(data).__name__}, not bytes")
    if size is not None and len(data) != size:
        raise EncodeError(f"the encoding {encoding} made {len(data)} bytes; its size is {size}")


def _fast_step(encoding: str, coder: Any) -> Encode:
    """Compile a column: a function that encodes most values, and raises anything at the others.

    What it makes is what the encoding makes; where that is not sure from the value's type alone, it
    raises, and the encoding itself decides.
    """
    kind = type(coder)
    if kind in _INTEGERS:
        return struct.Struct(_INTEGERS[kind]).pack
    if kind in _FLOATS:
        return _float_step(struct.Struct(_FLOATS[kind]).pack)
    if kind is Str:
        return str.encode
    if kind is Bytes:
        return _bytes_step
    if kind is NDArray and coder.layout is not None:
        return _array_step(*coder.layout)
    if kind in (JPEG, PNG):
        return _image_step(_any_step(encoding, coder))
    return _any_step(encoding, coder)


def _bytes_step(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    raise TypeError


def _image_step(other: Encode) -> Encode:
    def step(value: Any) -> bytes:
        if type(value) is bytes and value.startswith(IMAGE_FILES):
            return value
        return other(value)

    return step


def _float_step(pack: Encode) -> Encode:
    def step(value: Any) -> bytes:
        if type(value) is float or type(value) is int:
            return pack(value)
        raise TypeError

    return step


def _array_step(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Encode:
    def step(value: Any) -> bytes:
        if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            return value.tobytes()
        raise TypeError

    return step


def _any_step(encoding: str, coder: Any) -> Encode:
    encode: Encode = coder.encode
    size: int | None = getattr(coder, "size", None)

    def step(value: Any) -> bytes:
        if isinstance(value, bytes):  # already encoded, perhaps
            raise TypeError
        data = encode(value)
        if type(data) is not bytes or (size is not None and len(data) != size):
            raise TypeError
        return data

    return step
