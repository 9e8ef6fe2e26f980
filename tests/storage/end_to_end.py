"""A data set written to a store and streamed from it, with the store in some trouble."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from streaming import Stream, StreamingDataset
from tests.data import text_of, write_numbers
from tests.servers.proxy import Fault, FaultProxy

SAMPLES = 200


def up_and_back(remote: str, tmp_path: Path, proxy: FaultProxy | None, **options: Any) -> None:
    """Write shards by `MDSWriter`, read them in two worker processes, with one in ten refused.

    Args:
        remote: Where the data set goes; nothing is there yet.
        tmp_path: A folder for the cache.
        proxy: What all requests pass through, if it can be made to refuse some.
        options: The store's options.
    """
    if proxy is not None:
        proxy.add(Fault(status=503, share=0.1))
    write_numbers(remote, SAMPLES, storage_options=options, retry=5)
    stream = Stream(
        remote=remote, local=str(tmp_path / "cache"), storage_options=options, download_retry=5
    )
    dataset = StreamingDataset(streams=[stream], shuffle=True, batch_size=10)
    loader = DataLoader(dataset, batch_size=10, num_workers=2)
    read = {
        int(i): text for batch in loader for i, text in zip(batch["id"], batch["text"], strict=True)
    }
    assert read == {number: text_of(number) for number in range(SAMPLES)}
    assert proxy is None or proxy.spoiled > 0
