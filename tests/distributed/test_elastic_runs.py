"""Runs of the dataset itself that stop and go on elsewhere, as hypothesis draws them.

The plans alone are tested in tests/order/test_elastic.py; here, loaders hand out samples and keep
the states, rank by rank in one process.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streaming import Stream, StreamingDataLoader, StreamingDataset
from streaming.world import World
from tests.data import write_numbers

pytestmark = pytest.mark.filterwarnings("ignore")

SIZES = (70, 37)
GLOBAL_BATCH = 12
CANONICAL = 4


class Placed(StreamingDataset):
    """A dataset that believes in a given place."""

    place: tuple[int, int, int] = (1, 1, 0)

    def _rank_world(self) -> World:
        nodes, ranks, rank = self.place
        return World(nodes, ranks, 1, rank)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    write_numbers(path / "a", SIZES[0])
    write_numbers(path / "b", SIZES[1], start=SIZES[0])
    return path


Segment = tuple[int, int, int, int]
"""Nodes, ranks on each, how many ranks share their samples, batches until the stop."""


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    nodes = draw(st.sampled_from([1, 2, 4]))
    ranks = draw(st.sampled_from([n for n in (1, 2, 3, 4) if nodes * n <= 8]))
    total = nodes * ranks
    shared = draw(
        st.sampled_from(
            [k for k in (1, 2, 4) if total % k == 0 and GLOBAL_BATCH % (total // k) == 0] or [total]
        )
    )
    return nodes, ranks, shared, draw(st.integers(1, 6))


def run_on(
    folder: Path, segment: Segment, state: Any, kwargs: dict[str, Any], stop: bool
) -> tuple[list[list[int]], Any]:
    """Global batches of a stretch of a run, and the state at its end, on which all ranks agree."""
    nodes, ranks, shared, batches = segment
    batch_size = GLOBAL_BATCH * shared // (nodes * ranks)
    got, states = [], []
    for rank in range(nodes * ranks):
        dataset = Placed(
            streams=[Stream(local=str(folder / name)) for name in "ab"],
            batch_size=batch_size,
            num_canonical_nodes=CANONICAL,
            replication=None if shared == 1 else shared,
            **kwargs,
        )
        dataset.place = nodes, ranks, rank
        loader = StreamingDataLoader(dataset, batch_size=batch_size)
        if state is not None:
            loader.load_state_dict(state)
        own = []
        for batch in loader:
            own.append(batch["id"].tolist())
            if stop and len(own) == batches:
                break
        got.append(own)
        states.append(loader.state_dict())
    assert all(other == states[0] for other in states)
    for one, other in pairwise(range(nodes * ranks)):
        if one // shared == other // shared:
            assert got[one] == got[other]
    groups = got[::shared]
    assert len({len(own) for own in groups}) == 1
    return [[i for own in groups for i in own[at]] for at in range(len(groups[0]))], states[0]


def check(folder: Path, run: list[Segment], kwargs: dict[str, Any]) -> None:
    unbroken, _ = run_on(folder, (1, 1, 1, 0), None, kwargs, stop=False)
    same = CANONICAL * -(-sum(SIZES) // CANONICAL) // GLOBAL_BATCH
    seen: list[list[int]] = []
    state = None
    for at, segment in enumerate(run):
        if len(seen) >= same:
            break
        batches, state = run_on(folder, segment, state, kwargs, stop=at < len(run) - 1)
        seen += batches
        assert state["epoch"] == 0
    seen = seen[:same]
    assert [sorted(b) for b in seen] == [sorted(b) for b in unbroken[: len(seen)]]


def _drawn(examples: int) -> Any:
    def decorate(test: Any) -> Any:
        return hypothesis_settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )(
            given(
                run=st.lists(segments(), min_size=1, max_size=4),
                shuffle_algo=st.sampled_from(["py1e", "py1br", "py1s", "py2s", "naive"]),
                shuffle=st.booleans(),
                seed=st.integers(0, 5),
            )(test)
        )

    return decorate


@_drawn(60)
def test_some_runs(folder: Path, run: Any, shuffle_algo: str, shuffle: bool, seed: int) -> None:
    _check(folder, run, shuffle_algo, shuffle, seed)


@pytest.mark.long
@pytest.mark.timeout(600)
@_drawn(3000)
def test_thousands_of_runs(
    folder: Path, run: Any, shuffle_algo: str, shuffle: bool, seed: int
) -> None:
    _check(folder, run, shuffle_algo, shuffle, seed)


def _check(folder: Path, run: Any, shuffle_algo: str, shuffle: bool, seed: int) -> None:
    kwargs = {"shuffle": shuffle, "shuffle_algo": shuffle_algo, "shuffle_seed": seed}
    check(folder, run, {**kwargs, "shuffle_block_size": 40})
