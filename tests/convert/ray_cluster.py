"""Ray in local mode, with two workers, that talks to nobody but this machine."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LOCAL: dict[str, Any] = {
    "num_cpus": 2,
    "include_dashboard": False,
    "log_to_driver": False,
    "logging_level": "ERROR",
    "object_store_memory": 100 << 20,
    "_node_ip_address": "127.0.0.1",
}
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    # Workers import the tests' modules, too.
    "PYTHONPATH": os.pathsep.join(
        [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    ),
}


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUIET.items():
            patch.setenv(name, value)
        import ray
        import ray.data

        ray.init(**LOCAL)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        yield ray
        ray.shutdown()
