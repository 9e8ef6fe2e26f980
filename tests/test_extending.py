"""What users plug in streams an epoch: a subclass, a kind of stream, an encoding, a downloader."""

import os
import shutil
import time
from typing import Any

import pytest
from torch.utils.data import DataLoader

from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset
from streaming.base.format.mds import encodings
from streaming.base.registry_utils import save_registry
from streaming.base.storage.download import DOWNLOADER_MAPPINGS, CloudDownloader
from streaming.base.stream import streams_registry


@pytest.fixture
def remote(tmp_path):
    with MDSWriter(out=str(tmp_path / "remote"), columns={"x": "int"}, size_limit=300) as out:
        for x in range(50):
            out.write({"x": x})
    return str(tmp_path / "remote")


class Doubled(StreamingDataset):
    """A subclass as people write them."""

    def __init__(self, *args: Any, factor: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.factor = factor

    def __getitem__(self, at):
        return super().__getitem__(at)["x"] * self.factor


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loader", [DataLoader, StreamingDataLoader])
def test_subclass(remote, tmp_path, workers, loader):
    dataset = Doubled(
        remote=remote, local=str(tmp_path / "l"), batch_size=5, shuffle=True, factor=2
    )
    batches = loader(dataset, batch_size=5, num_workers=workers)
    assert sorted(x for batch in batches for x in batch.tolist()) == [2 * x for x in range(50)]


class NoisyStream(Stream):
    """A stream that is told apart by an argument of its own."""

    def __init__(self, *, tag: str = "none", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tag = tag


class CopyingStream(Stream):
    """A stream that brings its shards here by itself."""

    def prepare_shard(self, shard):
        name = shard.file_pairs[0][0].basename
        shutil.copy(os.path.join(self.remote, name), os.path.join(self.local, name))
        with open(f"{self.local}.log", "a") as log:
            log.write(f"{name}\n")
        return shard.get_raw_size()


@pytest.mark.parametrize("workers", [0, 2])
def test_kind_of_stream(remote, tmp_path, workers):
    with save_registry():
        streams_registry.register("noisy", func=NoisyStream)
        dataset = StreamingDataset(
            remote=remote,
            local=str(tmp_path / "l"),
            batch_size=5,
            stream_name="noisy",
            stream_config={"tag": "mine"},
        )
        assert dataset.streams[0].tag == "mine"
        batches = DataLoader(dataset, batch_size=5, num_workers=workers)
        assert sorted(x for batch in batches for x in batch["x"].tolist()) == [*range(50)]


def test_stream_that_brings_its_shards(remote, tmp_path):
    stream = CopyingStream(remote=remote, local=str(tmp_path / "own"))
    dataset = StreamingDataset(streams=[stream], batch_size=5)
    assert [sample["x"] for sample in dataset] == [*range(50)]
    names = (tmp_path / "own.log").read_text().split()
    assert sorted(set(names)) == sorted(n for n in os.listdir(remote) if n.endswith(".mds"))


class FillingStream(CopyingStream):
    """A stream that makes files of full size at once, and fills them later."""

    def prepare_shard(self, shard):
        name = shard.file_pairs[0][0].basename
        whole = super().prepare_shard(shard)
        with open(os.path.join(self.local, name), "r+b") as file:
            file.truncate(whole - 40)
            file.truncate(whole)
        if name != "shard.00000.mds":
            time.sleep(0.3)  # for whoever has read the first to take the others for whole
        return super().prepare_shard(shard)


@pytest.mark.parametrize("workers", [0, 2])
def test_shards_are_read_when_their_stream_is_done(remote, tmp_path, workers):
    stream = FillingStream(remote=remote, local=str(tmp_path / "own"))
    dataset = StreamingDataset(streams=[stream], batch_size=5)
    batches = DataLoader(dataset, batch_size=5, num_workers=workers)
    assert sorted(x for batch in batches for x in batch["x"].tolist()) == [*range(50)]


class Reversed(encodings.Encoding):
    """A text, stored backwards."""

    def encode(self, obj: str) -> bytes:
        return obj[::-1].encode()

    def decode(self, data: bytes) -> str:
        return data.decode()[::-1]


@pytest.mark.parametrize("way", ["documented", "private"])
def test_encoding(tmp_path, way, monkeypatch):
    if way == "documented":
        encodings.register_encoding("reversed", Reversed)
    else:
        encodings._encodings["reversed"] = Reversed
    try:
        with MDSWriter(out=str(tmp_path / "d"), columns={"t": "reversed"}) as out:
            for at in range(20):
                out.write({"t": f"text {at}"})
        raw = (tmp_path / "d" / "shard.00000.mds").read_bytes()
        assert b"3 txet" in raw
        dataset = StreamingDataset(local=str(tmp_path / "d"), batch_size=4)
        batches = DataLoader(dataset, batch_size=4, num_workers=2)
        assert sorted(t for b in batches for t in b["t"]) == sorted(
            f"text {at}" for at in range(20)
        )
    finally:
        del encodings._encodings["reversed"]


class VaultDownloader(CloudDownloader):
    """A downloader for a scheme of its own: vault://path is a directory here."""

    @staticmethod
    def _client_identifier() -> str:
        return "vault"

    def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
        shutil.copy(remote.removeprefix("vault:/"), local)

    def clean_up(self) -> None:
        pass


@pytest.mark.parametrize("workers", [0, 2])
def test_downloader(remote, tmp_path, workers, monkeypatch):
    monkeypatch.setitem(DOWNLOADER_MAPPINGS, "vault", VaultDownloader)
    dataset = StreamingDataset(remote=f"vault:/{remote}", local=str(tmp_path / "l"), batch_size=5)
    batches = DataLoader(dataset, batch_size=5, num_workers=workers)
    assert sorted(x for batch in batches for x in batch["x"].tolist()) == [*range(50)]
    assert isinstance(CloudDownloader.get("vault://x"), VaultDownloader)
