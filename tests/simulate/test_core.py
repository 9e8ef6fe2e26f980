"""The simulation keeps to the laws of any run, and comes out as worked out by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.cache.landing import PART_BYTES
from streaming.simulate.clock import Clock, Link, Meter
from streaming.simulate.data import Data
from streaming.simulate.run import EpochRun, run_epochs
from streaming.simulate.setup import Setup, StreamSetup


def plan(shards: int = 4, samples: int = 100, sample_bytes: int = 1000, **given: Any) -> Setup:
    """One rank, one connection, 100 kB/s, no latency: a shard of 100 kB takes a second."""
    stream = StreamSetup(
        shards=shards,
        samples=samples,
        sample_bytes=sample_bytes,
        fixed_size=given.pop("fixed_size", True),
        compression=given.pop("compression", 1.0),
        choose=given.pop("choose", None),
    )
    defaults: dict[str, Any] = {
        "ranks": 1,
        "workers": 1,
        "batch_size": 100,
        "shuffle": False,
        "step_s": 0.0,
        "bandwidth": 100_000,
        "connection_bandwidth": None,
        "latency_s": 0.0,
        "max_connections": 1,
        "epochs": 1,
    }
    return Setup(streams=[stream], **{**defaults, **given})


def run(setup: Setup, **given: Any) -> list[EpochRun]:
    return run_epochs(Data(setup), range(setup.nodes), setup.epochs, **given)


def test_starved_by_the_network_by_hand() -> None:
    (only,) = run(plan())
    assert only.began_s == pytest.approx([1, 2, 3, 4])
    assert only.waited_s == pytest.approx([1, 1, 1, 1])
    assert only.nodes[0].bytes == 400_000


def test_steps_that_take_longer_than_their_data() -> None:
    (only,) = run(plan(step_s=1.5))
    assert only.began_s == pytest.approx([1, 2.5, 4, 5.5])
    assert only.waited_s == pytest.approx([1, 0, 0, 0])
    assert only.end_s == pytest.approx(7)


def test_starved_by_decoding_by_hand() -> None:
    # Each of two workers has its own connection, so that their shards are here after 2 s; a batch
    # takes 3 s to decode, and meanwhile the next shards come.
    (only,) = run(plan(workers=2, decode_s=0.03))
    assert only.began_s == pytest.approx([5, 5, 8, 8])


def test_cores_that_workers_share() -> None:
    (only,) = run(plan(workers=2, decode_s=0.03, cpus=1))
    assert only.began_s == pytest.approx([8, 8, 14, 14])


def test_without_workers_nothing_is_done_at_the_same_time() -> None:
    # 1 s to fetch, 1 s to decode, 2 s of training; the next shards come meanwhile.
    (only,) = run(plan(workers=0, decode_s=0.01, step_s=2.0))
    assert only.began_s == pytest.approx([2, 5, 8, 11])


def test_latency_of_each_request_and_of_the_look_whether_it_was_rewritten() -> None:
    (only,) = run(plan(latency_s=0.25))
    assert only.began_s == pytest.approx([1.5, 3.0, 4.5, 6.0])


def test_connections_share_a_nodes_bandwidth() -> None:
    # All four shards are small and needed now: they come at 25 kB/s each.
    (small,) = run(plan(max_connections=4, connection_bandwidth=40_000))
    assert small.began_s == pytest.approx([4, 4, 4, 4])
    # Larger ones begin over two connections, as many as are tried at first.
    large = plan(sample_bytes=20_000, max_connections=4, validate_hash=True)
    (large_run,) = run(large.but(bandwidth=2_000_000, connection_bandwidth=800_000))
    assert large_run.began_s[:2] == pytest.approx([2.5, 2.5])


def test_the_start_of_workers_comes_before_everything() -> None:
    (only,) = run(plan(startup_s=2.0))
    assert only.began_s == pytest.approx([3, 4, 5, 6])


def test_what_is_here_is_not_fetched_again() -> None:
    first, second = run(plan(epochs=2))
    assert (first.nodes[0].bytes, second.nodes[0].bytes) == (400_000, 0)
    assert second.waited_s.max() == 0


def test_a_cache_of_two_shards_in_order() -> None:
    first, second = run(plan(epochs=2, cache_limit=200_000))
    for epoch in first, second:
        assert epoch.nodes[0].most_used <= 200_000
    assert first.nodes[0].fetched.tolist() == [1, 1, 1, 1]
    # The last two of the first epoch are there still when the second begins, and go first.
    assert second.nodes[0].fetched.tolist() == [1, 1, 1, 1]


def test_a_cache_too_small_for_a_shard_says_so() -> None:
    with pytest.raises(ValueError, match="cache_limit"):
        run(plan(cache_limit=99_999))


def test_compressed_shards_travel_small_and_take_room_twice_while_they_come() -> None:
    (only,) = run(plan(compression=2.0))
    assert only.nodes[0].bytes == 200_000
    assert only.began_s == pytest.approx([0.5, 1, 1.5, 2])
    assert only.nodes[0].most_used == 450_000


def test_large_shards_come_in_parts_side_by_side() -> None:
    size = 4 * PART_BYTES
    setup = plan(
        shards=1,
        samples=100,
        sample_bytes=size // 100 + 1,
        bandwidth=size,
        connection_bandwidth=size // 4,
        max_connections=8,
        validate_hash=True,
    )
    (only,) = run(setup)
    # Four parts over four connections, each as long as it takes to bring a quarter.
    assert only.began_s[0] == pytest.approx(1.0, rel=0.01)


def test_first_samples_are_read_by_ranges() -> None:
    setup = plan(
        shards=2,
        samples=1000,
        sample_bytes=8192,
        batch_size=10,
        bandwidth=1_000_000,
        max_connections=8,
        latency_s=0.1,
        step_s=1.0,
    )
    (only,) = run(setup)
    assert only.began_s[0] < 0.5
    assert only.nodes[0].range_bytes > 0
    assert only.nodes[0].fetched.tolist() == [1, 1]
    (hashed,) = run(setup.but(validate_hash=True))
    assert hashed.began_s[0] > 8
    assert hashed.nodes[0].range_bytes == 0


def test_a_sparse_stream_is_read_by_ranges_alone() -> None:
    setup = plan(shards=4, samples=1000, sample_bytes=8192, batch_size=10, choose=40, shuffle=True)
    (only,) = run(setup)
    node = only.nodes[0]
    assert node.shard_bytes == 0
    assert node.range_bytes == 40 * 8192


SETUPS = st.fixed_dictionaries(
    {
        "shards": st.integers(1, 12),
        "samples": st.integers(1, 40),
        "sample_bytes": st.sampled_from([100, 5_000, 70_000]),
        "compression": st.sampled_from([1.0, 3.0]),
        "nodes": st.integers(1, 2),
        "ranks": st.integers(1, 2),
        "workers": st.integers(0, 3),
        "batch_size": st.integers(1, 9),
        "shuffle": st.booleans(),
        "shuffle_algo": st.sampled_from(["py1e", "py1br", "blockwise", "naive"]),
        "shuffle_block_size": st.sampled_from([None, 20]),
        "predownload": st.sampled_from([None, 3, 50]),
        "max_connections": st.sampled_from([1, 4, 32]),
        "epochs": st.integers(1, 2),
        "by_column": st.booleans(),
        "latency_s": st.sampled_from([0.0, 0.1]),
        "decode_s": st.sampled_from([0.0, 0.001]),
        "step_s": st.sampled_from([0.0, 0.01]),
        "validate_hash": st.booleans(),
        "fixed_size": st.booleans(),
        "keep_zip": st.booleans(),
        "room": st.sampled_from([None, 2.2, 4.0, 100.0]),
    }
)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(SETUPS)
@pytest.mark.filterwarnings("ignore")
def test_laws(given: dict[str, Any]) -> None:
    room = given.pop("room")
    if given["shards"] * given["samples"] < 2 * given["nodes"]:
        return
    setup = plan(**given)
    data = Data(setup)
    if room is not None:
        setup = setup.but(cache_limit=int(room * data.reserves.max()))
        data = data.ordered_by(setup)
    start = 0.0
    for epoch, done in enumerate(run_epochs(data, range(setup.nodes), setup.epochs)):
        assert done.start_s == pytest.approx(start)
        start = done.end_s
        check_steps(setup, done)
        for node in done.nodes:
            check_node(setup, data, epoch, done, node)


def check_steps(setup: Setup, done: EpochRun) -> None:
    steps = len(done.began_s)
    assert (np.diff(done.began_s) >= setup.step_s - 1e-9).all()
    spent = done.waited_s.sum() + steps * setup.step_s
    assert done.end_s - done.start_s == pytest.approx(spent)


def check_node(setup: Setup, data: Data, epoch: int, done: EpochRun, node: Any) -> None:
    needed = data.work(epoch, node.node).needs.shards
    assert set(np.flatnonzero(node.fetched)) <= set(needed.tolist())
    # Every byte is a shard's, a range's, or of what was cut off at the end.
    assert node.bytes >= node.shard_bytes + node.range_bytes - 1
    seconds = done.end_s - done.start_s
    assert node.bytes <= setup.bandwidth * seconds + 1
    if setup.cache_limit is not None:
        assert node.most_used <= setup.cache_limit
    else:
        assert node.evicted == 0
        assert node.fetched.max(initial=0) <= 1
        assert node.worker_waited_s <= seconds * setup.workers_of_node + 1e-6
    if not data.ranged.any():
        check_arrivals(setup, data, epoch, done, node)


def check_arrivals(setup: Setup, data: Data, epoch: int, done: EpochRun, node: Any) -> None:
    """Without ranges: what is needed came, and no step began before its data had come."""
    work = data.work(epoch, node.node)
    if epoch == 0:
        assert (node.fetched[work.needs.shards] >= 1).all()
        if setup.cache_limit is None:
            assert node.fetched.sum() == len(work.needs.shards)
    first = {}
    for at, shard in node.arrivals.tolist():
        first.setdefault(int(shard), at)
    for rank in range(setup.ranks):
        own = [n for n, each in enumerate(work.ranks) if each == rank]
        batches = sorted(
            (start // work.batch, work.workers[n], n, start)
            for n in own
            for start in range(0, len(work.shards[n]), work.batch)
        )
        for step, (_, _, n, start) in enumerate(batches):
            for shard in work.shards[n][start : start + work.batch].tolist():
                if epoch == 0:
                    assert first[shard] <= done.began_s[step] + 1e-9


def test_a_link_shares_alike() -> None:
    clock = Clock()
    link = Link(clock, 100.0, 40.0)
    meters = [Meter(link) for _ in range(4)]
    ended: list[tuple[int, float]] = []
    for number, meter in enumerate(meters):
        link.send(100 * (number + 1), meter, lambda n=number: ended.append((n, clock.now)))
    clock.run(lambda: False)
    # 25 each until 4 s, 33.3 each until 7 s, 40 each until 9.5 s, and then 40 alone.
    assert [number for number, _ in ended] == [0, 1, 2, 3]
    assert [at for _, at in ended] == pytest.approx([4, 7, 9.5, 12])
    assert [meter.read() for meter in meters] == pytest.approx([100, 200, 300, 400])
