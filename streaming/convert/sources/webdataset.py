"""WebDataset tars: files that have the same name, but for their endings, are a sample."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any

from streaming.convert.errors import ConvertError, SchemaError
from streaming.convert.source import Part, Sample, Unreadable
from streaming.convert.sources.lookup import FileRef
from streaming.convert.sources.text_files import TextFiles

__all__ = ["WebDatasetSource"]

_INFER_SAMPLES = 100
_KEY = "__key__"


class WebDatasetSource(TextFiles):
    """The samples of tars in WebDataset's layout, a column for each ending, and `__key__`.

    Images stay the files that they are; `cls` and the like are integers, `txt` is text, `json` what
    it says, `npy` an array; anything else stays bytes.
    """

    kind = "WebDataset"

    def columns(self) -> dict[str, str]:
        """The columns, by the endings in the first samples."""
        return dict(self._columns)

    @cached_property
    def _columns(self) -> dict[str, str]:
        first = [set(raw) for raw in islice(self._raw(0), _INFER_SAMPLES)]
        if not first:
            raise SchemaError(f"{self.files[0].url} has no samples")
        for names in first:
            if names != first[0]:
                differ = ", ".join(sorted(names ^ first[0]))
                raise SchemaError(
                    f"{self.files[0].url}: not all samples have {differ}; every sample has all "
                    f"columns: leave it out by columns={{{sorted(names ^ first[0])[0]!r}: None}}"
                )
        return {
            name: self.given.get(name) or _encoding(name)
            for name in [_KEY, *sorted(first[0])]
            if name not in self.dropped
        }

    def read(self, part: Part) -> Iterator[Sample | Unreadable]:
        """The samples of a part, in the tars' order."""
        for number, _, _ in part.spec:
            for raw in self._raw(number, keyed=True):
                yield self._decoded(raw)

    def _decoded(self, raw: dict[str, bytes]) -> Sample | Unreadable:
        sample: Sample = {}
        for name, data in raw.items():
            if name == _KEY:
                sample[name] = data.decode("utf-8", "surrogateescape")
                continue
            encoding = self._columns.get(name) or _encoding(name)
            try:
                sample[name] = _decoder(name, encoding)(data)
            except (ValueError, TypeError) as exc:
                key = raw[_KEY].decode("utf-8", "replace")
                return Unreadable(f"{key}.{name} can't be read: {exc}")
        for name in self.dropped:
            sample.pop(name, None)
        return sample

    def _raw(self, number: int, keyed: bool = False) -> Iterator[dict[str, bytes]]:
        """The files of each sample by their endings."""
        sample: dict[str, bytes] = {}
        last = None
        for key, ending, data in self._members(self.files[number]):
            if key != last:
                if sample:
                    yield sample
                last, sample = key, {_KEY: key.encode("utf-8", "surrogateescape")} if keyed else {}
            if ending in sample:
                raise ConvertError(f"{self.files[number].url}: {key}.{ending} is there twice")
            if keyed or ending not in self.dropped:
                sample[ending] = data
        if sample:
            yield sample

    def _members(self, ref: FileRef) -> Iterator[tuple[str, str, bytes]]:
        with self.open_text(ref) as stream:
            try:
                with tarfile.open(fileobj=stream, mode="r|") as tar:
                    for member in tar:
                        folder, slash, name = member.name.rpartition("/")
                        stem, dot, ending = name.partition(".")
                        if not member.isfile() or not dot or name.startswith((".", "__")):
                            continue
                        data = tar.extractfile(member)
                        assert data is not None
                        yield folder + slash + stem, ending.lower(), data.read()
            except tarfile.TarError as exc:
                raise ConvertError(f"{ref.url}: this tar can't be read: {exc}") from exc


def _encoding(name: str) -> str:
    return _KINDS.get(name.rpartition(".")[2], "bytes") if name != _KEY else "str"


_KINDS = {
    **dict.fromkeys(("jpg", "jpeg"), "jpeg"),
    "png": "png",
    **dict.fromkeys(("txt", "text", "transcript"), "str"),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), "int"),
    **dict.fromkeys(("json", "jsn"), "json"),
    "npy": "ndarray",
}


def _decoder(name: str, encoding: str) -> Callable[[bytes], Any]:
    base = encoding.partition(":")[0]
    if base == "ndarray":
        return _load_npy
    if base in ("jpeg", "png", "pil"):
        from streaming.convert.sources.images import image_value

        return lambda data: image_value(data, base)
    if base == "json":
        return json.loads
    if base == "bytes":
        return bytes
    return int if base.lstrip("u").startswith("int") else _text


def _text(data: bytes) -> str:
    return data.decode("utf-8")


def _load_npy(data: bytes) -> Any:
    import numpy as np

    return np.load(io.BytesIO(data), allow_pickle=False)
