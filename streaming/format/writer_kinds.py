"""Writers by their files: one for each shard, or a plain one and one of offsets."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from streaming.format.destination import Out
from streaming.format.writer import Writer

__all__ = ["JointWriter", "SplitWriter"]


class JointWriter(Writer):
    r"""A writer whose shards are one file each.

    A subclass sets `format`, and defines `encode_sample` and `encode_joint_shard`.

    The arguments are those of `Writer`.

    Example:
        >>> import pathlib, tempfile
        >>> class LinesWriter(JointWriter):
        ...     format = "lines"
        ...     def encode_sample(self, sample):
        ...         return sample["line"].encode() + b"\n"
        ...     def encode_joint_shard(self):
        ...         return b"".join(self.new_samples)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with LinesWriter(out=folder) as writer:
        ...         writer.write({"line": "hello"})
        ...     pathlib.Path(folder, "shard.00000.lines").read_bytes()
        b'hello\n'
    """

    @abstractmethod
    def encode_joint_shard(self) -> bytes:
        """Put the samples at hand together.

        Returns:
            The shard file's content.
        """
        raise NotImplementedError

    def flush_shard(self) -> None:
        """Hand the samples at hand to the background as a shard."""
        self._hand_over({"data": ("", self.encode_joint_shard())})


class SplitWriter(Writer):
    """A writer whose shards are a data file, which other tools can read, and a file of offsets.

    A subclass sets `format`, and defines `encode_sample` and `encode_split_shard`.

    The arguments are those of `Writer`, but for the extra bytes, which are the class's.
    """

    extra_bytes_per_shard: int = 0
    extra_bytes_per_sample: int = 0

    def __init__(
        self,
        *,
        out: Out,
        keep_local: bool = False,
        compression: str | None = None,
        hashes: list[str] | None = None,
        size_limit: int | str | None = 1 << 26,
        **kwargs: Any,
    ) -> None:
        per_shard, per_sample = self.extra_bytes_per_shard, self.extra_bytes_per_sample
        super().__init__(
            out=out,
            size_limit=size_limit,
            extra_bytes_per_shard=per_shard,
            extra_bytes_per_sample=per_sample,
            keep_local=keep_local,
            compression=compression,
            hashes=hashes,
            **kwargs,
        )

    @abstractmethod
    def encode_split_shard(self) -> tuple[bytes, bytes]:
        """Put the samples at hand together.

        Returns:
            The content of the data file, and that of the file of offsets.
        """
        raise NotImplementedError

    def flush_shard(self) -> None:
        """Hand the samples at hand to the background as a shard."""
        data, meta = self.encode_split_shard()
        self._hand_over({"data": ("", data), "meta": (".meta", meta)})
