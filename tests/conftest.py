"""What holds for all tests."""

import multiprocessing
from collections.abc import Iterator

import pytest

from streaming.cache import transfer
from streaming.format.encodings import mds
from streaming.storage import registry

# Workers by forkserver then start in milliseconds: torch is imported once, not once in each.
multiprocessing.set_forkserver_preload(["torch", "torch.utils.data"])


@pytest.fixture(autouse=True)
def registries_as_they_were() -> Iterator[None]:
    """Tests and examples register encodings and stores: others should not meet them."""
    tables = (mds._encodings, registry._registered)
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is given up for bringing nothing for a while: for tests that count requests.

    A machine that stands still for a second has the same thing asked for twice, as it should.
    """
    monkeypatch.setattr(transfer, "FLOOR_S", 60.0)
