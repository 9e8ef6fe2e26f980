"""Ways to convert, one a run: called by convert.py in the environment of the library.

    python convert_ways.py WAY WORKLOAD INPUT OUTPUT PROCESSES

Prints the seconds that the conversion took, and the CPU seconds of all its processes, after the
imports. Each way is the one that its library's documentation shows for the job.
"""

import json
import os
import resource
import sys
import time
from multiprocessing import Pool
from pathlib import Path

from convert_inputs import classes_of, images_of


def cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


# Ours.


def shardstream(workload: str, source: str, out: str, processes: int) -> None:
    from streaming.convert import convert

    columns = {"name": None, "class": None} if workload == "images" else None
    convert(source, out, columns=columns, workers=processes, progress=False)


# mosaicml-streaming: a loop that writes; for several processes, a pool and one index over all.


def mosaicml(workload: str, source: str, out: str, processes: int) -> None:
    from streaming.base.util import merge_index

    write = {"images": mosaicml_images, "text": mosaicml_text}[workload]
    if processes == 1:
        write((source, out, 0, 1))
        return
    jobs = [(source, f"{out}/{at:05}", at, processes) for at in range(processes)]
    with Pool(processes) as pool:
        pool.map(write, jobs)
    merge_index(out)


def mosaicml_images(job: "tuple[str, str, int, int]") -> None:
    from PIL import Image

    from streaming import MDSWriter

    source, out, at, count = job
    paths = images_of(source)
    classes = classes_of(paths)
    share = paths[len(paths) * at // count : len(paths) * (at + 1) // count]
    with MDSWriter(columns={"image": "jpeg", "label": "int"}, out=out) as writer:
        for path in share:
            label = classes[os.path.basename(os.path.dirname(path))]
            writer.write({"image": Image.open(path), "label": label})


def mosaicml_text(job: "tuple[str, str, int, int]") -> None:
    from streaming import MDSWriter

    source, out, at, count = job
    with MDSWriter(columns={"id": "int", "text": "str"}, out=out) as writer:
        for path in sorted(Path(source).iterdir())[at::count]:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    writer.write(json.loads(line))


# LitData: `optimize`, which has workers of its own.


class LitImage:
    def __init__(self, classes: "dict[str, int]") -> None:
        self.classes = classes

    def __call__(self, path: str) -> dict:
        from PIL import Image

        label = self.classes[os.path.basename(os.path.dirname(path))]
        return {"image": Image.open(path), "label": label}


def lit_lines(path: str):
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def litdata(workload: str, source: str, out: str, processes: int) -> None:
    from litdata import optimize

    if workload == "images":
        inputs = images_of(source)
        fn = LitImage(classes_of(inputs))
    else:
        inputs, fn = [str(path) for path in sorted(Path(source).iterdir())], lit_lines
    optimize(fn, inputs, output_dir=out, num_workers=processes, chunk_bytes="64MB")


WAYS = {"shardstream": shardstream, "mosaicml-streaming": mosaicml, "litdata": litdata}


def main() -> None:
    way, workload, source, out, processes = sys.argv[1:]
    if way == "litdata":
        import litdata  # noqa: F401  what is measured begins when the library is there
    else:
        from streaming import MDSWriter  # noqa: F401
    begin, cpu = time.perf_counter(), cpu_s()
    WAYS[way](workload, source, out, int(processes))
    print(f"\nRESULT {time.perf_counter() - begin:.3f} {cpu_s() - cpu:.3f}")


if __name__ == "__main__":
    main()
