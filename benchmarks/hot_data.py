"""What the benchmarks of the hot path read: samples that are the same for every reader.

The JPEGs are cut out of the photographs that scikit-learn and scikit-image bring, mirrored at
random, and compressed as cameras do. They are made once, by our environment, and other readers'
environments take them from a folder.
"""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

WORKLOADS = ("tokens", "small", "images", "jpeg")
WIDTH = 2048
"""Tokens in a sample."""
IMAGE_BYTES = 110_000
SIDE = 256
"""Width and height of the JPEGs, in pixels."""
COUNTS = {"tokens": 40_000, "small": 400_000, "images": 4_000, "jpeg": 3_000}
QUICK_COUNTS = {"tokens": 16_000, "small": 160_000, "images": 2_000, "jpeg": 1_000}


def samples(workload: str, count: int, photographs: Path) -> Iterator[dict[str, Any]]:
    """The samples of a workload.

    Args:
        workload: One of `WORKLOADS`.
        count: How many.
        photographs: The folder of the JPEGs.
    """
    rng = np.random.default_rng(0)
    for number in range(count):
        if workload == "tokens":
            yield {"tokens": rng.integers(0, 50_000, WIDTH, dtype=np.int32)}
        elif workload == "small":
            yield {"id": number, "text": f"sample {number}"}
        elif workload == "images":
            yield {"image": rng.bytes(IMAGE_BYTES), "label": number}
        else:
            yield {"image": (photographs / f"{number}.jpg").read_bytes(), "label": number}


def decode(data: bytes) -> Any:
    """A JPEG's pixels, an array of shape `(SIDE, SIDE, 3)`."""
    from PIL import Image

    return np.array(Image.open(BytesIO(data)))


def make_photographs(folder: Path, count: int) -> None:
    """Cut JPEGs out of photographs."""
    import skimage
    from PIL import Image
    from sklearn.datasets import load_sample_images

    names = ["astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png"]
    names += ["hubble_deep_field.jpg", "retina.jpg", "ihc.png"]
    data = Path(skimage.__file__).parent / "data"
    photographs = [np.asarray(Image.open(data / name).convert("RGB")) for name in names]
    photographs += list(load_sample_images().images)
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        top, left = (int(rng.integers(0, size - SIDE + 1)) for size in photograph.shape[:2])
        part = photograph[top : top + SIDE, left : left + SIDE]
        part = part[:, ::-1] if rng.integers(2) else part
        Image.fromarray(np.ascontiguousarray(part)).save(folder / f"{number}.jpg", quality=90)
