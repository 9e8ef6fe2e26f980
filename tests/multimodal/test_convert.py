"""The converters, on small files in the layout of the original data sets."""

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from streaming import StreamingDataset
from streaming.multimodal import StreamingInsideWebVid, StreamingOutsideGIWebVid
from streaming.multimodal.convert.laion.laion400m import convert_and_upload
from streaming.multimodal.convert.webvid import (
    crawl_webvid,
    crawl_webvid_subsets,
    extract_webvid_videos,
)
from streaming.multimodal.convert.webvid.videos import read_rows, seconds, videos
from tests.convert.folders import samples_of


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


CAPTIONS = ["A cat, sleeping", "A dog", "Not there", "Dog and cat", "Category: bird"]


@pytest.fixture
def listed(tmp_path):
    """A list of videos, one of which its server does not have."""
    served = tmp_path / "served"
    served.mkdir()
    for at in (0, 1, 3, 4):
        (served / f"{at}.mp4").write_bytes(b"video %d" % at * (at + 1))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    rows = [
        f'{at},10{at},{url}/{at}.mp4,PT00H01M0{at}S,006001,"{caption}"'
        for at, caption in enumerate(CAPTIONS)
    ]
    path = tmp_path / "webvid.csv"
    head = "page_idx,videoid,contentUrl,duration,page_dir,name"
    path.write_text("\n".join([head, *rows]) + "\n")
    yield path
    server.shutdown()
    thread.join()
    server.server_close()


def test_webvid(listed, tmp_path, capsys):
    out = tmp_path / "out"
    crawl_webvid.run(["--in", str(listed), "--out_root", str(out), "--num_procs", "2"])
    data = StreamingInsideWebVid(local=str(out), batch_size=1)
    assert [data[at]["videoid"] for at in range(4)] == ["100", "101", "103", "104"]
    assert data[2]["content"] == b"video 3" * 4
    assert (data[2]["duration"], data[2]["name"], data[2]["page_idx"]) == (63, "Dog and cat", "3")
    assert "left out: video 102" in capsys.readouterr().err
    extract_webvid_videos.run(
        [
            *("--in", str(out), "--out_mds", str(tmp_path / "mds")),
            *("--out_mp4", str(tmp_path / "mp4"), "--workers", "2"),
        ]
    )
    assert (tmp_path / "mp4/000/001.mp4").read_bytes() == b"video 1" * 2
    outside = StreamingOutsideGIWebVid(
        local=str(tmp_path / "mds"),
        extra_local=str(tmp_path / "kept"),
        extra_remote=str(tmp_path / "mp4"),
        batch_size=1,
    )
    assert [outside[at]["content"] for at in range(4)] == [data[at]["content"] for at in range(4)]
    assert outside[3]["content_path"] == "000/003.mp4"


def test_webvid_by_words(listed, tmp_path):
    args = ["--csv", str(listed), "--mds_root", str(tmp_path / "out"), "--num_procs", "2"]
    crawl_webvid_subsets.run([*args, "--filters", "cat,dog"])
    for word, wanted in (("cat", ["100", "103"]), ("dog", ["101", "103"])):
        assert [one["videoid"] for one in samples_of(tmp_path / "out" / word)] == wanted


def test_a_list_that_is_not_webvids(tmp_path):
    (tmp_path / "list.csv").write_text("videoid,name\n1,x\n")
    with pytest.raises(ValueError, match="no column contentUrl, duration, page_dir"):
        read_rows(str(tmp_path / "list.csv"))
    with pytest.raises(ValueError, match="there are no videos in x"):
        videos("x", [])
    with pytest.raises(ValueError, match="is no duration"):
        seconds("10 s")


def laion(folder, number):
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = 5
    columns = {
        "NSFW": ["UNLIKELY"] * count,
        "LICENSE": ["?"] * count,
        "similarity": [0.3] * count,
        "caption": [f"caption {number} {at}" for at in range(count)],
        "exif": [None] * count,
        "error_message": [None] * count,
        "url": ["http://x"] * count,
        "key": [f"{number:05}{at:04}" for at in range(count)],
        "status": ["success"] * count,
        "md5": ["x"] * count,
        "jpg": [b"jpeg %d" % at if at != 1 else None for at in range(count)],
        **{name: [32] * count for name in ("width", "height")},
        **{f"original_{name}": [64] * count for name in ("width", "height")},
    }
    pq.write_table(pa.table(columns), folder / f"{number:05}.parquet")
    (folder / f"{number:05}_stats.json").write_text(json.dumps({"count": count}))


def test_laion400m(tmp_path):
    local, remote = tmp_path / "local", tmp_path / "remote"
    local.mkdir()
    laion(local, 0)
    args = ["--local", str(local), "--remote", str(remote), "--poll_interval", "0.05"]
    args += ["--keep_parquet", "0", "--workers", "0"]
    thread = threading.Thread(target=convert_and_upload.run, args=[args], daemon=True)
    thread.start()
    index = remote / "00000.mds/index.json"
    while not index.exists():
        assert thread.is_alive()
        thread.join(0.02)
    laion(local, 1)  # downloaded while it runs
    (local / "done").touch()
    thread.join(60)
    assert not thread.is_alive()
    data = StreamingDataset(local=str(remote), batch_size=1)
    assert [data[at]["key"] for at in range(8)] == [
        f"{number:05}{at:04}" for number in (0, 1) for at in (0, 2, 3, 4)
    ]
    sample = data[1]
    assert (sample["jpg"], sample["exif"], sample["width"]) == (b"jpeg 2", "", 32)
    assert "md5" not in sample
    assert not list(local.glob("*.parquet"))
