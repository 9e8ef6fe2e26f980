"""WebVid, short videos with captions."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from streaming._ready import ReadyDataset, passes_on
from streaming.dataset import StreamingDataset
from streaming.multimodal.content import ContentFiles

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from streaming._ready import DatasetArguments
    from streaming.epochs import Iteration
    from streaming.order.plan import EpochPlan
    from streaming.world import World

__all__ = ["StreamingInsideWebVid", "StreamingOutsideDTWebVid", "StreamingOutsideGIWebVid"]

log = logging.getLogger("streaming")

FETCH_THREADS = 4
"""Videos that one process fetches side by side."""


class StreamingInsideWebVid(StreamingDataset):
    """WebVid with the videos inside the shards, in the column `content`.

    A sample has every column as it was written.

    Args:
        arguments: Those of `StreamingDataset`, with its defaults.
    """

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """The sample.

        Args:
            idx: Its number.
            retry: Attempts to open the shard again if it is evicted meanwhile.
        """
        return super().get_item(idx, retry)


class StreamingOutsideGIWebVid(ReadyDataset):
    """WebVid with each video in a file beside the shards, fetched when its sample is asked for.

    A sample has every column as it was written, among them `content_path`, the video's path below
    `extra_remote`, and its bytes as `content`; without `extra_local` and `extra_remote` there is no
    `content`.

    Args:
        extra_local: The folder that videos are kept in. They stay there, and don't count in
            `cache_limit`.
        extra_remote: Where the videos are: a URL or a folder.
        arguments: Those of `StreamingDataset`.
    """

    @passes_on(ReadyDataset.__init__)
    def __init__(
        self,
        *,
        extra_local: str | None = None,
        extra_remote: str | None = None,
        **arguments: Unpack[DatasetArguments],
    ) -> None:
        super().__init__(**arguments)
        self.extra_local = extra_local
        self.extra_remote = extra_remote
        self._videos: ContentFiles | None = None
        if extra_local is not None and extra_remote is not None:
            self._videos = ContentFiles(
                extra_remote,
                extra_local,
                timeout_s=self.download_timeout,
                retries=self.download_retry,
            )

    def get_item(self, idx: int, retry: int = 7) -> Any:
        """The sample with its video's bytes.

        Args:
            idx: Its number.
            retry: Attempts to open the shard again if it is evicted meanwhile.

        Raises:
            ValueError: `content_path` leads out of `extra_local`.
            streaming.storage.StoreError: The video can't be had.
        """
        sample = super().get_item(idx, retry)
        if self._videos is not None:
            sample["content"] = self._videos.read(sample["content_path"])
        return sample


class StreamingOutsideDTWebVid(StreamingOutsideGIWebVid):
    """The same, with the videos of the next `predownload` samples fetched ahead by threads.

    Args:
        extra_local: The folder that videos are kept in. They stay there, and don't count in
            `cache_limit`.
        extra_remote: Where the videos are: a URL or a folder.
        arguments: Those of `StreamingDataset`.
    """

    def _samples(self, iteration: Iteration, plan: EpochPlan, world: World) -> Iterator[Any]:
        samples = super()._samples(iteration, plan, world)
        if self._videos is None:
            yield from samples
            return
        ids = chain.from_iterable(_blocks(plan, world))
        pool = ThreadPoolExecutor(FETCH_THREADS, thread_name_prefix="streaming-video")
        try:
            coming = deque(
                pool.submit(self._fetch_video, i) for i in islice(ids, self.predownload or 1)
            )
            while coming:
                # Waiting for the thread that fetches this video saves fetching it once more.
                wait([coming.popleft()])
                coming.extend(pool.submit(self._fetch_video, i) for i in islice(ids, 1))
                yield from islice(samples, 1)
            yield from samples
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _fetch_video(self, idx: int) -> None:
        """Fetch ahead if it can be; what fails here is raised where the sample is asked for."""
        if self._videos is None:
            return
        try:
            if self.cache_limit is None or self._cache.is_present(self.spanner[idx][0]):
                path = StreamingDataset.get_item(self, idx)["content_path"]
                self._videos.fetch(path)
        except Exception as error:
            log.debug("fetching the video of sample %d ahead failed: %s", idx, error)


def _blocks(plan: EpochPlan, world: World, size: int = 4096) -> Iterator[list[int]]:
    """The numbers of a worker's samples in order, a few at a time."""
    batches, batch_size = plan.shape[3:]
    for start in range(0, batches * batch_size, size):
        stop = min(start + size, batches * batch_size)
        ids = plan.ids(world.node, world.rank_of_node, world.worker_of_rank, start, stop)
        yield ids[ids >= 0].tolist()
