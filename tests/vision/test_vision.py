import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from streaming import MDSWriter
from streaming.vision import StreamingCIFAR10, StreamingCOCO, StreamingVisionDataset
from streaming.vision.images import TransformEach, to_tensor


@pytest.fixture
def digits(tmp_path):
    rng = np.random.default_rng(1)
    with MDSWriter(out=str(tmp_path / "d"), columns={"x": "png", "y": "int"}) as out:
        for y in range(12):
            pixels = rng.integers(0, 256, (4, 3, 3), dtype=np.uint8)
            out.write({"x": Image.fromarray(pixels), "y": y})
    return str(tmp_path / "d")


@pytest.mark.parametrize("mode", ["RGB", "L", "LA", "RGBA", "CMYK", "HSV", "P"])
def test_to_tensor_of_eight_bit_images(mode):
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (5, 4, 3), dtype=np.uint8)).convert(mode)
    tensor = to_tensor(image)
    assert tensor.dtype == torch.float32
    pixels = np.asarray(image)
    expected = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)
    assert torch.equal(tensor, torch.from_numpy(expected.astype(np.float32) / 255))


def test_to_tensor_of_other_images():
    bits = Image.fromarray(np.array([[True, False]]))
    assert to_tensor(bits).tolist() == [[[1.0, 0.0]]]
    wide = Image.fromarray(np.array([[60000, 3]], np.uint16))
    assert to_tensor(wide).tolist() == [[[60000, 3]]]
    assert to_tensor(wide).dtype == torch.int32
    floats = Image.fromarray(np.array([[0.5, 9.0]], np.float32))
    assert to_tensor(floats).tolist() == [[[0.5, 9.0]]]


def test_to_tensor_of_arrays_does_not_alias():
    array = np.array([[0.0, 1.0]])
    tensor = to_tensor(array)
    assert tensor.dtype == torch.float64
    tensor += 1
    assert array.tolist() == [[0.0, 1.0]]
    readonly = np.frombuffer(b"\x00\xff", np.uint8).reshape(1, 2)
    assert to_tensor(readonly).tolist() == [[[0.0, 1.0]]]


def test_to_tensor_refuses_the_rest():
    with pytest.raises(TypeError, match=r"not an image.*bytes"):
        to_tensor(b"abc")
    with pytest.raises(ValueError, match=r"\(height, width\[, channels\]\), not \(3,\)"):
        to_tensor(np.zeros(3))


def test_transform_each():
    assert TransformEach()("x", "y") == ("x", "y")
    assert TransformEach(str.upper, str.title)("x", "yes") == ("X", "Yes")


def test_missing_column_is_named(tmp_path):
    with MDSWriter(out=str(tmp_path), columns={"z": "int"}) as out:
        out.write({"z": 1})
    with pytest.raises(KeyError, match="x"):
        StreamingVisionDataset(local=str(tmp_path), batch_size=1)[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_through_a_loader(digits, workers):
    dataset = StreamingCIFAR10(local=digits, batch_size=3, num_canonical_nodes=1, shuffle=True)
    batches = [*DataLoader(dataset, batch_size=3, num_workers=workers)]
    assert batches[0][0].shape == (3, 3, 4, 3)
    assert sorted(y for _, ys in batches for y in ys.tolist()) == [*range(12)]
    for images, labels in batches:
        for image, label in zip(images, labels.tolist(), strict=True):
            assert torch.equal(image, dataset[label][0])


def test_both_kinds_of_transform_are_refused(digits):
    for other in ({"transform": str}, {"target_transform": str}):
        with pytest.raises(ValueError, match=r"either transforms.*not both"):
            StreamingVisionDataset(local=digits, batch_size=1, transforms=max, **other)


def test_coco_with_pickled_boxes(tmp_path):
    columns = {"img": "png", "img_id": "int", "htot": "int", "wtot": "int"}
    columns |= {"bbox_sizes": "pkl", "bbox_labels": "pkl"}
    sample = {"img": Image.new("L", (2, 3)), "img_id": 5, "htot": 3, "wtot": 2}
    with MDSWriter(out=str(tmp_path), columns=columns) as out:
        out.write({**sample, "bbox_sizes": [(0, 0, 1, 1)], "bbox_labels": [4]})
    with pytest.raises(ValueError, match="pkl"):
        StreamingCOCO(local=str(tmp_path))
    image, *rest = StreamingCOCO(local=str(tmp_path), allow_unsafe_types=True)[0]
    assert (image.mode, image.size) == ("RGB", (2, 3))
    assert rest == [5, (3, 2), [(0, 0, 1, 1)], [4]]
