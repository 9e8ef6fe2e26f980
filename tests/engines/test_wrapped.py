"""Models that torch itself wraps for several processes: DistributedDataParallel and FSDP."""

import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests.engines.training import SAMPLES, write

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.mark.parametrize("how", ["DDP", "FSDP"])
def test_training_goes_on(tmp_path: Path, how: str) -> None:
    job = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *("-m", "tests.engines.wrapped_run", write(tmp_path), how, str(tmp_path)),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    assert job.returncode == 0, job.stdout[-5000:]
    everyone = json.loads((tmp_path / "told.json").read_text())
    for rank in everyone:
        assert rank["resumed"] == rank["unbroken"]  # samples and losses
    for epoch in range(2):
        seen = chain.from_iterable(ids for rank in everyone for ids, _ in rank["unbroken"][epoch])
        assert sorted(seen) == list(range(SAMPLES))
