"""What each rank of a job under torchrun does: several small runs, one after another.

Arguments: a folder with the cases, and the name of the world. Rank 0 writes what all have got.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from streaming import Stream, StreamingDataLoader, StreamingDataset
from tests.distributed.cases import GLOBAL_BATCH, METHODS, NODES, STOP_AFTER


def open_loader(folder: Path, method: str, replication: int, workers: int) -> StreamingDataLoader:
    batch_size = GLOBAL_BATCH * replication // dist.get_world_size()
    dataset = StreamingDataset(
        streams=[Stream(local=str(folder / name)) for name in ("a", "b")],
        batch_size=batch_size,
        batching_method=method,
        num_canonical_nodes=NODES,
        shuffle=True,
        replication=None if replication == 1 else replication,
    )
    return StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers)


def run(folder: Path, method: str, replication: int, state: Any) -> dict[str, Any]:
    """An unbroken epoch; the next one up to a batch; and its rest, elsewhere begun or here."""
    loader = open_loader(folder, method, replication, workers=0)
    unbroken = [batch["id"].tolist() for batch in loader]
    batches = iter(loader)
    begun = [next(batches)["id"].tolist() for _ in range(STOP_AFTER)]
    own = loader.state_dict()
    resumed = open_loader(folder, method, replication, workers=1)
    resumed.load_state_dict(own if state is None or method == "device_per_stream" else state)
    rest = [batch["id"].tolist() for batch in resumed]
    return {"unbroken": unbroken, "begun": begun, "state": own, "rest": rest}


def main(folder: Path, world: str) -> None:
    dist.init_process_group("gloo")
    before = folder / "states.json"
    states = json.loads(before.read_text()) if before.exists() else {}
    dist.barrier()
    told = {}
    for method in METHODS:
        for replication in (1, 2, 4):
            if dist.get_world_size() % replication == 0:
                name = f"{method} {replication}"
                told[name] = run(folder, method, replication, states.get(method))
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, told)
    if dist.get_rank() == 0:
        (folder / f"{world}.json").write_text(json.dumps(everyone))
        by_method = {name.split()[0]: case["state"] for name, case in told.items()}
        before.write_text(json.dumps(by_method))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
