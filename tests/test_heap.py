"""The memory of a batch is used again for the next one."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data import write_numbers

USE = """
import resource, sys
from streaming import StreamingDataset

dataset = StreamingDataset(local=sys.argv[1], batch_size=1)
size = int(sys.argv[2])
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    batch = [b"x" * size for _ in range(32)]
    del batch
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has such limits")
@pytest.mark.parametrize("size", [20_000, 110_000, 1_000_000])
def test_the_next_batch_takes_no_new_pages(tmp_path: Path, size: int) -> None:
    write_numbers(tmp_path, 1)
    command = [sys.executable, "-c", USE, str(tmp_path), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 32 * size // 4096 / 10


PEAK = """
from pathlib import Path
from streaming.heap import keep_freed_memory

def peak():  # not getrusage, which takes over that of the process that started this one
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])

before = peak()
keep_freed_memory()
print(peak() - before)
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="only Linux tells the peak so")
def test_it_takes_no_memory() -> None:
    command = [sys.executable, "-c", PEAK]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 1024  # KiB
