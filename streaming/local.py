"""A data set that lies in a local directory, by number: no streaming, no torch loader needed."""

import os
from typing import Any

from torch.utils.data import Dataset

from streaming.cache import Directory, ShardCache
from streaming.cache.directory import INDEX
from streaming.format.array import Array
from streaming.format.shards import ShardList
from streaming.indexes import read_index
from streaming.order.spanner import Spanner
from streaming.storage import local_path

MEMORY_BYTES = 512 << 20
"""What the shards that have to be decompressed may take in memory."""


class LocalDataset(Array, Dataset[Any]):
    """Samples of a local data set by their number; compressed shards are decompressed in memory.

    Args:
        local: The directory.
        split: A subdirectory of it, such as ``train``.

    Raises:
        FileNotFoundError: If there is no data set.
        FormatError: If its index is damaged.

    Example:
        >>> import tempfile
        >>> from streaming import MDSWriter
        >>> folder = tempfile.mkdtemp()
        >>> with MDSWriter(out=folder, columns={"x": "int"}, compression="zstd") as writer:
        ...     for x in range(3):
        ...         writer.write({"x": x})
        >>> dataset = LocalDataset(folder)
        >>> len(dataset), dataset[1], [sample["x"] for sample in dataset[1:]]
        (3, {'x': 1}, [1, 2])
    """

    def __init__(self, local: str, split: str | None = None) -> None:
        self.local = local_path(os.fspath(local))
        self.split = split or ""
        path = os.path.join(self.local, self.split) if self.split else self.local
        name = os.path.join(path, INDEX)
        try:
            index = read_index(name)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"There is no data set at {path}: {INDEX} is missing. Check `local` and `split`."
            ) from error
        index.validate_safe(False)
        self.shards = ShardList([(index, path)])
        self.num_samples = index.num_samples
        self.spanner = Spanner(index.samples)
        in_memory = None
        if index.zip_bytes.any():
            in_memory = max(1, MEMORY_BYTES // max(1, int(index.raw_bytes.max())))
        self._cache = ShardCache(
            [Directory(path, index)], self.shards, None, lambda **amounts: None, in_memory
        )

    @property
    def size(self) -> int:
        """How many samples there are."""
        return self.num_samples

    def __len__(self) -> int:
        return self.num_samples

    def get_item(self, sample_id: int) -> Any:
        """One sample by its number, from 0 to ``size - 1``."""
        shard, at = self.spanner[sample_id]
        return self._cache.reader(shard).sample(at)
