import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.order import arrays
from streaming.order.shuffle import SHUFFLE_ALGOS, draw_shuffle, get_shuffle, py1e
from streaming.order.shuffle.spans import divide_spans
from tests.order.strategies import counts, thorough

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

Span = tuple[int, int]


def dealt_out(sizes: list[int], nodes: int, seed: int, rng: np.random.Generator) -> Any:
    """Each node's list of spans, as the specification tells it, one span at a time."""
    ends = np.cumsum(sizes).tolist()
    spans: list[Span] = [(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    np.random.default_rng(seed).shuffle(spans)
    parts, given_out = [], 0
    for node in range(nodes):
        target, own = sum(sizes) * (node + 1) // nodes, []
        while spans and given_out < target:
            begin, end = spans.pop(0)
            middle = min(end, begin + target - given_out)
            own.append((begin, middle))
            given_out += middle - begin
            if middle < end:
                spans.insert(0, (middle, end))
        parts.append(own)
    for own in parts:
        rng.shuffle(own)
    return parts


def shuffled_ids(rng: np.random.Generator, spans: list[Span]) -> Any:
    parts = [np.arange(*span) for span in spans]
    for part in parts:
        rng.shuffle(part)
    return np.concatenate([*parts, np.array([], np.int64)])


def reference_py1s(sizes: list[int], nodes: int, seed: int, epoch: int, block: int) -> Any:
    rng = np.random.default_rng(seed + epoch)
    parts = dealt_out(sizes, nodes, seed, rng)
    return np.concatenate([shuffled_ids(rng, part) for part in parts])


def reference_py1br(sizes: list[int], nodes: int, seed: int, epoch: int, block: int) -> Any:
    rng = np.random.default_rng(seed + epoch)
    parts = [
        np.concatenate([*(np.arange(*span) for span in part), np.array([], np.int64)])
        for part in dealt_out(sizes, nodes, seed, rng)
    ]
    stagger = rng.integers(0, int(0.75 * block), nodes)
    for node, ids in enumerate(parts):
        at, blocks = 0, []
        while at < len(ids):
            size = rng.integers(int(0.75 * block), int(1.25 * block))
            blocks.append((max(at - stagger[node], 0), min(at + size - stagger[node], len(ids))))
            at += blocks[-1][1] - blocks[-1][0]
        for begin, end in blocks:
            rng.shuffle(ids[begin:end])
    return np.concatenate(parts)


def reference_py1e(sizes: list[int], nodes: int, seed: int, epoch: int, block: int) -> Any:
    rng = np.random.default_rng(seed + epoch)
    out = []
    for part in dealt_out(sizes, nodes, seed, rng):
        ids = shuffled_ids(rng, part)
        at, shifts = 0, []
        for begin, end in part:
            size = end - begin
            cut = max(0, (rng.integers(int(0.75 * block), int(1.25 * block)) - size) / 2)
            low, high = max(-cut, -at), min(cut, len(ids) - at - size)
            shifts.append(rng.uniform(low, high, size))
            at += size
        positions = np.arange(len(ids)) + np.concatenate(shifts)
        out.append(ids[np.argsort(positions, kind="stable")])
    return np.concatenate(out)


REFERENCES: dict[str, Callable[..., Any]] = {
    "py1s": reference_py1s,
    "py1br": reference_py1br,
    "py1e": reference_py1e,
}


@pytest.mark.parametrize("algo", REFERENCES)
@thorough(200)
@given(st.lists(counts(40), min_size=1, max_size=30), counts(5), st.integers(0, 99), counts(60))
def test_as_the_specification_tells_it(
    algo: str, sizes: list[int], nodes: int, seed: int, block: int
) -> None:
    block += 1
    nodes = min(nodes, sum(sizes))
    expected = REFERENCES[algo](sizes, nodes, seed, 3, block)
    assert np.array_equal(get_shuffle(algo, np.array(sizes), nodes, seed, 3, block), expected)


@pytest.mark.parametrize("block", [1000, 1 << 15, 1 << 18, 1 << 25])
@pytest.mark.parametrize("nodes", [1, 3])
def test_py1e_sorted_in_buckets(monkeypatch: pytest.MonkeyPatch, block: int, nodes: int) -> None:
    """Many buckets, and many rounds of settling them, give what one sort of all gives."""
    sizes = np.random.default_rng(0).integers(1, 3000, 200)
    expected = reference_py1e(sizes.tolist(), nodes, 5, 1, block)
    assert np.array_equal(get_shuffle("py1e", sizes, nodes, 5, 1, block), expected)
    monkeypatch.setattr(py1e, "_CHUNK", 2000)
    monkeypatch.setattr(py1e, "_MANY", 1)
    assert np.array_equal(get_shuffle("py1e", sizes, nodes, 5, 1, block), expected)


def test_equal_places_keep_their_order() -> None:
    places = np.array([2.0, 1.0, 2.0, 1.0, 2.0] * 4000)
    order = py1e._argsort(places, 0)
    assert np.array_equal(order, np.argsort(places, kind="stable"))


@pytest.mark.parametrize("algo", SHUFFLE_ALGOS)
@thorough(60)
@given(st.lists(st.integers(0, 40), max_size=20), counts(5), st.integers(0, 99))
def test_each_sample_comes_once(algo: str, sizes: list[int], nodes: int, epoch: int) -> None:
    if sum(sizes) < nodes and algo == "py1e":
        return
    shuffle = get_shuffle(algo, np.array(sizes, np.int64), nodes, 9176, epoch, 30)
    assert shuffle.dtype == np.int64
    assert np.array_equal(np.sort(shuffle), np.arange(sum(sizes)))


@pytest.mark.parametrize("algo", SHUFFLE_ALGOS)
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64, np.int32])
def test_the_type_it_is_kept_in_changes_nothing(algo: str, dtype: Any) -> None:
    sizes = np.full(30, 10)
    wide = get_shuffle(algo, sizes, 3, 9176, 2, 60)
    narrow = draw_shuffle(algo, sizes, 3, 9176, 2, 60)
    assert narrow.dtype == np.uint16
    assert np.array_equal(narrow, wide)
    typed = draw_shuffle(algo, sizes, 3, 9176, 2, 60, np.dtype(dtype))
    assert typed.dtype == dtype
    assert np.array_equal(typed, wide)


def test_large_arrays_are_shuffled_as_small_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = np.arange(1000, dtype=np.uint16), np.arange(1000)
    monkeypatch.setattr(arrays, "_IN_PLACE", 999)
    arrays.shuffle_in_place(np.random.default_rng(1), narrow)
    np.random.default_rng(1).shuffle(wide)
    assert np.array_equal(narrow, wide)


@pytest.mark.parametrize("algo", SHUFFLE_ALGOS)
def test_epochs_and_seeds_differ(algo: str) -> None:
    sizes = np.full(40, 10)
    drawn = [get_shuffle(algo, sizes, 2, *run, 100).tolist() for run in [(1, 0), (1, 1), (5, 0)]]
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]


def test_a_node_has_the_same_shards_in_every_epoch() -> None:
    sizes = np.full(40, 10)
    halves = [set(get_shuffle("py1s", sizes, 2, 7, epoch)[:200].tolist()) for epoch in range(3)]
    assert halves[0] == halves[1] == halves[2]


def shards_at_hand(order: Any, shard_size: int) -> int:
    """The most shards that are needed at a time: used before, and to be used again."""
    shards = order // shard_size
    uses = np.arange(len(order))
    first, last = np.full(shards.max() + 1, len(order)), np.zeros(shards.max() + 1, np.int64)
    np.minimum.at(first, shards, uses)
    np.maximum.at(last, shards, uses)
    comings = np.bincount(first, minlength=len(order) + 1)
    goings = np.bincount(last + 1, minlength=len(order) + 1)
    return int(np.cumsum(comings - goings).max())


@pytest.mark.parametrize(
    ("algo", "most"),
    [
        ("py1s", 1),
        ("py2s", 1),
        ("py1e", 1.25 * 20 + 1),
        ("py1br", 2.5 * 20 + 2),
        ("blockwise", 20 + 2),
        ("naive", 400),
    ],
)
def test_cache_need_is_what_the_docs_say(algo: str, most: float) -> None:
    """Of shards of 100 samples, a block of 2000 takes 20."""
    for epoch in range(5):
        shuffle = get_shuffle(algo, np.full(400, 100), 1, 9176, epoch, 2000)
        assert shards_at_hand(shuffle, 100) <= most


@pytest.mark.parametrize(
    ("algo", "nodes", "seed", "block", "message"),
    [
        ("other", 1, 0, 100, "no shuffle algorithm 'other'; use one of naive, py1br"),
        ("py1s", 0, 0, 100, "`num_canonical_nodes` must be from 1 up"),
        ("py1br", 1, 0, 1, "can't draw blocks of 1 samples"),
        ("py1e", 1, 0, 0, "can't draw blocks of 0 samples"),
        ("py1e", 9, 0, 100, "a sample for each of the 9 canonical nodes, but there are 7"),
        ("naive", 1, -1, 100, "non-negative"),
    ],
)
def test_errors(algo: str, nodes: int, seed: int, block: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_shuffle(algo, np.array([3, 4]), nodes, seed, 0, block)


@pytest.mark.filterwarnings("default::UserWarning")
def test_shards_larger_than_a_block_are_warned_of_once() -> None:
    with pytest.warns(UserWarning, match="more samples than a shuffle block of about 5") as caught:
        get_shuffle("py1e", np.full(10, 30), 2, 0, 0, 5)
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("spans", "num_parts", "divided", "parts"),
    [
        ([(0, 3), (3, 9), (9, 10)], 3, [(0, 3), (3, 6), (6, 9), (9, 10)], [(0, 1), (1, 2), (2, 4)]),
        # Empty spans on a boundary are the earlier part's.
        ([(0, 5), (5, 5), (5, 10), (10, 10)], 2, None, [(0, 2), (2, 4)]),
        ([(0, 1)], 3, None, [(0, 0), (0, 0), (0, 1)]),
    ],
)
def test_divide_spans(
    spans: list[Span], num_parts: int, divided: list[Span] | None, parts: list[Span]
) -> None:
    num_samples = sum(end - begin for begin, end in spans)
    assert divide_spans(spans, num_samples, num_parts) == (divided or spans, parts)


def test_the_room_needs_numpy_alone() -> None:
    """The order is pure numbers: importing it brings in no torch and nothing of other rooms."""
    program = """
import sys
import streaming.order
rooms = [name for name in sys.modules if name.startswith("streaming.")]
assert "torch" not in sys.modules
assert all(name.startswith(("streaming.order", "streaming._lazy")) for name in rooms), rooms
"""
    subprocess.run([sys.executable, "-c", program], check=True)
