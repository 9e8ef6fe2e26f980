"""Memory does not grow with the input."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

SCRIPT = """
import resource, sys
from streaming.convert import Part, Source, convert

kind, size = sys.argv[1], int(sys.argv[2]) << 20

class Generated(Source):
    def describe(self): return "generated"
    def columns(self): return {"data": "bytes"}
    def parts(self): return [Part(0, "all of it", (), None, size)]
    def read(self, part):
        for at in range(size >> 15):
            yield {"data": at.to_bytes(4, "little") * (1 << 13)}

source = Generated() if kind == "generated" else sys.argv[3]
more = {"format": kind} if kind == "jsonl" else {}
convert(source, sys.argv[4], workers=1, size_limit="1mb", part_size="16mb", compression="zstd:1",
        progress=False, **more)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
"""


def peak_mb(kind: str, size_mb: int, source: Path, out: Path) -> int:
    """The most memory that a worker had, in MiB, while it converted a source of that size."""
    arguments: list[Any] = [kind, size_mb, source, out]
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def write_lines(path: Path, size_mb: int) -> None:
    line = (json.dumps({"text": "x" * 4000}) + "\n").encode()
    with open(path, "wb") as file:
        for _ in range((size_mb << 20) // len(line)):
            file.write(line)


def write_parquet(path: Path, size_mb: int) -> None:
    """One row group, which can't be cut into parts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [f"{at:08}" * 500 for at in range((size_mb << 20) // 4000)]
    rows = pa.table({"text": texts})
    pq.write_table(rows, path, row_group_size=len(texts), compression="none", use_dictionary=False)


@pytest.mark.parametrize("kind", ["generated", "jsonl", "parquet"])
def test_peak_memory_is_the_same_for_ten_times_as_much(tmp_path: Path, kind: str) -> None:
    peaks = []
    for size_mb in (20, 200):
        source = tmp_path / f"{size_mb}.{kind}"
        if kind != "generated":
            {"jsonl": write_lines, "parquet": write_parquet}[kind](source, size_mb)
        peaks.append(peak_mb(kind, size_mb, source, tmp_path / f"out{size_mb}"))
    # What is read ahead, and the shards in the writer's hands, may differ a little.
    assert peaks[1] < peaks[0] + 60, peaks
