"""What works where the kernel lacks what Linux has; such systems are imitated in a new process."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.data import write_numbers

WINDOWS = """
import sys, torch, torch.utils.data, os
sys.platform = "win32"
for name in ("fcntl", "resource"):
    sys.modules[name] = None
del os.register_at_fork, os.memfd_create, os.getuid
import streaming
from streaming import LocalDataset, MDSWriter, StreamingDataset, StreamingDataLoader, Stream
dataset = LocalDataset({local!r})
print(sum(dataset[i]["id"] for i in range(len(dataset))))
"""

MACOS = """
import sys, torch, torch.utils.data, os
sys.platform = "darwin"
del os.memfd_create, os.posix_fallocate
from streaming import StreamingDataLoader, StreamingDataset
dataset = StreamingDataset(
    remote={local!r}, local={cache!r}, batch_size=4, shuffle=True, cache_limit=20_000
)
loader = StreamingDataLoader(dataset, batch_size=4, num_workers=2)
for epoch in range(2):
    print(sum(sum(batch["id"].tolist()) for batch in loader))
"""


@pytest.mark.timeout(100)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_windows_imports_and_reads_local_data_sets(tmp_path: Path, compression: str | None) -> None:
    local = write_numbers(tmp_path / "data", 40, compression=compression)
    assert run(WINDOWS.format(local=str(local))) == [str(sum(range(40)))]


@pytest.mark.timeout(100)
def test_macos_streams(tmp_path: Path) -> None:
    remote = write_numbers(tmp_path / "data", 120)
    code = MACOS.format(local=str(remote), cache=str(tmp_path / "cache"))
    assert run(code) == [str(sum(range(120)))] * 2
    assert not list((tmp_path / "cache").glob(".part*"))


def run(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
