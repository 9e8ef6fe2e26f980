"""One stream of shards: where it comes from and is kept, how much of it an epoch takes."""

import logging
import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from hashlib import blake2s
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.cache import Directory
from streaming.cache.directory import INDEX
from streaming.cache.fetch import fetch_shard
from streaming.cache.origin import Origin
from streaming.cache.space import Space
from streaming.format.hashing import get_hashes
from streaming.format.index import Index
from streaming.format.reader import Reader
from streaming.indexes import read_index
from streaming.order.weights import derive_weights, validate_weights
from streaming.registry import TypedRegistry, create_registry
from streaming.remote_index import open_index
from streaming.storage import RetryPolicy, Store, is_local, local_path, store_for
from streaming.world import World

log = logging.getLogger("streaming")


class Stream:
    """A data set, or a part of one, that streams from one place.

    Weights are relative (``proportion``, on every stream or none) or absolute (``repeat`` or
    ``choose``, one of them).

    Args:
        remote: Where the shards come from: a directory or a URL. None if ``local`` holds them all.
        local: Where they are kept on this machine. None for a directory in the system's temporary
            folder, named by a hash of ``remote``.
        split: A subdirectory of both, such as ``train``.
        proportion: This stream's share of the samples, relative to the other streams'.
        repeat: How often an epoch takes the stream; a fraction takes a part.
        choose: How many samples an epoch takes.
        download_retry: Attempts after a download's first one. The data set's, unless given.
        download_timeout: Longest wait for the next bytes of a download, in seconds. The data
            set's, unless given.
        validate_hash: Name of the hash to check every shard with. The data set's, unless given.
        keep_zip: Whether to keep the compressed form of shards. The data set's, unless given.
        storage_options: Options of the remote's store, such as ``{"endpoint_url": ...}``.

    Raises:
        ValueError: If an argument makes no sense, naming it.

    Example:
        >>> web = Stream(remote="s3://bucket/web", local="/data/web", proportion=3)
        >>> books = Stream(remote="s3://bucket/books", local="/data/books", proportion=1)
        >>> Stream.apply_weights([web, books], np.array([900, 400]), 100, seed=0)
        100
        >>> web.choose, books.choose
        (75, 25)
    """

    def __init__(
        self,
        *,
        remote: str | None = None,
        local: str | None = None,
        split: str | None = None,
        proportion: float | None = None,
        repeat: float | None = None,
        choose: int | None = None,
        download_retry: int | None = None,
        download_timeout: float | None = None,
        validate_hash: str | None = None,
        keep_zip: bool | None = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        self.remote = None if remote is None else os.fspath(remote)
        self._local = None if local is None else local_path(os.fspath(local))
        self.split = split or ""
        if proportion is not None and proportion < 0:
            raise ValueError(f"`proportion` of {remote or local} is {proportion}: give 0 or more.")
        if repeat is not None and repeat < 0:
            raise ValueError(f"`repeat` of {remote or local} is {repeat}: give 0 or more.")
        if choose is not None and choose < 0:
            raise ValueError(f"`choose` of {remote or local} is {choose}: give 0 or more.")
        given = [
            name
            for name, value in (("proportion", proportion), ("repeat", repeat), ("choose", choose))
            if value is not None
        ]
        if len(given) > 1:
            raise ValueError(
                f"A stream takes one of `proportion`, `repeat` and `choose`; {remote or local} was "
                f"given {' and '.join(given)}."
            )
        self._proportion, self._repeat, self._choose = proportion, repeat, choose
        # The weights as the data set derives them: `apply_weights` sets all three.
        self.proportion, self.repeat, self.choose = proportion, repeat, choose
        self._download_retry, self.download_retry = download_retry, 2
        self._download_timeout, self.download_timeout = download_timeout, 60.0
        self.validate_hash = validate_hash
        self._keep_zip, self.keep_zip = keep_zip, False
        self.storage_options = dict(storage_options or {})
        self._set_retry(download_retry, download_timeout, keep_zip)
        self.local = self._local or (_temporary_local(self.remote) if self.remote else None)
        self._directory: Directory | None = None

    def _set_retry(self, retry: int | None, timeout: float | None, keep_zip: bool | None) -> None:
        if retry is not None:
            if retry < 0:
                raise ValueError(f"`download_retry` is {retry}: give 0 or more.")
            self.download_retry = retry
        if timeout is not None:
            if timeout <= 0:
                raise ValueError(f"`download_timeout` is {timeout}: give seconds above 0.")
            self.download_timeout = timeout
        if keep_zip is not None:
            self.keep_zip = keep_zip

    def apply_default(self, default: dict[str, Any]) -> None:
        """Take over the data set's arguments where the stream was given none of its own.

        Args:
            default: ``remote``, ``local``, ``split``, ``download_retry``, ``download_timeout``,
                ``validate_hash``, ``keep_zip``.
        """
        if not (self.remote or self._local):
            self.remote = default.get("remote")
            self._local = default.get("local")
        self.split = self.split or default.get("split") or ""
        if self._download_retry is None:
            self._set_retry(default.get("download_retry"), None, None)
        if self._download_timeout is None:
            self._set_retry(None, default.get("download_timeout"), None)
        if self._keep_zip is None:
            self._set_retry(None, None, default.get("keep_zip"))
        if self.validate_hash is None:
            self.validate_hash = default.get("validate_hash")
        if self.validate_hash is not None and self.validate_hash not in get_hashes():
            raise ValueError(
                f"`validate_hash` is {self.validate_hash!r}, which is no known hash: use one of "
                f"{', '.join(sorted(get_hashes()))}."
            )
        self.local = self._local or (_temporary_local(self.remote) if self.remote else None)
        if self.local is None:
            raise ValueError("A stream needs `remote`, `local` or both.")

    @classmethod
    def validate_weights(cls, streams: Sequence["Stream"]) -> tuple[bool, bool]:
        """Check that the streams' weights go together.

        Returns:
            Whether they are relative, and whether they are absolute. Neither if none is given.

        Raises:
            ValueError: If only some streams have a ``proportion``.
        """
        return validate_weights(
            [s._proportion for s in streams],
            [s._repeat for s in streams],
            [s._choose for s in streams],
        )

    @classmethod
    def apply_weights(
        cls,
        streams: Sequence["Stream"],
        samples_per_stream: NDArray[np.int64],
        choose_per_epoch: int | None,
        seed: int,
    ) -> int:
        """Derive how much of each stream an epoch takes, and set all three weights on each.

        Args:
            streams: The streams.
            samples_per_stream: Their sizes.
            choose_per_epoch: The epoch's size, or None to derive it.
            seed: The data set's ``shuffle_seed``.

        Returns:
            The number of samples in an epoch.

        Raises:
            ValueError: If the weights contradict one another.
        """
        proportion, repeat, choose, epoch_size = derive_weights(
            [s._proportion for s in streams],
            [s._repeat for s in streams],
            [s._choose for s in streams],
            samples_per_stream,
            choose_per_epoch,
            seed,
        )
        for i, stream in enumerate(streams):
            stream.proportion = float(proportion[i])
            stream.repeat = float(repeat[i])
            stream.choose = int(choose[i])
        return int(epoch_size)

    @property
    def path(self) -> str:
        """The local directory of the stream's split."""
        if self.local is None:
            raise ValueError("A stream needs `remote`, `local` or both.")
        return os.path.join(self.local, self.split) if self.split else self.local

    def store(self) -> Store | None:
        """Where the split's shards come from; None if it is where they are kept."""
        if self.remote is None:
            return None
        url = self.remote.rstrip("/") + (f"/{self.split}" if self.split else "")
        if is_local(url) and os.path.realpath(local_path(url)) == os.path.realpath(self.path):
            return None
        return store_for(url, timeout_s=self.download_timeout, **self.storage_options)

    def open(self, anew: bool = False) -> Directory:
        """The stream's directory with its index.

        The index is fetched if it is not there. The first time, one that is there is compared with
        the remote's, whose new data set takes the old one's place if it was rewritten.

        Args:
            anew: Whether to compare it once more.

        Raises:
            FileNotFoundError: If there is no index.
            FormatError: If the index is damaged.
            StoreError: If it can't be fetched.
            ObjectChanged: If the remote was rewritten while an iteration reads the directory, or
                the directory was not filled from there.
        """
        if self._directory is None or (anew and self._directory.origin is not None):
            store = self.store()
            index, origin = self._index(self.path, store)
            path = self.path
            if store is None and self._lacks_raw(index):
                # The user's own compressed shards: they stay as they are, and a directory of ours
                # holds the raw ones.
                store = store_for(path)
                path = _temporary_local(os.path.realpath(path))
                index, origin = self._index(path, store)
            self._directory = Directory(
                path=path,
                index=index,
                store=store,
                retry=RetryPolicy(retries=self.download_retry),
                validate_hash=self.validate_hash,
                keep_zip=self.keep_zip and store is not None,
                origin=origin,
            )
            self._check_hash(index)
        return self._directory

    def _lacks_raw(self, index: Index) -> bool:
        if not index.zip_bytes.any():
            return False
        if not Directory(self.path, index).is_present(0):
            return True
        # By names alone: to ask for the size of each file of a million takes minutes where they
        # are on a network. A file that was cut short is told when it is opened.
        names: set[str] = set()
        for folder in index.folders():
            with suppress(FileNotFoundError):
                found = os.listdir(os.path.join(self.path, *folder.split("/")))
                names.update(f"{folder}/{name}" if folder else name for name in found)
        return not all(map(names.__contains__, index.raw_names()))

    def _check_hash(self, index: Index) -> None:
        algo = self.validate_hash
        if algo is None:
            return
        info = index.file_without(algo)
        if info is not None:
            raise ValueError(
                f"`validate_hash` is {algo!r}, but {info.basename} in {self.path} was written with "
                f"{', '.join(info.hashes) or 'no hashes'}. Use one of those, or None."
            )

    def _index(self, path: str, store: Store | None) -> tuple[Index, Origin | None]:
        name = os.path.join(path, INDEX)
        if store is None:
            try:
                return read_index(name), None
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    f"There is no data set at {path}: {INDEX} is missing, and the stream has no "
                    f"`remote`. Check `local` and `split`, or give `remote`."
                ) from error
        _make_local(path, is_given=self._local is not None and path == self.path)
        return open_index(store, path, RetryPolicy(retries=self.download_retry))

    def get_index_size(self) -> int:
        """Bytes of the stream's index in its directory."""
        return os.stat(self.open().index_path).st_size

    def get_shards(self, world: World, allow_unsafe_types: bool) -> list[Reader]:
        """Readers of all the stream's shards.

        Args:
            world: Not used: every process reads the index itself.
            allow_unsafe_types: Whether to read encodings that can run code, such as ``pkl``.
        """
        directory = self.open()
        directory.index.validate_safe(allow_unsafe_types)
        return [
            directory.index.reader(i, directory.path, None, allow_unsafe_types)
            for i in range(len(directory.index))
        ]

    def set_up_local(self, shards: list[Reader], cache_usage_per_shard: NDArray[np.int64]) -> None:
        """Write what each shard takes in the directory, in bytes, into an array.

        Args:
            shards: The stream's shards.
            cache_usage_per_shard: Filled in, one number for each.
        """
        directory = self.open()
        for i in range(len(shards)):
            paths = directory.paths(i)
            cache_usage_per_shard[i] = sum(os.stat(p).st_size for p in paths if os.path.exists(p))

    def prepare_shard(self, shard: Reader) -> int:
        """Fetch a shard if it is not here. A subclass may bring it in its own way.

        Args:
            shard: The shard's reader.

        Returns:
            By how many bytes the directory has grown.
        """
        directory = self.open()
        number = self._number_of(shard)
        before = sum(os.stat(p).st_size for p in directory.paths(number) if os.path.exists(p))
        claim = directory.claim(number)
        # A dataset calls this of a subclass while it holds the claim.
        with nullcontext() if claim.is_held_here() else claim:
            if not directory.is_present(number) and directory.is_cache:
                fetch_shard(directory, 0, number, Space([directory], None))
        after = sum(os.stat(p).st_size for p in directory.paths(number) if os.path.exists(p))
        return after - before

    def _number_of(self, shard: Reader) -> int:
        wanted = shard.file_pairs[0][0].basename
        number = self.open().index.shard_named(wanted)
        if number is None:
            raise ValueError(f"{wanted} is not a shard of {self.path}")
        return number

    def __repr__(self) -> str:
        given = {"remote": self.remote, "local": self.local, "split": self.split or None}
        return f"Stream({', '.join(f'{k}={v!r}' for k, v in given.items() if v is not None)})"


streams_registry: TypedRegistry[type[Stream]] = create_registry(
    "streaming",
    "streams_registry",
    generic_type=type,
    entry_points=True,
    description="Classes of streams, by the name that StreamingDataset takes as `stream_name`.",
)
streams_registry.register("stream", func=Stream)


def _temporary_local(remote: str) -> str:
    """A directory of this user's for what comes from a remote, the same every time."""
    name = blake2s(remote.encode("utf-8"), digest_size=16).hexdigest()
    path = os.path.join(tempfile.gettempdir(), name)
    return path if _is_ours(path) else f"{path}-{os.getuid()}"


def _is_ours(path: str) -> bool:
    """Whether nobody else could have put files into a directory that we would read as data."""
    if not hasattr(os, "getuid"):
        return True
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return True
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not found.st_mode & stat.S_IWOTH
    )


def _make_local(path: str, is_given: bool) -> None:
    """Make a stream's directory; one that we chose ourselves nobody else may write to."""
    os.makedirs(path, exist_ok=True)
    if is_given:
        return
    temporary = os.path.realpath(tempfile.gettempdir())
    top = os.path.realpath(path)
    while os.path.dirname(top) not in (temporary, top):
        top = os.path.dirname(top)
    if os.path.dirname(top) == temporary and top != temporary and not _is_ours(top):
        raise PermissionError(
            f"{top} belongs to another user, who could put data of their own into it. Give `local` "
            f"a directory of yours."
        )
