"""What the writers' tests share: a store that can be watched, held and broken; reading back."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from streaming.format.compression import decompress
from streaming.format.encodings.mds import mds_decode
from streaming.format.encodings.xsv import xsv_decode
from streaming.format.index import Index
from streaming.format.writer_json import JSONWriter
from streaming.format.writer_mds import MDSWriter
from streaming.format.writer_xsv import CSVWriter, TSVWriter, XSVWriter
from streaming.storage import NotFound, StoreError, register_store
from streaming.storage.local import LocalStore

WRITERS: dict[str, Any] = {
    "mds": MDSWriter,
    "csv": CSVWriter,
    "tsv": TSVWriter,
    "xsv": XSVWriter,
    "json": JSONWriter,
}
LIMIT_S = 30.0

SAMPLES = [{"n": i, "s": "x" * 10} for i in range(6)]
COLUMNS = {"n": "int", "s": "str"}


class Remote:
    """A folder behind the scheme held://, whose store does as it is told."""

    url = "held://bucket/data"

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log: list[str] = []
        """What was done, as "put KEY" or "delete KEY", when it was done."""
        self.attempts: list[str] = []
        self.fail: Callable[[str, str], Exception | None] = lambda what, key: None
        """Gives the error with which to answer an operation on a key, or None."""
        self.options: dict[str, Any] = {}
        self.uploading = 0
        self.most_uploading = 0
        self._changed = threading.Condition()
        self._held = False
        self._passes = 0

    def hold(self) -> None:
        """Let no upload finish until `release`."""
        self._held = True

    def release(self, count: int | None = None) -> None:
        """Let so many uploads finish, or all from now on."""
        with self._changed:
            if count is None:
                self._held = False
            else:
                self._passes += count
            self._changed.notify_all()

    def wait_for(self, enough: Callable[[], bool]) -> None:
        """Wait until something is so that depends on what the store has seen."""
        with self._changed:
            assert self._changed.wait_for(enough, LIMIT_S), "the store did not see it in time"

    def objects(self) -> list[str]:
        return sorted(self.names(self.root))

    @staticmethod
    def names(root: Path) -> Iterator[str]:
        for path in root.rglob("*"):
            if path.is_file():
                yield path.relative_to(root).as_posix()

    def check(self, what: str, key: str) -> None:
        with self._changed:
            self.attempts.append(f"{what} {key}")
            self._changed.notify_all()
        error = self.fail(what, key)
        if error is not None:
            raise error

    def done(self, what: str, key: str) -> None:
        with self._changed:
            self.log.append(f"{what} {key}")
            self._changed.notify_all()

    @contextmanager
    def upload(self) -> Iterator[None]:
        with self._changed:
            self.uploading += 1
            self.most_uploading = max(self.most_uploading, self.uploading)
            self._changed.notify_all()
            ready = self._changed.wait_for(lambda: not self._held or self._passes > 0, LIMIT_S)
            assert ready, "nobody released the upload"
            self._passes -= self._held
        try:
            yield
        finally:
            with self._changed:
                self.uploading -= 1
                self._changed.notify_all()

    def store(self, url: str, *, timeout_s: float = 60.0, **options: Any) -> HeldStore:
        self.options = options
        return HeldStore(url, self)


class HeldStore(LocalStore):
    def __init__(self, url: str, remote: Remote) -> None:
        below = url.removeprefix("held://").partition("/")[2].removeprefix("data").strip("/")
        super().__init__(str(remote.root / below))
        self.url = url.rstrip("/")
        self.remote = remote

    def _put(self, path: Path, size: int, key: str) -> None:
        self.remote.check("put", key)
        with self.remote.upload():
            super()._put(path, size, key)
        self.remote.done("put", key)

    def _delete(self, key: str) -> None:
        self.remote.check("delete", key)
        super()._delete(key)
        self.remote.done("delete", key)

    def _list(self, prefix: str) -> Iterator[str]:
        self.remote.check("list", prefix)
        yield from super()._list(prefix)

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Any:
        self.remote.check("get", key)
        return super()._open(key, start, stop, etag)


def serve(root: Path) -> Remote:
    """Serve held:// from a folder, from now on."""
    root.mkdir(parents=True, exist_ok=True)
    remote = Remote(root)
    register_store("held", remote.store)
    return remote


def broken(*keys: str, error: Callable[[str], Exception] | None = None) -> Any:
    """A failure of all uploads whose key contains one of these."""
    make = error or (lambda key: StoreError(f"held://bucket/data/{key}: broken", retryable=True))
    return lambda what, key: (
        make(key) if what == "put" and any(part in key for part in keys) else None
    )


def read_all(folder: Path) -> list[dict[str, Any]]:
    """All samples of a local data set, by the readers."""
    index = Index.parse((folder / "index.json").read_bytes(), str(folder / "index.json"))
    samples = []
    for shard in range(len(index)):
        reader = index.reader(shard, str(folder), None, True)
        samples += [reader[i] for i in range(index.samples[shard])]
        reader.close()
    return samples


def shard_sizes(folder: Path) -> list[tuple[int, int]]:
    """The shards' numbers of samples, and the size of their (data) files in bytes."""
    index = json.loads((folder / "index.json").read_text())
    return [(shard["samples"], shard["raw_data"]["bytes"]) for shard in index["shards"]]


def names(folder: Path) -> list[str]:
    """The files below a folder."""
    return sorted(Remote.names(folder))


def missing() -> NotFound:
    return NotFound("held://bucket/data: there is no such object")


IMAGES = {"pil", "jpeg", "jpeg_array", "png", "list[pil]", "list[jpeg]", "list[png]"}


def _content(folder: Path, shard: dict[str, Any], kind: str) -> bytes:
    zipped = shard[f"zip_{kind}"]
    name = (zipped or shard[f"raw_{kind}"])["basename"]
    data = (folder / name).read_bytes()
    return decompress(shard["compression"], data) if zipped else data


def parse(folder: Path) -> Iterator[dict[str, Any]]:
    """The samples of a data set, by the layout as it is described; images as they are stored."""
    for shard in json.loads((folder / "index.json").read_text())["shards"]:
        data = _content(folder, shard, "data")
        table = data if shard["format"] == "mds" else _content(folder, shard, "meta")
        (count,) = struct.unpack_from("<I", table)
        offsets = struct.unpack_from(f"<{count + 1}I", table, 4)
        assert count == shard["samples"]
        for begin, end in pairwise(offsets):
            yield _parse_sample(shard, data[begin:end])


def _parse_sample(shard: dict[str, Any], data: bytes) -> dict[str, Any]:
    if shard["format"] == "json":
        sample: dict[str, Any] = json.loads(data)
        return sample
    columns = list(zip(shard["column_names"], shard["column_encodings"], strict=True))
    if shard["format"] != "mds":
        separator = shard.get("separator", {"csv": ",", "tsv": "\t"}.get(shard["format"]))
        fields = data.decode().removesuffix(shard["newline"]).split(separator)
        return {n: xsv_decode(e, f) for (n, e), f in zip(columns, fields, strict=True)}
    variable = shard["column_sizes"].count(None)
    sizes = list(struct.unpack_from(f"<{variable}I", data))
    at, sample = 4 * variable, {}
    for (name, encoding), size in zip(columns, shard["column_sizes"], strict=True):
        stop = at + (sizes.pop(0) if size is None else size)
        value = data[at:stop]
        sample[name] = value if encoding in IMAGES else mds_decode(encoding, value)
        at = stop
    assert at == len(data)
    return sample
