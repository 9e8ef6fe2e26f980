import threading
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from streaming import MDSWriter
from streaming.multimodal import StreamingOutsideDTWebVid, StreamingOutsideGIWebVid
from streaming.multimodal.content import ContentFiles
from streaming.storage import NotFound

CLASSES = [StreamingOutsideGIWebVid, StreamingOutsideDTWebVid]


@pytest.fixture
def videos(tmp_path):
    return write(tmp_path, [f"clips/{at}.mp4" for at in range(20)])


def write(folder, paths):
    """The arguments of a data set over some videos."""
    columns = {"content_path": "str", "n": "int"}
    with MDSWriter(out=str(folder / "data"), columns=columns, size_limit=500) as out:
        for n, path in enumerate(paths):
            out.write({"content_path": path, "n": n})
            video = folder / "videos" / path
            if ".." not in path:
                video.parent.mkdir(parents=True, exist_ok=True)
                video.write_bytes(b"video %d" % n)
    return {
        "local": str(folder / "data"),
        "extra_remote": str(folder / "videos"),
        "extra_local": str(folder / "kept"),
        "batch_size": 2,
        "num_canonical_nodes": 1,
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cls", CLASSES)
def test_an_epoch(cls, videos, workers):
    loader = DataLoader(cls(**videos, shuffle=True), batch_size=2, num_workers=workers)
    for _ in range(2):
        samples = [
            (n, c) for b in loader for n, c in zip(b["n"].tolist(), b["content"], strict=True)
        ]
        assert sorted(samples) == [(n, b"video %d" % n) for n in range(20)]
    kept = [path.name for path in Path(videos["extra_local"], "clips").iterdir()]
    assert sorted(kept) == sorted(f"{n}.mp4" for n in range(20))


@pytest.mark.parametrize("cls", CLASSES)
def test_a_missing_video_raises_where_its_sample_is_asked_for(cls, videos):
    Path(videos["extra_remote"], "clips", "7.mp4").unlink()
    dataset, seen = cls(**videos, download_retry=0), []
    with pytest.raises(NotFound, match=r"7\.mp4"):
        seen.extend(sample["n"] for sample in dataset)
    assert seen == [*range(7)]


def test_a_path_that_climbs_out_is_refused(tmp_path):
    arguments = write(tmp_path, ["../../outside.mp4"])
    with pytest.raises(ValueError, match=r"never climb by '\.\.'"):
        StreamingOutsideGIWebVid(**arguments)[0]
    assert not (tmp_path / "kept").exists()


class Watched(ContentFiles):
    """Tells what was fetched, and by which thread."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.fetched = []
        self.changed = threading.Condition()

    def _download(self, path, aside):
        super()._download(path, aside)
        with self.changed:
            self.fetched.append((path, threading.current_thread().name))
            self.changed.notify_all()

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.fetched) >= count, timeout=30)


def watched(cls, videos, **kwargs):
    dataset = cls(**videos, **kwargs)
    dataset._videos = Watched(videos["extra_remote"], videos["extra_local"])
    return dataset


def test_threads_fetch_a_window_ahead_once(videos):
    dataset = watched(StreamingOutsideDTWebVid, videos, predownload=6)
    samples = iter(dataset)
    assert next(samples)["n"] == 0
    dataset._videos.wait_for(7)
    assert len(dataset._videos.fetched) == 7
    assert [sample["n"] for sample in samples] == [*range(1, 20)]
    paths, threads = zip(*dataset._videos.fetched, strict=True)
    assert sorted(paths) == sorted(f"clips/{n}.mp4" for n in range(20))
    assert all(name.startswith("streaming-video") for name in threads)


def test_an_abandoned_iteration_ends_its_threads(videos):
    dataset = watched(StreamingOutsideDTWebVid, videos, predownload=3)
    for _ in range(5):
        iterator = iter(dataset)
        next(iterator)
        iterator.close()
    for thread in threading.enumerate():
        if thread.name.startswith("streaming-video"):
            thread.join(timeout=30)
            assert not thread.is_alive()


def test_content_is_fetched_on_demand_otherwise(videos):
    dataset = watched(StreamingOutsideGIWebVid, videos)
    assert dataset[5]["content"] == b"video 5"
    assert dataset[5]["content"] == b"video 5"
    assert [path for path, _ in dataset._videos.fetched] == ["clips/5.mp4"]


def test_a_failed_fetch_leaves_nothing(tmp_path):
    (tmp_path / "remote").mkdir()
    files = ContentFiles(str(tmp_path / "remote"), str(tmp_path / "local"), retries=0)
    with pytest.raises(NotFound):
        files.read("a/missing")
    assert [p for p in (tmp_path / "local").rglob("*") if p.is_file()] == []
