"""The converters, on small files in the layout of the original data sets."""

import json
import pickle
import subprocess
import sys
import tarfile
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from streaming.convert import ConvertError
from streaming.vision import StreamingADE20K, StreamingCIFAR10, StreamingCOCO, StreamingImageNet
from streaming.vision.convert import ade20k, base, cifar10, coco, fake_cifar10, imagenet
from tests.convert.folders import files_of, samples_of

QUIET = ["--progress_bar", "0", "--workers", "2"]


def image(path, seed, mode="RGB", size=(24, 16)):
    """Write an image file, and return its content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    Image.fromarray(pixels).save(path)
    return path.read_bytes()


@pytest.fixture
def photographs(tmp_path):
    """ImageNet, with a class in `val` that has a file that isn't an image's name."""
    root = tmp_path / "imagenet"
    content = {}
    for split, count in (("train", 6), ("val", 2)):
        for label, name in enumerate(("n01440764", "n01443537", "n02102040")):
            for at in range(count):
                path = root / split / name / f"{name}_{at}.JPEG"
                image_of = image(path, 100 * label + at + (split == "val") * 50)
                content[split, label * count + at] = (image_of, label)
            (root / split / name / "notes.txt").write_text("not an image")
    return root, content


def test_imagenet(photographs, tmp_path):
    root, content = photographs
    out = tmp_path / "out"
    imagenet.run(["--in_root", str(root), "--out_root", str(out), *QUIET])
    for split, count in (("train", 18), ("val", 6)):
        samples = {sample["i"]: sample for sample in samples_of(out / split)}
        assert sorted(samples) == list(range(count))
        for at, sample in samples.items():
            data, label = content[split, at]
            assert sample["y"] == label
            assert sample["x"].tobytes() == Image.open(BytesIO(data)).tobytes()
            assert data in (out / split / "00000/shard.00000.mds").read_bytes()
    assert [sample["i"] for sample in samples_of(out / "train")] != list(range(18))
    shard = json.loads((out / "train/index.json").read_text())["shards"][0]
    assert shard["hashes"] == ["sha1", "xxh64"]
    picture, label = StreamingImageNet(local=str(out), split="val", batch_size=1)[0]
    assert picture.shape == (3, 16, 24)
    assert label in (0, 1, 2)

    again = tmp_path / "again"
    imagenet.run(["--in_root", str(root), "--out_root", str(again), *QUIET])
    assert files_of(out) == files_of(again)


def test_a_damaged_image_is_named_or_taken_as_it_is(photographs, tmp_path):
    root, _ = photographs
    bad = root / "val/n01443537/n01443537_1.JPEG"
    bad.write_bytes(bad.read_bytes()[:200])
    args = ["--in_root", str(root), "--out_root", str(tmp_path / "out"), "--splits", "val", *QUIET]
    with pytest.raises(ConvertError, match=r"n01443537_1.JPEG is no image .*--validate 0"):
        imagenet.run(args)
    image(bad, 7)
    with pytest.raises(ConvertError, match="differs in content"):
        imagenet.run(args)
    imagenet.run([*args, "--resume", "0"])
    bad.write_bytes(bad.read_bytes()[:200])
    args[3] = str(tmp_path / "other")
    imagenet.run([*args, "--validate", "0"])
    shards = json.loads((tmp_path / "other/val/index.json").read_text())["shards"]
    assert [shard["samples"] for shard in shards] == [6]


def test_a_run_that_was_stopped_between_splits_goes_on(photographs, tmp_path):
    root, _ = photographs
    args = ["--in_root", str(root), "--out_root", str(tmp_path / "out"), *QUIET]
    imagenet.run([*args, "--splits", "train"])
    before = files_of(tmp_path / "out/train")
    imagenet.run(args)
    assert files_of(tmp_path / "out/train") == before
    assert len(samples_of(tmp_path / "out/val")) == 6
    with pytest.raises(FileExistsError, match="has train, val already"):
        imagenet.run(args)


@pytest.mark.long
def test_it_is_a_command_with_the_known_arguments(photographs, tmp_path):
    root, _ = photographs
    command = [sys.executable, "-m", "streaming.vision.convert.imagenet"]
    done = subprocess.run(
        [
            *(*command, "--in_root", root, "--out_root", tmp_path / "out", "--compression", "zstd"),
            *("--hashes", "sha1", "--size_limit", "4096", "--progress_bar", "1", "--leave", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "train" in done.stderr
    shards = json.loads((tmp_path / "out/train/index.json").read_text())["shards"]
    assert len(shards) > 1
    assert {shard["compression"] for shard in shards} == {"zstd"}
    failed = subprocess.run(
        [*command, "--in_root", tmp_path / "none", "--out_root", tmp_path / "x"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert failed.returncode == 1
    assert failed.stderr.startswith("FileNotFoundError: ")
    assert len(failed.stderr.splitlines()) == 1


def cifar(folder, text=str.encode):
    """CIFAR-10's files as Python 2 pickled them; returns pixels and labels by file."""
    batches = {}
    folder.mkdir(parents=True)
    for at, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        random = np.random.default_rng(at)
        data = random.integers(0, 256, (7, 3072), np.uint8)
        labels = random.integers(0, 10, 7).tolist()
        batches[name] = (data.reshape(7, 3, 32, 32).transpose(0, 2, 3, 1), labels)
        content = {text("batch_label"): name, text("labels"): labels, text("data"): data}
        (folder / name).write_bytes(pickle.dumps(content, 2))
    return batches


@pytest.mark.parametrize("packed", [False, True])
def test_cifar10(packed, tmp_path):
    folder = tmp_path / "in/cifar-10-batches-py"
    batches = cifar(folder)
    if packed:
        with tarfile.open(tmp_path / "in/cifar-10-python.tar.gz", "w:gz") as tar:
            tar.add(folder, folder.name)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    out = tmp_path / "out"
    cifar10.run(["--in_root", str(tmp_path / "in"), "--out_root", str(out), *QUIET])
    wanted = [(name, row) for name in cifar10.BATCHES["train"] for row in range(7)]
    samples = {sample["i"]: sample for sample in samples_of(out / "train")}
    assert len(samples) == 35
    for number, (name, row) in enumerate(wanted):
        images, labels = batches[name]
        assert np.array_equal(np.asarray(samples[number]["x"]), images[row])
        assert samples[number]["y"] == labels[row]
    picture, label = StreamingCIFAR10(local=str(out), split="val", batch_size=1)[0]
    assert picture.shape == (3, 32, 32)
    assert 0 <= label < 10


def test_cifar10_runs_nothing_that_a_file_says(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    cifar(folder)
    (folder / "data_batch_3").write_bytes(pickle.dumps(print))
    with pytest.raises(ValueError, match=r"data_batch_3 is not one of .*builtins.print"):
        cifar10.source(str(tmp_path), "train")
    with pytest.raises(ValueError, match="'test'; it must be one of train, val"):
        cifar10.source(str(tmp_path), "test")


def test_fake_cifar10(tmp_path):
    args = ["--num_train", "20", "--num_val", "5", *QUIET]
    fake_cifar10.run(["--out", str(tmp_path / "a"), *args])
    fake_cifar10.run(["--out", str(tmp_path / "b"), *args])
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    samples = samples_of(tmp_path / "a/train")
    assert [sample["i"] for sample in samples] == list(range(20))
    assert len({sample["x"].tobytes() for sample in samples}) == 20


def test_ade20k(tmp_path):
    content = {}
    for split, name, count in (("training", "train", 5), ("validation", "val", 3)):
        for at in range(1, count + 1):
            stem = f"ADE_{name}_{at:08}"
            mode = "L" if at == 2 else "RGB"
            content[name, b"%08d" % at] = (
                image(tmp_path / "in/images" / split / f"{stem}.jpg", at, mode),
                image(tmp_path / "in/annotations" / split / f"{stem}.png", -at % 99, "L"),
            )
    out = tmp_path / "out"
    ade20k.run(["--in_root", str(tmp_path / "in"), "--out_root", str(out), *QUIET])
    for split, count in (("train", 4), ("val", 3)):  # a grey photograph of train is left out
        samples = samples_of(out / split)
        assert len(samples) == count
        for sample in samples:
            photograph, classes = content[split, sample["uid"]]
            assert sample["x"].tobytes() == Image.open(BytesIO(photograph)).tobytes()
            assert sample["y"].tobytes() == Image.open(BytesIO(classes)).tobytes()
    photograph, classes = StreamingADE20K(local=str(out), split="val", batch_size=1)[0]
    assert photograph.size == classes.size
    (tmp_path / "in/annotations/validation/ADE_val_00000002.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"ADE_val_00000002.jpg has no image"):
        ade20k.source(str(tmp_path / "in"), "val")


def test_coco(tmp_path):
    root = tmp_path / "in"
    (root / "annotations").mkdir(parents=True)
    for split, count in (("train2017", 6), ("val2017", 3)):
        images, notes = [], []
        for at in range(1, count + 1):
            image(root / split / f"{at:012}.jpg", at, size=(40, 20))
            images.append({"id": at, "file_name": f"{at:012}.jpg", "height": 20, "width": 40})
            notes += [
                {"image_id": at, "bbox": [4.0 * k, 5.0, 8.0, 10.0], "category_id": (1, 18, 90)[k]}
                for k in range(at % 4)  # every fourth has none
            ]
        categories = [{"id": number} for number in (1, 18, 90)]
        whole = {"images": images, "annotations": notes, "categories": categories}
        (root / f"annotations/instances_{split}.json").write_text(json.dumps(whole))
    out = tmp_path / "out"
    coco.run(["--in_root", str(root), "--out_root", str(out), *QUIET])
    samples = {sample["img_id"]: sample for sample in samples_of(out / "train")}
    assert sorted(samples) == [1, 2, 3, 5, 6]
    assert samples[3]["bbox_labels"].tolist() == [1, 2, 3]
    assert samples[3]["bbox_sizes"].dtype == np.float32
    assert np.allclose(samples[2]["bbox_sizes"], [[0, 0.25, 0.2, 0.75], [0.1, 0.25, 0.3, 0.75]])
    assert (samples[1]["htot"], samples[1]["wtot"]) == (20, 40)
    data = StreamingCOCO(local=str(out), split="val", batch_size=1)
    assert [data[at][1] for at in range(3)] == [1, 2, 3]


class Pairs:
    """A data set such as torchvision's."""

    def __len__(self):
        return 10

    def __getitem__(self, at):
        return np.full((4, 4, 3), at, np.uint8), at % 3


def test_any_data_set_of_images_and_classes(tmp_path):
    base.convert_image_class_dataset(
        Pairs(), str(tmp_path), "train", encoding="png", progress_bar=False, workers=2
    )
    samples = {sample["i"]: sample for sample in samples_of(tmp_path / "train")}
    assert len(samples) == 10
    assert np.asarray(samples[7]["x"]).tolist() == [[[7] * 3] * 4] * 4
    assert samples[7]["y"] == 1
