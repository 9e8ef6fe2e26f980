"""What the benchmark of conversion converts: photographs as JPEG files, and text as JSON lines."""

import io
import json
import os
import random
import sys
import sysconfig
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path

CLASSES = 10
FILES = 16


def images_of(folder: str) -> "list[str]":
    """All images below a folder, in order."""
    return sorted(
        os.path.join(place, name) for place, _, names in os.walk(folder) for name in names
    )


def classes_of(paths: "list[str]") -> "dict[str, int]":
    """The folders' names, numbered."""
    names = sorted({os.path.basename(os.path.dirname(path)) for path in paths})
    return {name: at for at, name in enumerate(names)}


def photographs() -> "list[Path]":
    """The photographs that installed packages ship."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    found = [path for folder in folders for path in Path(folder).rglob("*.jp*g")]
    return sorted({path for path in found if path.stat().st_size > 50_000})


def write_images(folder: Path, count: int) -> int:
    """Write crops of the photographs, of many sizes and qualities; return their bytes."""
    jobs = [(folder, at, CLASSES, count) for at in range(CLASSES)]
    with Pool() as pool:
        return sum(pool.map(_write_class, jobs))


def _write_class(job: "tuple[Path, int, int, int]") -> int:
    from PIL import Image

    folder, at, step, count = job
    place = folder / f"class{at}"
    place.mkdir(parents=True)
    rng = random.Random(at)
    photos = [Image.open(path).convert("RGB") for path in photographs()]
    size = 0
    for number in range(at, count, step):
        photo = rng.choice(photos)
        width, height = rng.randrange(160, 400), rng.randrange(160, 400)
        left, top = (
            rng.randrange(max(1, a - b)) for a, b in zip(photo.size, (width, height), strict=True)
        )
        file = io.BytesIO()
        crop = photo.crop((left, top, left + width, top + height))
        crop.save(file, "JPEG", quality=rng.randrange(60, 96))
        (place / f"{number:06}.jpg").write_bytes(file.getvalue())
        size += file.tell()
    return size


def documents() -> Iterator[str]:
    """Pieces of the text that Python and the installed packages ship: code, notes, licences."""
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
    endings = (".py", ".md", ".rst", ".txt")
    for folder in folders:
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix not in endings or not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="ignore")
            # Of the size of a page on the web.
            yield from (text[at : at + 2500] for at in range(0, len(text), 2500))


def write_text(folder: Path, size: int) -> int:
    """Write documents as JSON lines until they are that many bytes; return how many there are."""
    folder.mkdir(parents=True)
    known = list(documents())
    random.Random(0).shuffle(known)
    number = 0
    for at in range(FILES):
        with open(folder / f"{at:02}.jsonl", "w", encoding="utf-8") as file:
            written = 0
            while written < size // FILES:
                line = json.dumps({"id": number, "text": known[number % len(known)]}) + "\n"
                written += file.write(line)
                number += 1
    return number


if __name__ == "__main__":
    for photo in photographs():
        print(photo, photo.stat().st_size, file=sys.stderr)
