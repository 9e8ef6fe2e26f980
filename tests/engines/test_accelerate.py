"""Accelerate: each sample once over all processes, whatever `prepare` makes of the loader."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engines.training import BATCH, SAMPLES, open_dataset, write

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


def run(out: Path, ranks: int, *arguments: str) -> list[dict[str, Any]]:
    """Run the training in so many processes; what each has seen."""
    out.mkdir(exist_ok=True)
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    process = subprocess.run(
        [sys.executable, *launch, "-m", "tests.engines.accelerate_run", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(ranks)]


def all_of(results: list[dict[str, Any]]) -> list[int]:
    return sorted(i for result in results for batch in result["seen"] for i in batch)


@pytest.mark.parametrize(
    "loader",
    ["streaming", "dispatched", "dispatched with workers", "sharded", "sharded with workers"],
)
def test_each_sample_once(tmp_path: Path, loader: str) -> None:
    local, out = write(tmp_path), tmp_path / "out"
    steps = -(-SAMPLES // (2 * BATCH))
    results = run(out, 2, local, str(out), loader, str(steps))
    seen = all_of(results)
    assert set(seen) == set(range(SAMPLES))
    # Accelerate fills the last global batch up, where it deals out.
    assert len(seen) == SAMPLES if "sharded" not in loader else len(seen) < SAMPLES + 2 * BATCH
    assert [len(result["seen"]) for result in results] == [steps, steps]
    assert {result["length"] for result in results} == {steps}


@pytest.mark.parametrize("loader", ["streaming", "streaming with workers"])
def test_training_goes_on(tmp_path: Path, loader: str) -> None:
    """`save_state` and `load_state` are all that is needed, in the second epoch, too."""
    local = write(tmp_path)
    outs = [tmp_path / name for name in ("unbroken", "first", "rest")]
    unbroken = run(outs[0], 2, local, str(outs[0]), loader, "14")
    first = run(outs[1], 2, local, str(outs[1]), loader, "9")
    rest = run(outs[2], 2, local, str(outs[2]), loader, "5", str(outs[1] / "state"))
    for rank in range(2):
        assert first[rank]["seen"] + rest[rank]["seen"] == unbroken[rank]["seen"]
        assert rest[rank]["weights"] == unbroken[rank]["weights"]
    assert len(open_dataset(local)) == SAMPLES
