"""What the time of an iteration goes into, measured in the thread that iterates.

The clock is read a few times for each batch or block of samples, and never for each sample: where
samples are made one by one, one of a block, each time at another place, stands for all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming.batches import BatchMaker
from streaming.format.reader import Reader
from streaming.stats import Counters
from streaming.watch import spans
from streaming.watch.diagnosis import Watch, diagnose

log = logging.getLogger("streaming")

Ids = NDArray[np.int64]

FLUSH_NS = 20_000_000
"""How long what was measured of a loader may wait before it is handed over."""

FIRST_LOOK_S, LAST_LOOK_S = 30.0, 900.0
"""After how long a loader first looks whether its trainer waits, and how long between looks."""

PROBE_NS = 20_000_000
"""How long ago a sample was timed when another one is."""

_NEVER = -(1 << 62)

_STRIDE = 37
"""Among the blocks with a sample that is timed, how far that moves on from one to the next: over
every place in turn, as far as blocks have no multiple of so many samples."""


class Stopwatch:
    """What has been measured since it was last handed over, in nanoseconds.

    Args:
        counters: Where it goes.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters, self._here = counters, counters.here
        self._planned = 0
        self._clear()

    def _clear(self) -> None:
        self.planning = self.reading = self.decoding = self.user_code = 0
        self.collating = self.trainer = 0

    def count(self, samples: int) -> None:
        """Count samples that have all been taken."""
        self._counters.add(samples=samples)

    def hand_over(self) -> None:
        """Add what was measured to the counters."""
        self._counters.add(
            planning_ns=self.planning,
            reading_ns=max(0, self.reading),
            decoding_ns=self.decoding,
            user_code_ns=max(0, self.user_code),
            collating_ns=self.collating,
            trainer_ns=max(0, self.trainer),
        )
        self._clear()

    def finish(self) -> None:
        """Hand over the rest: the iteration has ended."""
        self.hand_over()

    def planned(self, blocks: Iterator[Ids]) -> Iterator[Ids]:
        """Blocks of sample ids; what they take is planning."""
        blocks = spans.each("plan samples", blocks)
        while True:
            started = perf_counter_ns()
            ids = next(blocks, None)
            took = perf_counter_ns() - started
            self.planning += took
            self._planned += took
            if ids is None:
                return
            yield ids

    def _elsewhere(self) -> int:
        """What this thread has spent so far in waiting, collating, transforming and planning."""
        here = self._here
        return here.waited + here.collating + here.user_code + self._planned


class BatchTimes(Stopwatch):
    """The times of an iteration that makes batches by column.

    Args:
        counters: Where they go.
        maker: Makes the batches, and notes what that takes.
    """

    def __init__(self, counters: Counters, maker: BatchMaker) -> None:
        super().__init__(counters)
        self._maker = maker
        self._begun = self._made = self._collated = 0
        self._waited = self._spent_elsewhere = self._handed_over = 0

    def made(self, batches: Sequence[Ids]) -> Iterator[Any]:
        """The maker's batches; what passes until they are counted is theirs, or the trainer's."""
        maker = self._maker
        self._made, self._collated = maker.making, maker.collating
        self._waited, self._spent_elsewhere = self._here.waited, self._elsewhere()
        self._begun = perf_counter_ns()
        return spans.each("make batch", maker.batches(batches))

    def count(self, samples: int) -> None:
        """Count the samples of batches that have all been taken."""
        super().count(samples)
        maker, now = self._maker, perf_counter_ns()
        passed = now - self._begun - (self._elsewhere() - self._spent_elsewhere)
        reading = maker.making - self._made - (self._here.waited - self._waited)
        collating = maker.collating - self._collated
        self.reading += reading
        self.collating += collating
        self.trainer += passed - reading - collating
        if now - self._handed_over > FLUSH_NS:
            self._handed_over = now
            self.hand_over()


class SampleTimes(Stopwatch):
    """The times of an iteration that makes samples one by one.

    Now and then, one sample is timed: it stands for all since the one before it.
    """

    def __init__(self, counters: Counters) -> None:
        super().__init__(counters)
        self._probes, self._probed = 0, _NEVER
        self._probe: Probe | None = None
        self._shares: tuple[int, ...] = (0, 0, 0)
        # Since when samples have not been divided among the stages, and how many.
        self._since = self._spent_elsewhere = self._undivided = 0

    def made(self, dataset: Any, ids: Ids) -> Iterator[Any]:
        """A dataset's samples; what passes until they are counted is theirs, or the trainer's."""
        now = perf_counter_ns()
        if now - self._probed > PROBE_NS:
            samples = dataset.read_probed(ids, self._begin_probe(now, len(ids)))
        else:
            samples = dataset.read_each(ids)
        return spans.together("read samples", samples, len(ids)) if spans.are_on() else samples

    def _begin_probe(self, now: int, count: int) -> Probe:
        if not self._since:
            self._since, self._spent_elsewhere = now, self._elsewhere()
        self._probed = now
        self._probes += 1
        self._probe = Probe((self._probes * _STRIDE) % count)
        return self._probe

    def count(self, samples: int) -> None:
        """Count samples that have all been taken; where one was timed, hand over what they took."""
        super().count(samples)
        self._undivided += samples
        if self._probe is None:
            return
        self._shares, self._probe = self._probe.shares(), None
        now, elsewhere = perf_counter_ns(), self._elsewhere()
        passed = now - self._since - (elsewhere - self._spent_elsewhere)
        self._since, self._spent_elsewhere = now, elsewhere
        self.trainer += passed - self._divide()
        self.hand_over()

    def finish(self) -> None:
        """Hand over the rest, by the sample that was timed last: the iteration has ended.

        It may have been left long before; that was not the trainer's time.
        """
        self._divide()
        super().finish()

    def _divide(self) -> int:
        """Divide samples among the stages of making them; return what they took together."""
        reading, decoding, user_code = (each * self._undivided for each in self._shares)
        self.reading += reading
        self.decoding += decoding
        self.user_code += user_code
        self._undivided = 0
        return reading + decoding + user_code


class Probe:
    """One sample of a block, timed: its reading, its decoding, and its user's code besides.

    Args:
        at: Its place in the block.
    """

    def __init__(self, at: int) -> None:
        self.at = at
        self.reading = self.decoding = self.whole = 0

    def shares(self) -> tuple[int, int, int]:
        """Nanoseconds of reading, of decoding, and of the user's code."""
        return self.reading, self.decoding, max(0, self.whole - self.reading - self.decoding)

    def read(self, reader: Reader, at: int) -> Any:
        """Read a sample from a shard in two steps."""
        begun = perf_counter_ns()
        data = reader.get_sample_data(at)
        read = perf_counter_ns()
        sample = reader.decode_sample(data)
        reader.bytes_read += len(data)
        self.reading += read - begun
        self.decoding += perf_counter_ns() - read
        return sample


class Demand:
    """How long a trainer waits for its batches, and how long it is at work with them.

    Where it waits for more than 5 % of the time, a line in the log says why, now and then.

    Args:
        counters: Where that goes; None to leave it.
        workers: How many workers make the batches.
    """

    def __init__(self, counters: Counters | None, workers: int) -> None:
        self._counters, self._workers = counters, workers
        self._watch = Watch(FIRST_LOOK_S, LAST_LOOK_S)
        self._since = self._ended = self._starved = 0

    def restart(self) -> None:
        """Begin another iteration: what passed since the last one was not training."""
        if self._since:
            self.hand_over()
        self._since = 0

    def show_training(self, ended: int) -> None:
        """Add what passed since the last batch to the trace.

        Args:
            ended: When the next batch was asked for, by ``perf_counter_ns``.
        """
        if self._since:
            spans.record("train", self._ended, ended)

    def waited(self, begun: int, ended: int) -> None:
        """The trainer has asked for a batch, and has got one or was told that there is none.

        Args:
            begun: When it asked, by ``perf_counter_ns``.
            ended: When it got it.
        """
        if not self._since:
            self._since = begun
        self._starved += ended - begun
        self._ended = ended
        if ended - self._since > FLUSH_NS:
            self.hand_over()

    def hand_over(self) -> None:
        """Add what was measured to the counters; what passed between batches was training."""
        starved, training = self._starved, self._ended - self._since - self._starved
        self._since, self._starved = self._ended, 0
        counters = self._counters
        if counters is None:
            return
        counters.add(starved_ns=starved, training_ns=training)
        counters.flush_now_and_then()
        now_s = self._ended / 1e9
        if self._watch.is_due(now_s):
            line = diagnose(
                self._watch.look(now_s, counters.totals()), counters.rank, self._workers
            )
            if line is not None:
                log.warning("The trainer is starved: %s", line)
