"""Runs of the dataset itself that stop and go on elsewhere, as hypothesis draws them.

The plans alone are tested in tests/order/test_elastic.py; here, loaders hand out samples and keep
the states, rank by rank in one process. The rules are those of docs/ordering.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from streaming import Stream, StreamingDataLoader, StreamingDataset
from streaming.order import plan_epoch
from streaming.planning import order_params
from streaming.world import World
from tests.data import write_numbers

pytestmark = pytest.mark.filterwarnings("ignore")

SIZES = (70, 37)
CANONICAL = 4
MOST_RANKS = 8
CASES = {"random": 1000, "stratified": 700, "per_stream": 700, "device_per_stream": 700}
"""How many runs `make test-all` draws for each batching method."""
UNPADDED_CASES = 800


class Placed(StreamingDataset):
    """A dataset that believes in a given place."""

    place = World(1, 1, 1, 0)

    def _rank_world(self) -> World:
        return self.place


class Numbers(Placed):
    """Its samples are their numbers, and no shard is read."""

    def __getitem__(self, at: Any) -> Any:
        return {"id": int(at)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    write_numbers(path / "a", SIZES[0])
    write_numbers(path / "b", SIZES[1], start=SIZES[0])
    return path


@dataclass(frozen=True)
class Segment:
    """A world, and for how many batches it is trained on."""

    nodes: int = 1
    ranks: int = 1
    """Ranks of each node."""
    shared: int = 1
    """How many ranks share their samples."""
    workers: int = 0
    """0 for a StreamingDataLoader without workers, which counts by itself. Otherwise a plain loader
    with so many, each of which a dataset stands for, and a trainer that counts."""
    batches: int | None = None
    """None for all that are left of the epoch."""

    @property
    def groups(self) -> int:
        """Ranks, each group that shares its samples counted once."""
        return self.nodes * self.ranks // self.shared


@dataclass(frozen=True)
class Options:
    """Arguments of the datasets of a run."""

    kind: type[Placed]
    size: int = 12
    """The global batch."""
    weights: tuple[tuple[tuple[str, float], ...], ...] = ((), ())
    drop_last: bool = False
    kwargs: dict[str, Any] = field(default_factory=dict)

    def open(self, folder: Path, segment: Segment, rank: int, worker: int = 0) -> Placed:
        dataset = self.kind(
            streams=[
                Stream(local=str(folder / name), **dict(weights))  # type: ignore[arg-type]
                for name, weights in zip("ab", self.weights, strict=True)
            ],
            batch_size=self.size // segment.groups,
            num_canonical_nodes=CANONICAL,
            replication=None if segment.shared == 1 else segment.shared,
            shuffle_block_size=40,
            **self.kwargs,
        )
        workers = max(1, segment.workers)
        dataset.place = World(segment.nodes, segment.ranks, workers, rank * workers + worker)
        return dataset


# Running.


def run_rank(
    folder: Path, options: Options, segment: Segment, rank: int, state: Any
) -> tuple[list[list[int]], Any]:
    """A rank's batches, and the state that it saves after as many steps as the segment has.

    A rank that gets less batches than that has by then been told that there are no more.
    """
    loader_options = {"batch_size": options.size // segment.groups, "drop_last": options.drop_last}
    datasets = [
        options.open(folder, segment, rank, worker) for worker in range(max(1, segment.workers))
    ]
    save: Callable[[int], Any]
    if segment.workers:
        for dataset in datasets:
            if state is not None:
                dataset.load_state_dict(state)
        batches = in_turns([DataLoader(dataset, **loader_options) for dataset in datasets])
        save = lambda steps: datasets[0].state_dict(steps * options.size, False)  # noqa: E731
    else:
        loader = StreamingDataLoader(datasets[0], **loader_options)
        if state is not None:
            loader.load_state_dict(state)
        batches = iter(loader)
        save = lambda steps: loader.state_dict()  # noqa: E731
    got: list[list[int]] = []
    steps = 0
    while segment.batches is None or steps < segment.batches:
        batch = next(batches, None)
        if batch is None and segment.batches is None:
            break
        steps += 1
        if batch is not None:
            got.append(batch["id"].tolist())
    return got, save(steps)


def in_turns(loaders: list[Any]) -> Iterator[Any]:
    """The batches of a rank's workers, in the order in which a loader hands them out."""
    at_work = [iter(loader) for loader in loaders]
    while at_work:
        for worker in list(at_work):
            batch = next(worker, None)
            if batch is None:
                at_work.remove(worker)
            else:
                yield batch


def run_ranks(
    folder: Path, options: Options, segment: Segment, state: Any
) -> tuple[list[list[list[int]]], Any]:
    """The batches of each group of ranks, and the state, on which all ranks agree."""
    each = [
        run_rank(folder, options, segment, rank, state)
        for rank in range(segment.nodes * segment.ranks)
    ]
    assert all(saved == each[0][1] for _, saved in each)
    got = [batches for batches, _ in each]
    for rank, batches in enumerate(got):
        assert batches == got[rank // segment.shared * segment.shared]
    return got[:: segment.shared], each[0][1]


def run_on(
    folder: Path, options: Options, segment: Segment, state: Any = None
) -> tuple[list[list[int]], Any]:
    """Global batches of a stretch of a run, and the state at its end."""
    groups, state = run_ranks(folder, options, segment, state)
    assert len({len(batches) for batches in groups}) == 1
    return [list(chain(*parts)) for parts in zip(*groups, strict=True)], state


def epoch_of(folder: Path, options: Options, segment: Segment, epoch: int) -> list[list[int]]:
    """The global batches of an unbroken epoch."""
    state = None
    if epoch:
        state = options.open(folder, segment, 0).state_dict(0, True) | {"epoch": epoch}
    return run_on(folder, options, segment, state)[0]


# What stays the same.


def common_length(samples: int) -> int:
    """Elements of the sequence that all worlds have in common."""
    return CANONICAL * -(-samples // CANONICAL)


def same_batches(folder: Path, options: Options, method: str, unbroken: int) -> int:
    """How many of an epoch's leading global batches are the same in all worlds."""
    dataset = options.open(folder, Segment(), 0)
    if method == "random":
        return common_length(dataset.epoch_size) // options.size
    if method == "stratified":
        plan: Any = plan_epoch(order_params(dataset, World(1, 1, 1, 0)), 1, 1, 1, 0)
        parts = plan.parts.tolist()
        chosen = [stream.choose or 0 for stream in dataset.streams]
        return min(common_length(n) // part for n, part in zip(chosen, parts, strict=True))
    return unbroken


def comparable(batch: list[int], method: str) -> list[int]:
    return sorted(batch) if method in ("random", "per_stream") else batch


def check(folder: Path, options: Options, method: str, run: list[Segment]) -> None:
    """Compare a run that stops and goes on, past ends of epochs, too, with an unbroken one."""
    # `device_per_stream` depends on the ranks, which are the same all along.
    reference = Segment()
    if method == "device_per_stream":
        reference = Segment(run[0].nodes, run[0].ranks, run[0].shared)
    unbroken = cache(lambda epoch: epoch_of(folder, options, reference, epoch))
    same = same_batches(folder, options, method, len(unbroken(0)))
    all_once = method == "random" and not options.drop_last
    all_once &= all(segment.nodes != 3 for segment in run)  # there the last batch is cut down
    epoch, seen, state = 0, [], None
    for segment in run:
        batches, state = run_on(folder, options, segment, state)
        if state["epoch"] != epoch:  # of which nothing was left here
            assert len(seen) >= same
            epoch, seen = epoch + 1, []
        assert state["epoch"] == epoch
        for at, batch in enumerate(batches, len(seen)):
            if at < same:
                expected = unbroken(epoch)[at]
                assert comparable(batch, method) == comparable(expected, method)
        seen += batches
        is_end = segment.batches is None or len(batches) < segment.batches
        finished = state.get("epoch_finished", False)
        if not is_end and not finished:
            assert state["sample_in_epoch"] == len(seen) * options.size
        if is_end or finished:
            assert len(seen) >= same
        if is_end and all_once:
            assert set(chain(*seen)) == set(chain(*unbroken(epoch)))
        if is_end and not segment.workers:
            assert finished
        if finished:
            epoch, seen = epoch + 1, []


# What is drawn.


def settings(examples: int) -> hypothesis_settings:
    return hypothesis_settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def worlds(
    draw: st.DrawFn, size: int, node_counts: tuple[int, ...], most_ranks: int
) -> tuple[int, int, int]:
    """Nodes, ranks of each, and how many share their samples."""
    nodes = draw(st.sampled_from(node_counts))
    ranks = draw(st.sampled_from([n for n in (1, 2, 3, 4) if nodes * n <= most_ranks]))
    total = nodes * ranks
    fitting = [k for k in (1, 2, 4) if total % k == 0 and size % (total // k) == 0]
    return nodes, ranks, draw(st.sampled_from(fitting or [total]))


def repeats_complete_no_batch(samples: int, size: int) -> bool:
    """Whether no world of so many ranks makes another `per_stream` batch of a stream's repeats."""
    left = -common_length(samples) % size
    return left == 0 or left >= min(size, MOST_RANKS)


def weights(method: str, size: int) -> st.SearchStrategy[Any]:
    """The streams' weights; for `per_stream`, those with which all worlds have the same batches."""
    fitting = [n for n in range(24, 80) if repeats_complete_no_batch(n, size)]
    chosen = st.tuples(st.sampled_from(fitting), st.sampled_from(fitting)).map(
        lambda pair: tuple((("choose", n),) for n in pair)
    )
    none = st.just(((), ()))
    if method == "per_stream":
        return none | chosen if set(SIZES) <= set(fitting) else chosen
    parts = st.tuples(st.integers(2, 5), st.integers(2, 5)).map(
        lambda pair: tuple((("proportion", float(n)),) for n in pair)
    )
    return none | chosen | parts


@st.composite
def cases(draw: st.DrawFn, method: str) -> tuple[Options, list[Segment]]:
    drop_last = draw(st.booleans())
    size = draw(st.sampled_from([4, 6, 9, 12]))
    # A trainer that counts knows nothing of what `drop_last` leaves out at the end of an epoch.
    workers = st.sampled_from([0, 0, 2, 3]) if not drop_last else st.just(0)
    batches = st.none() | st.integers(1, 8)
    world = draw(worlds(size, (1, 2, 4), MOST_RANKS))
    run = [Segment(*world, draw(workers), draw(batches))]
    for _ in range(draw(st.integers(1, 4))):
        if method != "device_per_stream":
            others = (1, 2, 3, 4) if method in ("random", "stratified") else (1, 2, 4)
            world = draw(worlds(size, others, MOST_RANKS))
        run.append(Segment(*world, draw(workers), draw(batches)))
    kwargs = {
        "batching_method": method,
        "shuffle": draw(st.booleans()),
        "shuffle_algo": draw(
            st.sampled_from(["py1e", "py1br", "py1s", "py2s", "naive", "blockwise"])
        ),
        "shuffle_seed": draw(st.integers(0, 5)),
        "sampling_method": draw(st.sampled_from(["balanced", "fixed"])),
        "sampling_granularity": draw(st.sampled_from([1, 3])),
    }
    kind = draw(st.sampled_from([Numbers, Numbers, Placed]))
    return Options(kind, size, draw(weights(method, size)), drop_last, kwargs), run


def check_drawn(folder: Path, method: str, data: st.DataObject) -> None:
    options, run = data.draw(cases(method))
    try:
        check(folder, options, method, run)
    except ValueError as error:
        # Worlds on which the canonical nodes can't be dealt out, or the first run's global batch.
        assume("can't be dealt out" not in str(error))
        raise


@pytest.mark.parametrize("method", CASES)
@settings(8)
@given(data=st.data())
def test_some_runs(folder: Path, method: str, data: st.DataObject) -> None:
    check_drawn(folder, method, data)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("method", CASES)
def test_thousands_of_runs(folder: Path, method: str) -> None:
    """3,100 of them, over all methods."""

    @settings(CASES[method])
    @given(data=st.data())
    def runs(data: st.DataObject) -> None:
        check_drawn(folder, method, data)

    runs()


# Without padding.


@st.composite
def unpadded_cases(draw: st.DrawFn) -> tuple[Options, list[Segment]]:
    size = draw(st.sampled_from([4, 6, 9, 12]))
    run = [
        Segment(
            *draw(worlds(size, (1, 2, 3, 4), 12)),
            draw(st.sampled_from([0, 0, 2, 3])),
            draw(st.integers(1, 8)),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]
    kwargs = {
        "pad": "none",
        "shuffle": draw(st.booleans()),
        "shuffle_algo": draw(st.sampled_from(["py1br", "py1s", "naive", "blockwise"])),
    }
    chosen = tuple((("choose", draw(st.integers(0, 40))),) for _ in "ab")
    assume(sum(n for ((_, n),) in chosen) > 0)
    return Options(draw(st.sampled_from([Numbers, Placed])), size, chosen, False, kwargs), run


def check_unpadded(folder: Path, data: st.DataObject) -> None:
    """Each sample of an epoch comes once over all ranks and stretches, whoever saves when."""
    options, run = data.draw(unpadded_cases())
    dataset = options.open(folder, Segment(), 0)
    expected = [sorted(chain(*epoch_of(folder, options, Segment(), epoch))) for epoch in range(2)]
    assert all(len(each) == dataset.epoch_size for each in expected)
    epoch, seen, state = 0, [], None
    for segment in [*run, Segment(batches=None), Segment(1, 3 if options.size == 9 else 2)]:
        groups, state = run_ranks(folder, options, segment, state)
        lengths = [len(batches) for batches in groups]
        assert max(lengths) - min(lengths) <= 1
        assert state["epoch"] == epoch
        seen += [i for batches in groups for batch in batches for i in batch]
        if state["sample_in_epoch"] < dataset.epoch_size:
            # What no rank has handed out yet is not counted.
            assert state["sample_in_epoch"] == len(seen)
            continue
        assert sorted(seen) == expected[epoch]
        epoch, seen = epoch + 1, []
        if epoch == 2:
            return
    assert epoch > 0


@settings(15)
@given(data=st.data())
def test_some_runs_without_padding(folder: Path, data: st.DataObject) -> None:
    check_unpadded(folder, data)


@pytest.mark.long
@pytest.mark.timeout(600)
@settings(UNPADDED_CASES)
@given(data=st.data())
def test_hundreds_of_runs_without_padding(folder: Path, data: st.DataObject) -> None:
    check_unpadded(folder, data)
