"""One small data set for all tests here."""

from pathlib import Path

import pytest

from tests.data import write_numbers

SAMPLES = 200


@pytest.fixture(scope="session")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty shards or so of ten samples."""
    return write_numbers(tmp_path_factory.mktemp("data") / "remote", SAMPLES, hashes=["sha1"])
